"""SIGHUP: workers are replaced by new ones with new code, and no call fails. Without workers a server ends in good
order.
"""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .test_workers import PATIENCE, until

CODE = """
import os
import nearcall

@nearcall.service
class Versioned:
    def version(self) -> int:
        return VERSION

    def pid(self) -> int:
        return os.getpid()

def lifespan(server):
    yield
    with open(os.environ["LEFT"], "a") as file:
        file.write(f"{VERSION}\\n")
"""


@nearcall.service
class Versioned:
    """As the clients know it."""

    def version(self) -> int:
        raise NotImplementedError

    def pid(self) -> int:
        raise NotImplementedError


class Command:
    """``nearcall serve`` with code that the test changes."""

    def __init__(self, directory: Path, *arguments: str, code: str = CODE) -> None:
        self.directory = directory
        self.log = directory / "log"
        self.left = directory / "left"
        self.write(1, code)
        command = ["env", "--default-signal=HUP", sys.executable]  # also if the tests run under nohup
        command += ["-m", "nearcall", "serve", "versioned:Versioned", *arguments]
        command += ["--lifespan", "versioned:lifespan", "--log-level", "info"]
        env = os.environ | {"PYTHONPATH": str(directory), "LEFT": str(self.left), "PYTHONDONTWRITEBYTECODE": "1"}
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, env=env, stderr=log, cwd=directory, start_new_session=True)

    def write(self, version: int, code: str = CODE) -> None:
        (self.directory / "versioned.py").write_text(code.replace("VERSION", str(version)))

    def says(self, text: str) -> bool:
        return text in self.log.read_text()

    def reload(self) -> None:
        self.process.send_signal(signal.SIGHUP)


@contextmanager
def serving(
    directory: Path, *arguments: str, sign: str = "serving versioned:Versioned", code: str = CODE
) -> Iterator[Command]:
    command = Command(directory, *arguments, code=code)
    try:
        until(lambda: command.says(sign) or command.process.poll() is not None, "the start")
        yield command
    finally:
        if command.process.poll() is None:
            command.process.terminate()
        try:
            status = command.process.wait(PATIENCE)
        finally:
            if command.process.poll() is None:
                os.killpg(command.process.pid, signal.SIGKILL)
    assert status == 0, command.log.read_text()


class Callers:
    """Clients that call all the time, old ones and ever new ones."""

    def __init__(self, urls: list[str]) -> None:
        self.over = threading.Event()
        self.errors: list[BaseException] = []
        self.calls = 0
        self.seen: dict[str, int] = {}
        self._threads = [
            threading.Thread(target=self._call, args=(url, anew)) for url in urls for anew in (False, False, True)
        ]

    def _call(self, url: str, anew: bool) -> None:
        client: Any = None
        try:
            while not self.over.is_set():
                if client is None or anew:
                    if client is not None:
                        client.close()
                    client = nearcall.connect(url, Versioned)
                self.seen[f"{url} {threading.get_ident()}"] = client.service.version()
                self.calls += 1
        except BaseException as error:
            self.errors.append(error)
        finally:
            if client is not None:
                client.close()

    def __enter__(self) -> Callers:
        for thread in self._threads:
            thread.start()
        until(lambda: len(self.seen) == len(self._threads) or bool(self.errors), "the first calls")
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()
        for thread in self._threads:
            thread.join(PATIENCE)


def test_no_call_fails_while_the_workers_are_replaced(tmp_path: Path, key: str) -> None:
    urls = [f"shm://{key}", f"unix://{tmp_path}/s", "tcp://127.0.0.1:0", "grpc://127.0.0.1:0"]
    with serving(tmp_path, *urls, "--workers", "2") as command:
        lines = command.log.read_text().splitlines()
        found = [line.split()[3] for line in lines if line.startswith("serving versioned")]
        assert len(found) == len(urls)
        with Callers(found) as callers:
            for version in (2, 3):
                command.write(version)
                command.reload()
                until(lambda: set(callers.seen.values()) == {version} or bool(callers.errors), "the new code")  # noqa: B023
                before = callers.calls
                until(lambda: callers.calls > before + 200 or bool(callers.errors), "more calls")  # noqa: B023
        assert not callers.errors, (callers.errors, command.log.read_text())
        until(lambda: command.left.exists() and command.left.read_text().count("1\n") == 2, "the lifespans' ends")


def test_new_code_that_cannot_begin_changes_nothing(tmp_path: Path, key: str) -> None:
    with serving(tmp_path, f"shm://{key}", "--workers", "2") as command, nearcall.connect(f"shm://{key}") as client:
        pid = client.pid()
        command.write(2, "import nothing_of_this_name\n")
        command.reload()
        until(lambda: command.says("the workers stay as they are"), "the refusal")
        assert command.says("nothing_of_this_name")
        assert (client.version(), client.pid()) == (1, pid)
        command.write(3)
        command.reload()
        until(lambda: client.version() == 3, "the code that works")


def test_new_settings_count_and_wrong_ones_change_nothing(tmp_path: Path, key: str) -> None:
    settings = tmp_path / "nearcall.toml"
    settings.write_text("[serve]\nworkers = 1\nmax_message_size = 1000000\n")
    with serving(tmp_path, f"shm://{key}") as command, nearcall.connect(f"shm://{key}") as client:
        settings.write_text("[serve]\nworkers = 1\nmax_pendding = 3\n")
        command.reload()
        until(lambda: command.says("the settings are wrong"), "the refusal")
        pid = client.pid()
        settings.write_text("[serve]\nworkers = 2\nmax_pending = 3\n")
        command.reload()
        until(lambda: command.says("needs a restart, and stays as it is: workers"), "the warning")
        until(lambda: client.pid() != pid, "the successor")


def test_without_workers_it_ends_in_good_order(tmp_path: Path, key: str) -> None:
    with serving(tmp_path, f"shm://{key}", sign="serving at") as command:
        command.reload()
        assert command.process.wait(PATIENCE) == 0
        assert command.left.read_text() == "1\n"


@pytest.mark.parametrize("nohup", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_terminal_that_hangs_up_ends_it_unless_it_was_told_to_stay(
    tmp_path: Path, key: str, nohup: bool, workers: int
) -> None:
    (tmp_path / "versioned.py").write_text(CODE.replace("VERSION", "1"))
    log, left = tmp_path / "log", tmp_path / "left"
    command = [sys.executable, "-m", "nearcall", "serve", "versioned:Versioned", f"shm://{key}"]
    command += ["--lifespan", "versioned:lifespan", *(["--workers", str(workers)] if workers else [])]
    env = os.environ | {"PYTHONPATH": str(tmp_path), "LEFT": str(left), "PYTHONDONTWRITEBYTECODE": "1"}
    pid, terminal = pty.fork()
    if pid == 0:  # the leader of the terminal's session
        os.dup2(os.open(log, os.O_WRONLY | os.O_CREAT, 0o600), 2)
        os.chdir(tmp_path)
        signal.signal(signal.SIGHUP, signal.SIG_IGN if nohup else signal.SIG_DFL)
        os.execve(sys.executable, command, env)
    try:
        until(lambda: log.exists() and "serving versioned" in log.read_text(), "the start")
        os.close(terminal)
        if nohup:
            with nearcall.connect(f"shm://{key}") as client:
                for _ in range(100):
                    assert client.version() == 1
            os.kill(pid, signal.SIGTERM)
        _, status = os.waitpid(pid, 0)
        assert os.waitstatus_to_exitcode(status) == 0
        assert left.read_text() == "1\n" * max(workers, 1)
    except BaseException:
        os.kill(pid, signal.SIGKILL)
        raise
