"""A program of one thread: over shared memory it keeps the interpreter while it waits for a reply
(docs/measurements/0102).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import lone
from .conftest import OUTSIDE, TRANSPORTS
from .process import ServerProcess, run_program

PROGRAM = "from tests.e2e.lone import main; main()"


@pytest.fixture(scope="module")
def server(runtime_dir: Path) -> Iterator[dict[str, str]]:
    urls = [TRANSPORTS[transport](f"lone-{transport}", runtime_dir) for transport in OUTSIDE]
    with ServerProcess(*urls, services="tests.e2e.lone:served") as process:
        yield dict(zip(OUTSIDE, process.urls, strict=True))


@pytest.mark.parametrize("name", [check.__name__ for check in lone.CHECKS])
@pytest.mark.parametrize("transport", OUTSIDE)
def test_as_with_threads(server: dict[str, str], transport: str, name: str) -> None:
    assert run_program(PROGRAM, server[transport], name) == ("right\n", "", 0)


@pytest.mark.slow
@pytest.mark.crash
@pytest.mark.parametrize("transport", OUTSIDE)
def test_the_end_of_a_server_ends_the_call(transport: str, key: str, runtime_dir: Path) -> None:
    url = TRANSPORTS[transport](f"lone-{key}", runtime_dir)
    with ServerProcess(url, services="tests.e2e.lone:served") as process:
        assert run_program(PROGRAM, process.url, "the_servers_end") == ("right\n", "", 0)
        process.kill()
    with ServerProcess(url, services="tests.e2e.lone:served") as successor:
        assert run_program(PROGRAM, successor.url, "errors") == ("right\n", "", 0)
