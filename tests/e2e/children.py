"""Programs that tests of ``nearcall.spawn`` start: ``python -m tests.e2e.children WHAT``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import nearcall


@nearcall.service
class Workshop:
    def pid(self) -> int:
        return os.getpid()

    def echo(self, data: bytes) -> bytes:
        return data

    def say(self, text: str) -> None:
        print(text, flush=True)
        os.write(1, b"raw\n")

    def open(self) -> list[int]:
        return [int(name) for name in os.listdir("/proc/self/fd")]

    def ask(self) -> str:
        return sys.stdin.read()

    def count(self, to: int) -> Iterator[int]:
        yield from range(to)

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    @nearcall.oneway
    def note(self, path: str) -> None:
        with open(path, "a") as file:
            file.write("noted\n")

    def never(self) -> None:
        """Does not end, and takes no notice of anything."""
        while True:
            time.sleep(0.01)


def serve() -> None:
    nearcall.serve(Workshop(), "stdio:", grace=0.2)
    print("over", file=sys.stderr, flush=True)


def relay() -> None:
    """As ssh does: its own standard input and output are those of a program that it starts, through plain pipes."""
    command = [sys.executable, "-m", __spec__.name if __spec__ else "", "serve"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as inner:
        assert inner.stdin is not None
        assert inner.stdout is not None

        def copy(source: int, target: int) -> None:
            while data := os.read(source, 1 << 16):
                while data:
                    data = data[os.write(target, data) :]
            os.close(target)

        threading.Thread(target=copy, args=(inner.stdout.fileno(), 1), daemon=True).start()
        into = os.dup(inner.stdin.fileno())
        inner.stdin.close()
        copy(0, into)


def parent(program: str) -> None:
    """Starts a child and tells its number; ends it only if it is told to."""
    child = nearcall.spawn([sys.executable, "-m", program, "serve"], Workshop)
    if "stuck" in sys.argv:
        threading.Thread(target=child.never, daemon=True).start()
    print(child.pid(), flush=True)
    if "forked" in sys.argv:
        pid = os.fork()
        if pid == 0:
            signal.pause()
        print(pid, flush=True)
    sys.stdin.readline()
    child.close()


def calls() -> None:
    """A child that calls what its parent serves."""
    with nearcall.connect("stdio:", Workshop) as workshop:
        assert workshop.total(iter(range(100))) == 4950
        assert workshop.echo(bytes(3_000_000)) == bytes(3_000_000)
        print(workshop.pid(), flush=True)


if __name__ == "__main__":
    match sys.argv[1]:
        case "serve":
            serve()
        case "relay":
            relay()
        case "parent":
            parent(str(__spec__.name))
        case "calls":
            calls()
