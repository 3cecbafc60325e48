"""Every test that asks for ``url`` runs over each transport between processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ..conftest import NOTICED
from ..e2e.ports import own_port
from ..e2e.process import ServerProcess
from .victims import Victims

TRANSPORTS: dict[str, Callable[[str, Path], str]] = {
    "shm": lambda name, directory: f"shm://{name}",
    "unix": lambda name, directory: f"unix://{directory}/{name}.unix",
    "tcp": lambda name, directory: f"tcp://127.0.0.1:{own_port()}",
}
SERVICES = "tests.survival.services:served"

_numbers = itertools.count(1)


@pytest.fixture(params=TRANSPORTS)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def new_url(transport: str, runtime_dir: Path) -> str:
    """A URL that nobody serves yet."""
    return TRANSPORTS[transport](f"v{os.getpid()}-{next(_numbers)}", runtime_dir)


@pytest.fixture
def server(new_url: str) -> Iterator[ServerProcess]:
    """A server that is to survive; all that dies are its clients."""
    with ServerProcess(new_url, services=SERVICES) as server:
        yield server


@pytest.fixture(scope="module")
def victims() -> Iterator[Victims]:
    with Victims() as victims:
        yield victims


@pytest.fixture(scope="session")
def steps() -> int | None:
    """How many of the places to kill at are tried: a sample of that size, or all (``make survival``)."""
    return None if os.environ.get("NEARCALL_SURVIVAL") == "all" else 8


@pytest.fixture
def noticed(request: pytest.FixtureRequest) -> Iterator[dict[str, list[float]]]:
    """Seconds from a death to the moment it was noticed, by who noticed it; told at the end of the run."""
    found: dict[str, list[float]] = {}
    yield found
    request.node.user_properties.extend((NOTICED, one) for one in found.items())
