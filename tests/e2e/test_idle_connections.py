"""Thousands of clients may be connected and silent: what a server keeps for each of them is little."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import nearcall

from ..hostile import raw
from ..hostile.frames import CALL, REPLY, encode, frame
from .conftest import TRANSPORTS
from .process import ServerProcess
from .services import Basics

FEW, MANY = 50, 350
MOST_KB = 32
"""For each connection, several times what it is. A buffer of its own would be 64."""


@pytest.fixture(params=["unix", "tcp", "tls"])
def server(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> Iterator[ServerProcess]:
    with ServerProcess(TRANSPORTS[request.param](f"i{key}", runtime_dir)) as process:
        yield process


def private_kb(pid: int) -> int:
    """Memory that is this process's alone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def each_kb(server: ServerProcess, connect: Callable[[], object]) -> float:
    """What the server keeps for each further connection."""
    for _ in range(FEW):
        connect()
    before = private_kb(server.pid)
    for _ in range(MANY - FEW):
        connect()
    return (private_kb(server.pid) - before) / (MANY - FEW)


def test_a_client_that_has_called_and_is_silent_keeps_no_buffer(server: ServerProcess) -> None:
    with ExitStack() as stack:

        def connect() -> None:
            client = stack.enter_context(nearcall.connect(server.url, Basics))
            assert client.echo(bytes(1000)) == bytes(1000)

        assert each_kb(server, connect) < MOST_KB


def test_a_client_that_sends_half_a_frame_keeps_its_bytes_and_no_more(server: ServerProcess) -> None:
    with ExitStack() as stack:

        def connect() -> None:
            peer = stack.enter_context(raw.connect(server.url))
            call = peer.batch([frame(CALL, encode([2, 3]), method=peer.methods["add"])])
            # What comes together is read together: the reply says that the half is there, too.
            peer.push(call + struct.pack("<I", 1000) + bytes(500), raw.PATIENCE)
            assert peer.receive().kind == REPLY

        assert each_kb(server, connect) < MOST_KB
