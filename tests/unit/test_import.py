"""Importing the library must stay cheap: it brings in only what every user needs."""

from __future__ import annotations

import subprocess
import sys

import pytest


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


SUBPROCESS = pytest.param(
    "subprocess", marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="uuid of Python 3.10 imports it")
)


@pytest.mark.parametrize(
    "unwanted",
    [
        "numpy",
        "argparse",
        "asyncio",
        "difflib",
        "importlib.metadata",
        "logging",
        "nearcall.cli",
        "nearcall.testing",
        "pickle",
        "ssl",
        SUBPROCESS,
    ],
)
def test_import_leaves_out(unwanted: str) -> None:
    assert run(f"import nearcall, sys; print({unwanted!r} in sys.modules)") == "False\n"


def test_threads_serve_and_call_without_asyncio() -> None:
    code = """
import sys, nearcall

@nearcall.service
class Calculator:
    def add(self, a: int, b: int) -> int:
        return a + b

with nearcall.Server(Calculator(), "inproc://import"), nearcall.connect("inproc://import", Calculator) as calc:
    assert calc.add(1, 2) == 3
print([name for name in ("asyncio", "numpy", "pickle") if name in sys.modules])
"""
    assert run(code) == "[]\n"


def test_aio_is_there_when_it_is_asked_for() -> None:
    assert run("import nearcall; print(nearcall.aio.connect.__module__)") == "nearcall.aio.channel\n"
    assert run("from nearcall import *; print(aio.connect.__module__)") == "nearcall.aio.channel\n"


def test_what_is_not_there_is_said() -> None:
    code = """
import nearcall
try:
    nearcall.conect
except AttributeError as error:
    print(error)
"""
    assert run(code) == "module 'nearcall' has no attribute 'conect'\n"
