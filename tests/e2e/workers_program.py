"""A program that serves with workers: :func:`main`, with arguments ``module:maker {options} URL...``.

It prints its URLs, its workers' pids and a line for each error that ends it.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import json
import os
import signal
import sys
import tempfile
import threading
import time
from types import TracebackType
from typing import Any

import nearcall

from .process import CERTIFICATES
from .warm import WarmProcess

PROGRAM = "from tests.e2e.workers_program import main; main()"


@nearcall.service
class Crew:
    """What the workers serve."""

    def __init__(self) -> None:
        self.made_by = os.getpid()

    @nearcall.idempotent
    def pid(self) -> int:
        assert self.made_by == os.getpid()
        return os.getpid()

    def number(self) -> int:
        return int(os.environ["NEARCALL_WORKER"])

    def who(self) -> str:
        peer = nearcall.context().peer
        return str(peer["pid"]) if "pid" in peer else str(peer.get("address") or peer["broker"]).rpartition(":")[0]

    def die(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def hog(self, path: str) -> None:
        """Keeps the interpreter's lock for ever: nothing in Python runs any more."""
        with open(path, "a", encoding="ascii") as file:
            file.write("begun\n")
        ctypes.PyDLL(None).sleep(3600)

    def note(self, path: str, line: str, seconds: float) -> str:
        """Writes down that it began, takes some time, and returns the line."""
        with open(path, "a", encoding="ascii") as file:
            file.write(line + "\n")
        time.sleep(seconds)
        return line


def two_at_once() -> Any:
    return [Crew(), Crew()]


def broken() -> Crew:
    raise LookupError("the model is not there")


def late() -> Crew:
    """Worker 1 is made when there is a file `go` beside the socket."""
    go = os.path.join(os.path.dirname(sys.argv[-1].removeprefix("unix://")), "go")
    while os.environ["NEARCALL_WORKER"] == "1" and not os.path.exists(go):
        time.sleep(0.01)
    return Crew()


def short_lived() -> Crew:
    """Dies as soon as it serves."""
    threading.Timer(0.02, os._exit, (7,)).start()
    return Crew()


def main() -> None:
    target, options, *urls = sys.argv[1:]
    module, _, name = target.partition(":")
    maker = getattr(importlib.import_module(module), name)
    chosen = json.loads(options)
    if "lifespan" in chosen:
        chosen["lifespan"] = getattr(importlib.import_module(module), chosen["lifespan"])
    directory = os.environ[CERTIFICATES]
    encrypted = any(url.startswith("tls://") for url in urls)
    tls = nearcall.TLS(cert=f"{directory}/server.pem", key=f"{directory}/server.key") if encrypted else None

    def ready(workers: nearcall.Workers) -> None:
        signal.signal(signal.SIGUSR1, lambda *_: workers.health.set("parent", False))
        print(json.dumps([workers.urls, workers.pids]), flush=True)

    try:
        nearcall.serve(maker, *urls, on_ready=ready, tls=tls, **chosen)
    except (nearcall.WorkerFailed, nearcall.RpcError) as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        print(f"cause: {error.__cause__}", file=sys.stderr)
        sys.exit(1)
    print("ended in good order", flush=True)


class WorkersProcess:
    """Such a program under test; use it in a ``with`` statement."""

    def __init__(self, *urls: str, maker: str = "tests.e2e.workers_program:Crew", **options: Any) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115 - closed with the process
        self.process = WarmProcess(
            PROGRAM, maker, json.dumps(options), *urls, stdin=None, stderr=self._errors, start_new_session=True
        )
        assert self.process.stdout is not None
        self.first_line = self.process.stdout.readline()
        self.urls: list[str] = []
        self.pids: list[int] = []
        if self.first_line.startswith("["):
            self.urls, self.pids = json.loads(self.first_line)

    @property
    def url(self) -> str:
        assert self.urls, self.first_line + self.errors()
        return self.urls[0]

    def errors(self) -> str:
        self._errors.seek(0)
        return self._errors.read()

    def end(self, how: signal.Signals = signal.SIGTERM, *, whole_group: bool = False) -> tuple[int, str]:
        """Sends the signal; the exit status and what was printed last."""
        if whole_group:
            os.killpg(self.process.pid, how)
        else:
            self.process.send_signal(how)
        return self.wait()

    def wait(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=40)
        return self.process.returncode, out

    def __enter__(self) -> WorkersProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self.process.poll() is None and kind is None:
                status, out = self.end()
                assert (status, out) == (0, "ended in good order\n"), self.errors()
        finally:
            # The session is the program's own: nobody else is in its group.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait(20)
            if self.process.stdout is not None:
                self.process.stdout.close()
            self._errors.close()


def is_alive(pid: int) -> bool:
    """Whether there is such a process that has not ended; a zombie has."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
