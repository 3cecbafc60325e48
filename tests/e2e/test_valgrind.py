"""In valgrind a program with nearcall runs as elsewhere: the people who look for faults and for speed need it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import nearcall

@nearcall.service
class Echo:
    def echo(self, data: bytes) -> bytes:
        return data

with nearcall.Server(Echo(), "shm://in-valgrind"), nearcall.connect("shm://in-valgrind", Echo) as echo:
    assert echo.echo(b"a word") == b"a word"
print("called")
"""


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is missing")
def test_a_call_in_valgrind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    file = tmp_path / "program.py"
    file.write_text(PROGRAM)
    command = ["valgrind", "-q", "--tool=none", sys.executable, file]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ran.returncode, ran.stdout) == (0, "called\n"), ran.stderr
