"""gRPC's interoperability suite: the other implementations' clients at our server, and ours at theirs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import nearcall

from ..e2e.process import ServerProcess
from .cases import CASES, LARGE
from .cells import Cell, Column, cells
from .peers import CLIENT_COMPRESSED, PEERS, SERVER_COMPRESSED, Certificates, Peer
from .service import BoolValue, StreamingInputCallRequest, TestService, zeros

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


@pytest.mark.parametrize("case", [*CLIENT_COMPRESSED, *SERVER_COMPRESSED])
def test_ours_at_ours(case: str, server: ServerProcess) -> None:
    CASES[case](server.urls[0])


def test_our_server_refuses_what_is_not_compressed_and_should_be(server: ServerProcess) -> None:
    with nearcall.connect(server.urls[0], TestService) as test:
        for expected, compression in ((True, nearcall.compression(None)), (False, nearcall.compression("gzip"))):
            with compression, pytest.raises(nearcall.InvalidArgument):
                test.unary_call(replace(LARGE, expect_compressed=BoolValue(expected)))
            with compression, pytest.raises(nearcall.InvalidArgument):
                test.streaming_input_call(iter([StreamingInputCallRequest(zeros(10_000), BoolValue(expected))]))


def test_each_case_of_a_peer_is_one_of_ours() -> None:
    assert {case for peer in PEERS.values() for case in peer.server_cases} == set(CASES)
