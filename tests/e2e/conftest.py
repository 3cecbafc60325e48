"""Every end-to-end test that asks for ``url`` or ``client`` runs once over each transport."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import nearcall

from . import nats
from .ports import own_port
from .process import ServerProcess, serve_encrypted
from .services import everything

# A new transport joins here, by one line: from a name that is free and a directory that is empty to a URL to serve.
TRANSPORTS: dict[str, Callable[[str, Path], str]] = {
    "shm": lambda name, directory: f"shm://{name}",
    "unix": lambda name, directory: f"unix://{directory}/{name}.unix",
    "tcp": lambda name, directory: f"tcp://127.0.0.1:{own_port()}",
    "tls": lambda name, directory: f"tls://127.0.0.1:{own_port()}",
    "nats": lambda name, directory: f"nats://127.0.0.1:{nats.port()}/{name}",
    "inproc": lambda name, directory: f"inproc://{name}",
}
IN_PROCESS = {"inproc"}
if nats.PROGRAM is None:
    del TRANSPORTS["nats"]
SHARED = {"nats"}
"""Where several servers may be at one URL."""
OUTSIDE = [name for name in TRANSPORTS if name not in IN_PROCESS]

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def encrypted(certificates: Path) -> None:
    """Every server of these tests uses them for tls://."""
    serve_encrypted()


@pytest.fixture
def key() -> str:
    """A word that no other test of this run uses."""
    return f"{os.getpid()}-{next(_numbers)}"


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new_url(transport: str, key: str, runtime_dir: Path) -> str:
    """A URL of the transport that nobody serves yet."""
    return TRANSPORTS[transport](f"t{key}", runtime_dir)


@pytest.fixture(scope="module")
def served(runtime_dir: Path) -> Iterator[Callable[[str], str]]:
    """Where the services are, for each transport: one process for all outside, started when the first test needs it."""
    urls: dict[str, str] = {}
    with ExitStack() as stack:

        def start(transport: str) -> str:
            if transport not in urls:
                group = [name for name in TRANSPORTS if (name in IN_PROCESS) == (transport in IN_PROCESS)]
                number = f"m{os.getpid()}-{next(_numbers)}"
                asked = [TRANSPORTS[name](number, runtime_dir) for name in group]
                server: ServerProcess | nearcall.Server
                if transport in IN_PROCESS:
                    server = stack.enter_context(nearcall.Server(*everything(), *asked))
                else:
                    server = stack.enter_context(ServerProcess(*asked))
                urls.update(zip(group, server.urls, strict=True))
            return urls[transport]

        yield start


@pytest.fixture
def url(served: Callable[[str], str], transport: str) -> str:
    return served(transport)


@pytest.fixture(params=OUTSIDE)
def outside(request: pytest.FixtureRequest) -> str:
    """A transport whose server is in another process."""
    return str(request.param)


@pytest.fixture
def outside_url(outside: str, key: str, runtime_dir: Path) -> str:
    """A URL, to be served by a process of the test's own."""
    return TRANSPORTS[outside](f"o{key}", runtime_dir)
