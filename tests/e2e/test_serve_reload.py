"""``nearcall serve --reload``: the code of now, as soon as a file has changed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import nearcall

pytest.importorskip("watchfiles")

APP = """
import nearcall

@nearcall.service
class Hello:
    def hello(self) -> str:
        return "{}"
"""


@nearcall.service
class Hello:
    def hello(self) -> str: ...


# A shell without job control starts what it leaves in the background with SIGINT ignored.
@pytest.mark.parametrize("start", [[], ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]], ids=["", "in the background"])
def test_a_changed_file_is_served_anew(tmp_path: Path, key: str, start: list[str]) -> None:
    app = tmp_path / "app.py"
    app.write_text(APP.format("before"))
    url = f"shm://reload{key}"
    command = [*start, sys.executable, "-m", "nearcall", "serve", "--reload", "app:Hello", url]
    with subprocess.Popen(command, cwd=tmp_path, env=os.environ, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline() == f"serving app:Hello at {url}\n"
            with nearcall.connect(url, Hello, timeout=60, wait_for_ready=True) as hello:
                assert hello.hello() == "before"
                app.write_text(APP.format("after"))
                assert process.stderr.readline() == "nearcall: changed: app.py; serving anew\n"
                assert process.stderr.readline() == f"serving app:Hello at {url}\n"
                assert hello.hello() == "after"
                app.write_text("1 / 0\n")
                assert process.stderr.readline() == "nearcall: changed: app.py; serving anew\n"
                broken = process.stderr.readline()
                assert "ZeroDivisionError: division by zero (app.py, line 1; " in broken, broken
                assert process.stderr.readline() == "nearcall: waiting for a file to change\n"
                app.write_text(APP.format("mended"))
                assert process.stderr.readline() == "nearcall: changed: app.py; serving anew\n"
                assert process.stderr.readline() == f"serving app:Hello at {url}\n"
                assert hello.hello() == "mended"
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_it_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ModuleNotFoundError\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "nearcall", "serve", "--reload", "app:Hello", "shm://none"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "nearcall: --reload needs watchfiles: pip install 'nearcall[reload]'\n"
