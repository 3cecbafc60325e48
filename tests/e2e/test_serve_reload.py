"""``nearcall serve --reload``: the code of now, as soon as a file has changed."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
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


SLOW = """
import threading
import nearcall

@nearcall.service
class Hello:
    def hello(self) -> str:
        print("called", flush=True)
        threading.Event().wait({})
        return "done"
"""


@pytest.mark.parametrize("workers", [[], ["--workers", "2"]], ids=["alone", "workers"])
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_in_a_terminal_counts_once(tmp_path: Path, key: str, times: int, workers: list[str]) -> None:
    (tmp_path / "app.py").write_text(SLOW.format(1.5 if times == 1 else 60))
    url = f"shm://reload{key}"
    command = [sys.executable, "-m", "nearcall", "serve", "--reload", "app:Hello", url, "--grace", "30", *workers]
    process, ours = pty.fork()  # the terminal of a session of its own
    if process == 0:
        os.chdir(tmp_path)
        os.execv(sys.executable, command)
    with os.fdopen(ours, "r+b", buffering=0) as terminal, ThreadPoolExecutor() as threads:
        try:
            lines = TerminalLines(terminal)
            lines.until("serving app:Hello")
            with nearcall.connect(url, Hello, timeout=60) as hello:
                answer = threads.submit(hello.hello)
                lines.until("called")
                terminal.write(b"\x03")
                if times == 2:
                    lines.until("^C")
                    terminal.write(b"\x03")
                    with pytest.raises(nearcall.RpcError):
                        answer.result()
                else:
                    assert answer.result() == "done"
            assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process, signal.SIGKILL)


class TerminalLines:
    """What a terminal shows."""

    def __init__(self, terminal: io.RawIOBase) -> None:
        self._terminal = terminal
        self._shown = ""

    def until(self, text: str) -> None:
        """Reads until a text is there."""
        while text not in self._shown:
            self._shown += self._terminal.read(4096).decode()
        self._shown = self._shown.partition(text)[2]


def test_it_says_what_it_lacks(tmp_path: Path) -> None:
    (tmp_path / "watchfiles.py").write_text("raise ModuleNotFoundError\n")
    environment = os.environ | {"PYTHONPATH": str(tmp_path)}
    command = [sys.executable, "-m", "nearcall", "serve", "--reload", "app:Hello", "shm://none"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == "nearcall: --reload needs watchfiles: pip install 'nearcall[reload]'\n"
