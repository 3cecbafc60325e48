"""gRPC's interoperability suite: the other implementations' clients at our server, and ours at theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..e2e.process import ServerProcess
from .cases import CASES
from .cells import Cell, Column, cells
from .peers import PEERS, Certificates, Peer

pytestmark = pytest.mark.interop

URLS = ("grpc://127.0.0.1:0", "grpcs://127.0.0.1:0")
SERVICES = "tests.interop.service:served"


@pytest.fixture(scope="module")
def keys(certificates: Path) -> Certificates:
    return Certificates(*(str(certificates / name) for name in ("ca.pem", "server.pem", "server.key")))


@pytest.fixture(scope="module")
def server(keys: Certificates) -> Iterator[ServerProcess]:
    """Ours."""
    with ServerProcess(*URLS, services=SERVICES) as server:
        yield server


@pytest.fixture(scope="module")
def servers() -> Iterator[tuple[contextlib.ExitStack, dict[Column, int]]]:
    """Theirs: the ports of those that have been started."""
    with contextlib.ExitStack() as stack:
        yield stack, {}


@pytest.mark.parametrize("cell", cells(calls_us=True), ids=str)
def test_their_client_at_our_server(cell: Cell, peer: Peer, server: ServerProcess, keys: Certificates) -> None:
    port = int(server.urls[cell.column.encrypted].rpartition(":")[2])
    peer.try_case(cell.case, port, keys.authority if cell.column.encrypted else None)


@pytest.mark.parametrize("cell", cells(calls_us=False), ids=str)
def test_our_client_at_their_server(
    cell: Cell, peer: Peer, servers: tuple[contextlib.ExitStack, dict[Column, int]], keys: Certificates
) -> None:
    stack, ports = servers
    column = cell.column
    if column not in ports:
        ports[column] = stack.enter_context(peer.serving(keys if column.encrypted else None))
    CASES[cell.case](f"grpc{'s' if column.encrypted else ''}://127.0.0.1:{ports[column]}")


def test_each_case_of_a_peer_is_one_of_ours() -> None:
    assert {case for peer in PEERS.values() for case in peer.server_cases} == set(CASES)
