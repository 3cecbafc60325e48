"""gRPC's health service, asked by grpcio's own client and by ours."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

import nearcall
from nearcall.health import Health, HealthCheckRequest, HealthListRequest, ServingStatus
from nearcall.introspection import Introspection, Statistics

from .h2_raw import RawClient, data, headers, message, request, settings

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
SERVING, NOT_SERVING = health_pb2.HealthCheckResponse.SERVING, health_pb2.HealthCheckResponse.NOT_SERVING
UNKNOWN = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN


@nearcall.service(name="shop.v1.Shop")
class Shop:
    def __init__(self) -> None:
        self.gate = threading.Event()

    def hold(self) -> int:
        self.gate.wait(PATIENCE)
        return 1


class Probe:
    """A client of grpcio's."""

    def __init__(self, server: nearcall.Server, **options: Any) -> None:
        self.channel = grpc.insecure_channel(server.urls[0].removeprefix("grpc://"), options=list(options.items()))
        self._stub = health_pb2_grpc.HealthStub(self.channel)

    def check(self, service: str = "") -> int:
        status: int = self._stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE).status
        return status

    def watch(self, service: str = "") -> Any:
        return self._stub.Watch(health_pb2.HealthCheckRequest(service=service), timeout=PATIENCE)

    def list(self) -> dict[str, int]:
        statuses = self._stub.List(health_pb2.HealthListRequest(), timeout=PATIENCE).statuses
        return {name: status.status for name, status in statuses.items()}


@pytest.fixture
def shop() -> Iterator[Shop]:
    shop = Shop()
    yield shop
    shop.gate.set()


@pytest.fixture
def server(shop: Shop, tmp_path: Path) -> Iterator[nearcall.Server]:
    with nearcall.Server(shop, "grpc://127.0.0.1:0", f"unix://{tmp_path}/s", max_concurrency=2) as server:
        yield server
        shop.gate.set()


@pytest.fixture
def probe(server: nearcall.Server) -> Iterator[Probe]:
    probe = Probe(server)
    yield probe
    probe.channel.close()


def refused(call: Any) -> str:
    with pytest.raises(grpc.RpcError) as caught:
        call()
    error: Any = caught.value
    code: str = error.code().name
    return code


def test_a_server_serves_and_so_do_its_services(probe: Probe) -> None:
    assert probe.check() == SERVING
    assert probe.check("shop.v1.Shop") == SERVING
    assert refused(lambda: probe.check("shop.v1.Other")) == "NOT_FOUND"
    assert probe.list() == {"": SERVING, "shop.v1.Shop": SERVING}


def test_what_is_set_is_said(server: nearcall.Server, probe: Probe) -> None:
    server.health.set("shop.v1.Shop", False)
    server.health.set("ready", False)
    assert probe.list() == {"": SERVING, "shop.v1.Shop": NOT_SERVING, "ready": NOT_SERVING}
    assert probe.check("shop.v1.Shop") == NOT_SERVING
    server.health.set("shop.v1.Shop", True)
    server.health.set("ready", True)
    server.health.set("", False)
    assert [probe.check(name) for name in ("", "shop.v1.Shop", "ready")] == [NOT_SERVING, SERVING, SERVING]


def test_mistakes_are_named(server: nearcall.Server) -> None:
    wrong: Any = server.health.set
    for arguments in (("shop", 1), (b"shop", True), (None, False)):
        with pytest.raises(nearcall.InvalidArgument, match="the name of a service and a bool"):
            wrong(*arguments)


def test_it_can_be_set_before_the_server_starts(shop: Shop) -> None:
    server = nearcall.Server(shop, "grpc://127.0.0.1:0")
    server.health.set("", False)
    with server:
        probe = Probe(server)
        assert probe.check() == NOT_SERVING
        probe.channel.close()
    server.health.set("", True)  # of no use any more, and no mistake


def test_who_watches_is_told_of_each_change(server: nearcall.Server, probe: Probe) -> None:
    whole, shop, later = probe.watch(), probe.watch("shop.v1.Shop"), probe.watch("later")
    assert [next(watch).status for watch in (whole, shop, later)] == [SERVING, SERVING, UNKNOWN]
    server.health.set("shop.v1.Shop", False)
    server.health.set("later", True)
    assert next(shop).status == NOT_SERVING
    assert next(later).status == SERVING
    server.health.set("shop.v1.Shop", False)
    server.health.set("shop.v1.Shop", True)
    assert next(shop).status == SERVING, "the same status is not told twice"
    server.health.set("", False)
    assert next(whole).status == NOT_SERVING
    for watch in (whole, shop, later):
        watch.cancel()


def test_probes_are_answered_while_all_handlers_are_busy(server: nearcall.Server, shop: Shop, probe: Probe) -> None:
    hold = probe.channel.unary_unary("/shop.v1.Shop/Hold")
    held = [hold.future(b"", timeout=PATIENCE) for _ in range(6)]
    watch = probe.watch()
    assert next(watch).status == SERVING
    assert [probe.check() for _ in range(100)] == [SERVING] * 100
    server.health.set("", False)
    assert next(watch).status == NOT_SERVING
    assert not any(call.done() for call in held)
    shop.gate.set()
    assert [call.result() for call in held] == [b"\x08\x01"] * 6


def test_a_server_that_stops_says_so_first(server: nearcall.Server, shop: Shop, probe: Probe) -> None:
    held = probe.channel.unary_unary("/shop.v1.Shop/Hold").future(b"", timeout=PATIENCE)
    watch = probe.watch()
    assert next(watch).status == SERVING
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(server.stop, PATIENCE)
        assert next(watch).status == NOT_SERVING
        assert refused(lambda: next(watch)) == "UNAVAILABLE", "the stream does not hold up the server's end"
        assert not stopped.done()
        shop.gate.set()
        assert held.result() == b"\x08\x01"
        assert stopped.result() is True


def test_watches_that_are_left_are_forgotten(server: nearcall.Server, probe: Probe) -> None:
    watches = [probe.watch() for _ in range(50)]
    assert [next(watch).status for watch in watches] == [SERVING] * 50
    assert statistics(server).in_flight == 50
    for watch in watches[:25]:
        watch.cancel()
    until(lambda: statistics(server).in_flight == 25)
    probe.channel.close()
    until(lambda: statistics(server).in_flight == 0)
    server.health.set("", False)


def test_a_watcher_that_does_not_read_gets_the_last_status(server: nearcall.Server) -> None:
    host, port = server.urls[0].removeprefix("grpc://").rsplit(":", 1)
    client = RawClient((host, int(port)), window=0)
    ask = headers(request(b"/grpc.health.v1.Health/Watch"), 1)
    client.send(ask, data(message(b""), 1, ends=True))
    other = Probe(server)
    assert other.check() == SERVING
    for serving in [False, True] * 100_000 + [False]:
        server.health.set("", serving)
    assert statistics(server).memory < 1 << 20, "what waits for it is bounded"
    client.send(settings(window=1 << 20))
    while not client.bytes_of.get(1, 0):
        assert client.receive()
    other.channel.close()
    client.close()


def statistics(server: nearcall.Server) -> Statistics:
    with nearcall.connect(server.urls[1], Introspection) as watcher:
        return watcher.read()


@pytest.mark.parametrize("body", [b"\x0a\x05ab", b"\x0a\x01\xff", b"\x0f", b"\x0a\xff\xff\xff\xff\x0f"])
@pytest.mark.parametrize("method", ["Check", "Watch"])
def test_requests_that_are_none_are_refused(probe: Probe, method: str, body: bytes) -> None:
    call: Any = getattr(probe.channel, "unary_unary" if method == "Check" else "unary_stream")
    asked = call(f"/grpc.health.v1.Health/{method}")
    assert refused(lambda: asked(body) if method == "Check" else list(asked(body))) == "INVALID_ARGUMENT"
    assert probe.check() == SERVING


def test_names_of_any_length_are_only_unknown(probe: Probe) -> None:
    assert refused(lambda: probe.check("x" * 1_000_000)) == "NOT_FOUND"
    watch = probe.watch("x" * 1_000_000)
    assert next(watch).status == UNKNOWN
    watch.cancel()


def test_interceptors_are_not_around_it() -> None:
    def refuse(call: Any, proceed: Any) -> Any:
        raise nearcall.Unauthenticated("no token")

    with nearcall.Server(Shop(), "grpc://127.0.0.1:0", interceptors=[refuse]) as server:
        probe = Probe(server)
        assert probe.check() == SERVING
        assert refused(lambda: probe.channel.unary_unary("/shop.v1.Shop/Hold")(b"")) == "UNAUTHENTICATED"
        probe.channel.close()


def test_our_client_asks_any_server(server: nearcall.Server) -> None:
    with nearcall.connect(server.urls[0], Health) as health:
        assert health.check(HealthCheckRequest()).status is ServingStatus.SERVING
        with pytest.raises(nearcall.NotFound):
            health.check(HealthCheckRequest("other"))
        assert health.list(HealthListRequest()).statuses["shop.v1.Shop"].status is ServingStatus.SERVING
        watch = health.watch(HealthCheckRequest("other"))
        assert next(iter(watch)).status is ServingStatus.SERVICE_UNKNOWN


def test_who_serves_it_himself_is_left_alone() -> None:
    class Mine(Health):
        def check(self, request: HealthCheckRequest) -> Any:
            raise nearcall.Aborted("mine")

    with nearcall.Server(Mine(), "grpc://127.0.0.1:0") as server:
        probe = Probe(server)
        assert refused(probe.check) == "ABORTED"
        probe.channel.close()


def until(check: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.01)
