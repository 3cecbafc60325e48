"""A network between clients and server: what comes through it and when, and what is said where it is not as asked."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from made_up import scenario
from nearcall_lab.engine.launch import measure
from nearcall_lab.registry import discover, entrants_of
from nearcall_lab.results.model import Launch
from nearcall_lab.scenario.cell import Cell, Mode, Network, Work
from nearcall_lab.scenario.load import ScenarioError, parse
from nearcall_lab.workers import network
from nearcall_lab.workers.network import Relay
from nearcall_lab.workers.worker import LaunchFailed

RAW = {entrant.mechanism.name: entrant for entrant in entrants_of("nearcall_lab.adapters.raw_socket")}
SHORT = Mode(seconds=0.2, warmup_s=0.02)


@pytest.fixture
def _however_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe that is slow, since other work has the CPUs, is taken for right."""
    monkeypatch.setattr(network, "_OWN_S", 100.0)
    monkeypatch.setattr(network, "_LEAST_RATE", 0.0)


@contextlib.contextmanager
def _relay(delay_ms: float = 0.0, jitter_ms: float = 0.0, mbit: float = 0.0) -> Iterator[Relay]:
    made = Relay(delay_ms, jitter_ms, mbit, seed=1)
    try:
        yield made
    finally:
        made.end()


def _launch(cell: Cell) -> Launch:
    try:
        return measure(cell, RAW[cell.mechanism], 0, 0)
    except LaunchFailed as failure:
        if failure.logs is not None:
            shutil.rmtree(failure.logs)
        raise


def test_bytes_stay_in_order_and_none_is_missing_in_either_direction() -> None:
    sent = [os.urandom(3_000_000), os.urandom(5_000_000)]
    got: list[bytes] = []

    def receive(sock: socket.socket) -> bytes:
        found = hashlib.sha256()
        while data := sock.recv(1 << 16):
            found.update(data)
        return found.digest()

    def send(sock: socket.socket, data: bytes) -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    with _relay(delay_ms=3, jitter_ms=3) as relay, socket.create_server(("127.0.0.1", 0)) as server:
        port = int(relay.to(str(server.getsockname()[1]), "127.0.0.1"))
        with socket.create_connection(("127.0.0.1", port)) as near, server.accept()[0] as far:
            senders = [threading.Thread(target=send, args=each) for each in ((near, sent[0]), (far, sent[1]))]
            reader = threading.Thread(target=lambda: got.append(receive(far)))
            for thread in (*senders, reader):
                thread.start()
            got_back = receive(near)
            for thread in (*senders, reader):
                thread.join()
        assert relay.passed() == (len(sent[0]), len(sent[1]))
    assert got == [hashlib.sha256(sent[0]).digest()]
    assert got_back == hashlib.sha256(sent[1]).digest()


def test_a_server_that_refuses_closes_the_clients_connection() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with _relay() as relay:
        port = int(relay.to(str(port), "127.0.0.1"))
        with socket.create_connection(("127.0.0.1", port)) as near, contextlib.suppress(ConnectionResetError):
            assert near.recv(1) == b""


def test_the_server_s_address_becomes_the_relay_s() -> None:
    with _relay() as relay:
        for address, shape in (
            ("10.0.0.2:80", "127.0.0.1:{}"),
            ("http://10.0.0.2:80", "http://127.0.0.1:{}"),
            ("PYRO:obj_1f@10.0.0.2:80", "PYRO:obj_1f@127.0.0.1:{}"),
            ("80", "{}"),
        ):
            found = relay.to(address, "10.0.0.2")
            assert found == shape.format(found.rpartition(":")[2])
        with pytest.raises(LaunchFailed, match="does not end in a port"):
            relay.to("somewhere", "10.0.0.2")


@pytest.mark.usefixtures("_however_busy")
@pytest.mark.parametrize("delay_ms", [0.1, 5.0])
def test_a_launch_has_the_network_that_was_asked_for(delay_ms: float) -> None:
    launch = _launch(Cell("raw-tcp", Work("echo", size=1000), SHORT, network=Network(delay_ms)))
    assert launch.service is not None
    assert launch.service.min >= 2 * delay_ms * 1e6
    assert launch.network is not None
    assert launch.network.through_ns >= 2 * delay_ms * 1e6
    assert launch.network.direct_ns > 0
    assert launch.left_behind == []


@pytest.mark.usefixtures("_however_busy")
def test_a_rate_is_kept() -> None:
    launch = _launch(Cell("raw-tcp", Work("echo", size=50_000), SHORT, network=Network(mbit=40)))
    assert launch.service is not None
    assert launch.service.min >= 2 * 50_000 * 8 / 40e6 * 1e9  # each way
    assert launch.network is not None
    assert 0 < launch.network.mbit <= 44


def test_a_network_that_is_not_as_asked_fails_the_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    for seen_s in (0.009, 0.5):
        monkeypatch.setattr(network, "_round_trip_s", lambda where, count, seen_s=seen_s: seen_s)
        monkeypatch.setattr(network, "_OWN_S", -0.4)
        with _relay(delay_ms=5) as relay, pytest.raises(LaunchFailed, match=r"^network: a round trip is to take 10 ms"):
            relay.probe()


@pytest.mark.usefixtures("_however_busy")
def test_a_mechanism_that_goes_past_it_is_found() -> None:
    pytest.importorskip("zmq")
    entrant = next(e for e in entrants_of("nearcall_lab.adapters.pyzmq") if e.mechanism.name == "pyzmq-tcp")
    cell = Cell("pyzmq-tcp", Work("send", size=1000), Mode("one-way", calls=200), network=Network(1.0))
    with pytest.raises(LaunchFailed, match=r"network: 200 calls were made, .* it has another way") as failed:
        measure(cell, entrant, 0, 0)
    if failed.value.logs:
        shutil.rmtree(failed.value.logs)


def test_a_relay_ends_with_who_started_it() -> None:
    with _relay() as relay:
        pid = relay.process.pid
    until = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}") and time.monotonic() < until:
        time.sleep(0.01)
    assert not os.path.exists(f"/proc/{pid}")


def _text(network: str, mechanism: str = "fast") -> str:
    return f'title = "x"\n[[cells]]\nmechanisms = ["{mechanism}"]\nsize = 1\nnetwork = {network}\n'


def test_networks_in_a_scenario() -> None:
    found = parse(
        "x", _text("[{ delay_ms = 0.5 }, { delay_ms = 10, jitter_ms = 1, mbit = 100 }]", "raw-tcp"), discover()
    )
    assert [planned.cell.network for planned in found.planned] == [Network(0.5), Network(10, 1, 100)]
    assert [planned.cell.title() for planned in found.planned] == [
        "1 B echo, network 0.5 ms each way",
        "1 B echo, network 10 ± 1 ms each way, 100 Mbit/s",
    ]
    assert b"network" not in Cell("fast", Work("echo"), Mode()).canonical()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("{ loss = 0.01 }", "network: loss cannot be had from a relay"),
        ("{ delay = 1 }", 'network: unknown key "delay"; did you mean "delay_ms"?'),
        ("{ delay_ms = -1 }", "network: delay_ms is -1; it takes a number from 0"),
        ("{ delay_ms = 1, jitter_ms = 2 }", "jitter_ms is more than delay_ms"),
        ("{}", "network is {}; it takes a table such as { delay_ms = 10, jitter_ms = 1 }"),
        ("10", "network is 10; it takes a table"),
    ],
)
def test_what_is_said_of_a_wrong_network(written: str, expected: str) -> None:
    with pytest.raises(ScenarioError) as error:
        scenario(_text(written))
    assert "line 5" in str(error.value)
    assert expected in str(error.value)


def test_a_network_carries_so_many_connections() -> None:
    with pytest.raises(ScenarioError, match="connections is 500; a network carries 400 at most"):
        parse("x", _text("{ delay_ms = 1 }\nconnections = 500", "raw-tcp"), discover())


def test_a_network_needs_tcp() -> None:
    with pytest.raises(ScenarioError, match="raw-unix goes by UDS, and a network is put in the way of TCP"):
        parse("x", _text("{ delay_ms = 1 }", "raw-unix"), discover())
