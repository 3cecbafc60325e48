"""A nats-server for the tests of one process, started when the first of them needs it."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import socket
import subprocess
import time

from nearcall import _core

from .ports import own_port

PROGRAM = shutil.which(
    "nats-server", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
)
"""``None`` if there is none: ``make nats-server`` installs it."""

_PATIENCE = 20.0


class NatsServer:
    """A nats-server with options of its own; use it in a ``with`` statement, or ``close`` it."""

    def __init__(self, *options: str, port: int | None = None) -> None:
        assert PROGRAM is not None
        self.port = own_port() if port is None else port
        self.options = options
        self.start()

    def start(self) -> None:
        """Starts it, at the same port if it was there before."""
        assert PROGRAM is not None
        command = [PROGRAM, "--addr", "127.0.0.1", "--port", str(self.port), *self.options]
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            # Also when the tests' process is killed because one of them hangs.
            preexec_fn=_core.die_with_starter,  # noqa: PLW1509 - one system call
        )
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1).close()
                return
            except OSError:
                if time.monotonic() > end or self.process.poll() is not None:
                    raise

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(10)

    def __enter__(self) -> NatsServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@functools.cache
def port() -> int:
    """Where the server of this process's tests listens."""
    # A port of nobody: those of `own_port` are kept for one test.
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number: int = free.getsockname()[1]
    server = NatsServer(port=number)
    atexit.register(server.kill)
    return number
