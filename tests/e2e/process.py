"""A server in a process of its own, whose program is :func:`main`, with arguments ``module:function {options} URL...``.

It prints its URLs when it listens, and ends when its standard input does: so it never outlives the test that started
it. Servers and programs are forks of a warm process (:mod:`.warm`): a start costs a tenth of an interpreter's.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import Any

from .warm import ROOT, WarmProcess

PROGRAM = "from tests.e2e.process import main; main()"
CERTIFICATES = "NEARCALL_TEST_CERTIFICATES"
"""The variable that says where certificates for tls:// are."""


def serve_encrypted() -> None:
    """Gives every server of this process that is to encrypt a certificate, as any test may serve any transport."""
    directory = os.environ.get(CERTIFICATES)
    if directory is None:
        return
    import nearcall

    plain = nearcall.Server.__init__
    tls = nearcall.TLS(cert=f"{directory}/server.pem", key=f"{directory}/server.key")

    @functools.wraps(plain)
    def encrypted(self: nearcall.Server, *services_and_urls: object, **options: Any) -> None:
        if any(
            isinstance(item, str) and item.startswith(("tls://", "grpcs://", "https://")) for item in services_and_urls
        ):
            options.setdefault("tls", tls)
        plain(self, *services_and_urls, **options)

    nearcall.Server.__init__ = encrypted  # type: ignore[method-assign]


def main() -> None:
    serve_encrypted()
    target, options, *urls = sys.argv[1:]
    module, _, name = target.partition(":")
    services = getattr(importlib.import_module(module), name)()
    import nearcall

    with nearcall.Server(*services, *urls, **json.loads(options)) as server:
        print(json.dumps(server.urls), flush=True)
        # As in `nearcall.serve`, the main thread rests: then the workers keep the interpreter between calls.
        nearcall._core.rest(lambda _: bool(sys.stdin.read()), None)


def start_program(code: str, *arguments: str, stderr: int | None = None, **env: str) -> subprocess.Popen[str]:
    """A Python program whose input and output are the test's; use it in a ``with`` statement.

    With variables of its own in ``env`` it is an interpreter of its own, which may read them when it starts.
    """
    if not env:
        return WarmProcess(code, *arguments, stderr=stderr)
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-W", "error", "-c", code, *arguments],
        cwd=ROOT,
        env=os.environ | env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )


def run_program(code: str, *arguments: str, **env: str) -> tuple[str, str, int]:
    """A program from its begin to its end: what it wrote to its output and as errors, and its exit status."""
    with start_program(code, *arguments, stderr=subprocess.PIPE, **env) as process:
        try:
            said, complained = process.communicate("", timeout=50)
        finally:
            process.kill()
    return said, complained, process.returncode


class ServerProcess:
    """A server process under test; use it in a ``with`` statement."""

    def __init__(
        self, *urls: str, services: str = "tests.e2e.services:everything", stderr: Any = None, **options: Any
    ) -> None:
        self._process = WarmProcess(PROGRAM, services, json.dumps(options), *urls, stderr=stderr)
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the server ended with {self._process.wait(10)} before it listened")
        self.urls: Sequence[str] = json.loads(line)

    @property
    def url(self) -> str:
        return self.urls[0]

    @property
    def pid(self) -> int:
        return self._process.pid

    def kill(self) -> None:
        """Without any chance to clean up."""
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(10)

    def close(self) -> int:
        """Ends it in good order; its exit status."""
        self._process.communicate("", timeout=20)
        return self._process.returncode

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            if self._process.poll() is None:
                status = self.close()
                assert status == 0, f"the server ended with {status}"
        finally:
            if self._process.poll() is None:
                self.kill()
            for stream in (self._process.stdin, self._process.stdout, self._process.stderr):
                if stream is not None:
                    stream.close()
