"""Makes processes and kills them: ``python -m tests.survival.victims``.

It reads what to do as lines of JSON and answers in lines of JSON. Each victim is forked from this process, which has
everything imported and no threads, so that hundreds of them take seconds.
"""

from __future__ import annotations

import ctypes
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import nearcall

from . import services, stepper

ROOT = Path(__file__).parents[2]
_PR_SET_PDEATHSIG = 1


def _client(order: dict[str, Any], large: bytes) -> None:
    script: Callable[[str, bytes, str], None] = getattr(services, order["script"])
    script(order["url"], large, order.get("key", ""))


def _serve(order: dict[str, Any], ready: int) -> None:
    server = nearcall.Server(*services.served(), order["url"]).start()
    os.write(ready, json.dumps({"url": server.urls[0], "pid": os.getpid()}).encode() + b"\n")


def _victim(order: dict[str, Any], large: bytes, ready: int, go: int) -> None:
    """The child: says that it is ready, waits for the word, and lives on until it is through or killed."""
    if order["role"] == "server":
        _serve(order, ready)
    else:
        os.write(ready, json.dumps({"pid": os.getpid()}).encode() + b"\n")
    os.read(go, 1)
    if order["role"] == "server":
        while True:
            signal.pause()
    _client(order, large)


def _run(order: dict[str, Any], large: bytes) -> None:
    ready_read, ready_write = os.pipe()
    go_read, go_write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(ready_read)
        os.close(go_write)
        status = 1
        try:
            # It does not outlive us, however we end.
            ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            _victim(order, large, ready_write, go_read)
            status = 0
        except BaseException as error:
            print(f"a victim failed: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        finally:
            os._exit(status)
    os.close(ready_write)
    os.close(go_read)
    try:
        with os.fdopen(ready_read) as ready:
            said = ready.readline()
        if not said:
            os.waitpid(child, 0)
            raise RuntimeError("the victim ended before it was ready")
        answer: dict[str, Any] = {}
        if order["how"] == "step":
            steps = stepper.Stepper(child)
            print(said, end="", flush=True)
            os.write(go_write, b"!")
            how, value = steps.run(order["stop"])
            answer = {"how": how, "stops": steps.stops, "status" if how == "ended" else "at": value}
        else:
            print(said, end="", flush=True)
            os.write(go_write, b"!")
            time.sleep(random.Random(order["seed"]).uniform(0, order["seconds"]))
            at = time.monotonic_ns()
            os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            answer = {"how": "killed", "at": at} if status == -signal.SIGKILL else {"how": "ended", "status": status}
        print(json.dumps(answer), flush=True)
    finally:
        os.close(go_write)


def main() -> None:
    large = os.urandom(1 << 16) * (services.LARGE >> 16)
    print(json.dumps(stepper.is_possible()), flush=True)
    for line in sys.stdin:
        _run(json.loads(line), large)


class Victims:
    """The process that makes victims, as a test sees it; use it in a ``with`` statement."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-X", "faulthandler", "-m", "tests.survival.victims"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.no_stepping: str | None = self._read()

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the maker of victims ended with {self._process.wait(10)}")
        return json.loads(line)

    def start(self, role: str, url: str, how: str, **order: Any) -> dict[str, Any]:
        """Makes a victim; what it says when it is ready. :meth:`outcome` comes next."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"role": role, "url": url, "how": how, **order}) + "\n")
        self._process.stdin.flush()
        ready: dict[str, Any] = self._read()
        return ready

    def outcome(self) -> dict[str, Any]:
        """Waits until the victim is gone: how it went, and when it was killed."""
        outcome: dict[str, Any] = self._read()
        return outcome

    def __enter__(self) -> Victims:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            # A victim that is left is killed with us, by the kernel.
            self._process.communicate("", timeout=20)
        finally:
            self._process.kill()
            self._process.wait(10)


if __name__ == "__main__":
    main()
