"""`tools/check_symbols.py` finds what the binding declares and a Python lacks."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = """
unsafe extern "C-unwind" {
    fn PyIter_Next(iterator: *mut PyObject) -> *mut PyObject;
    fn PyNothing_OfThatName(
        of: *mut PyObject,
    ) -> c_int;
}
struct Functions { make: unsafe extern "C" fn(*const c_char, isize) -> *mut ffi::PyObject }
fn PyOrdinary(_: u8) {}
"""


def test_a_function_that_this_python_lacks_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    check_symbols = importlib.import_module("check_symbols")
    names = check_symbols.declared(SOURCE)
    assert names == ["PyIter_Next", "PyNothing_OfThatName"]
    assert check_symbols.lacking(Path(sys.executable), names) == ["PyNothing_OfThatName"]
