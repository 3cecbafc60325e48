"""A typed service over HTTP: as JSON and as Protobuf, for people and for programs."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any

import pytest

import nearcall

from .connect_peer import PROTOCOLS, Connection, Peer, Result
from .process import ServerProcess

Whole = Annotated[int, nearcall.field(type="int32")]


@dataclass
class Item:
    name: str
    unit_price: float
    tags: list[str]


@nearcall.service(name="shop.v1.Shop")
class Shop:
    def price(self, item: Item, count: Whole = 1) -> float:
        if not item.name:
            raise nearcall.NotFound("there is no nothing", details={"asked": item.name})
        return item.unit_price * count

    @nearcall.no_side_effects
    def find(self, name: str) -> Item | None:
        return Item(name, 2.5, ["new"]) if name == "pen" else None

    def countdown(self, n: Whole) -> Iterator[Whole]:
        yield from range(n, 0, -1)

    def total(self, xs: Iterator[Whole]) -> Whole:
        return sum(xs)

    def scale(self, xs: Iterator[float], by: float) -> Iterator[float]:
        for x in xs:
            yield x * by

    def ping(self) -> None: ...

    @nearcall.oneway
    def note(self, line: str) -> None: ...


@nearcall.service(name="shop.v1.Ledger")
class Ledger:
    def told(self, number: int = 0, anything: Any = None) -> str:
        return repr((number, anything))


def shop() -> list[object]:
    return [Shop(), Ledger()]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("http://127.0.0.1:0", services="tests.e2e.test_http:shop") as server:
        yield server


@pytest.fixture
def ask(server: ServerProcess) -> Iterator[Any]:
    """What a person gets who posts text to a path, by any content type, or none."""
    connection = Connection(server.url)

    def ask(path: str, text: str, **headers: str) -> tuple[int, Any]:
        fields = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", path, text.encode(), fields)
        response = connection.getresponse()
        body = response.read().decode()
        return response.status, json.loads(body) if response.getheader("content-type") == "application/json" else body

    yield ask
    connection.close()


@pytest.fixture
def post(ask: Any) -> Any:
    """The same for a method."""
    return lambda method, text, **headers: ask(f"/shop.v1.Shop/{method}", text, **headers)


@pytest.mark.parametrize("kind", ["application/json", "application/x-www-form-urlencoded", ""])
def test_json_that_is_posted(post: Any, kind: str) -> None:
    headers = {"content_type": kind} if kind else {}
    item = {"name": "pen", "unitPrice": 2.5, "tags": ["a"]}
    assert post("Price", json.dumps({"item": item, "count": 2}), **headers) == (200, {"value": 5.0})
    by_python_names = {"item": {"name": "pen", "unit_price": 2.5, "tags": []}}
    assert post("Price", json.dumps(by_python_names), **headers) == (200, {"value": 2.5})
    assert post("Ping", "{}", **headers) == (200, {})
    assert post("Ping", "", **headers) == (200, {})
    assert post("Note", '{"line": "x"}', **headers) == (200, {})


def test_what_people_get_wrong_is_said_to_them(post: Any) -> None:
    for text in ("", "{", "[]", '{"nme": "pen"}', '{"name": 5}', '{"name": "pen", "x": 1}', '{"name": "pen"}x'):
        status, error = post("Find", text, content_type="application/json")
        assert (status, error["code"]) == (400, "invalid_argument"), text
        assert error["message"], text
    status, error = post("Price", '{"item": {"name": "", "unitPrice": 1, "tags": []}}', content_type="application/json")
    assert (status, error["code"], error["message"]) == (404, "not_found", "there is no nothing")
    assert error["details"][0]["type"] == "nearcall.Details"
    status, error = post("price", "{}", content_type="application/json")
    assert (status, error["message"].partition(": ")[2]) == (404, "did you mean /shop.v1.Shop/Price?")
    status, error = post("Buy", "{}", content_type="application/json")
    assert (status, error["code"]) == (404, "unimplemented")


@pytest.mark.parametrize(
    "path",
    [
        "/shop.v1.Shop/PRICE",
        "/shop.v1.shop/price",
        "/shop.v1.Shop/Prise",
        "/shop.v1.Shop/prcie",
        "/shop.v1.Shop.Price",
        "/Shop/Price",
        "/shop/price",
        "/Shop.price",
        "/api/shop.v1.Shop/Price",
        "/price",
    ],
)
def test_a_path_that_is_nearly_that_of_a_method(ask: Any, path: str) -> None:
    status, error = ask(path, "{}", content_type="application/json")
    assert (status, error["message"]) == (404, f"the server has no method {path}: did you mean /shop.v1.Shop/Price?")


def test_programs_leave_zeros_out_and_may_know_more(post: Any) -> None:
    of_connect = {"content_type": "application/json", "connect_protocol_version": "1"}
    assert post("Find", "{}", **of_connect) == (200, {})
    assert post("Find", '{"name": "pen", "added": true}', **of_connect)[0] == 200


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"number": 9007199254740993.0, "anything": 9007199254740993}', "(9007199254740993, 9007199254740993)"),
        ('{"number": "-1.5e1", "anything": 1e2}', "(-15, 100)"),
        ('{"number": 1.00000000000000000001}', "number"),
        ('{"number": 1e-400}', "number"),
        ('{"number": 1e999999999}', "number"),
        ('{"anything": 18446744073709551616}', "anything"),
    ],
)
def test_an_int_is_what_was_written_or_is_refused(ask: Any, text: str, told: str) -> None:
    status, reply = ask("/shop.v1.Ledger/Told", text, content_type="application/json")
    if told.startswith("("):
        assert (status, reply) == (200, {"value": told})
    else:
        assert (status, reply["code"]) == (400, "invalid_argument")
        assert told in reply["message"]


def as_json(result: Result) -> list[Any]:
    assert result.code == "ok", result
    return [json.loads(message) for message in result.messages]


@pytest.mark.parametrize("protocol", PROTOCOLS[1:])
def test_streams_of_json(server: ServerProcess, protocol: str) -> None:
    with Peer(server.url, protocol, codec="json") as peer:
        assert as_json(peer.call("/shop.v1.Shop/Countdown", b'{"n":3}')) == [{"value": n} for n in (3, 2, 1)]
        numbers = (f'{{"xs":{x}}}'.encode() for x in range(1, 101))
        assert as_json(peer.call("/shop.v1.Shop/Total", numbers)) == [{"value": 5050}]
        mixed = (b'{"arguments":{"by":3}}', b'{"xs":1}', b'{"xs":2.5}')
        assert as_json(peer.call("/shop.v1.Shop/Scale", mixed)) == [{"value": 3.0}, {"value": 7.5}]
        assert peer.call("/shop.v1.Shop/Scale", []).code == "invalid_argument"
        assert peer.call("/shop.v1.Shop/Countdown", b'{"n":"x"}').code == "invalid_argument"


def test_protobuf_that_is_posted(server: ServerProcess) -> None:
    with Peer(server.url, "connect") as peer:
        item = b"\x0a\x03pen" + b"\x11" + struct.pack("<d", 2.5)
        request = b"\x0a" + bytes([len(item)]) + item + b"\x10\x02"
        assert peer.call("/shop.v1.Shop/Price", request).only == b"\x09" + struct.pack("<d", 5.0)
        assert peer.call("/shop.v1.Shop/Ping", b"").only == b""
        assert peer.call("/shop.v1.Shop/Price", b"\xff").code == "invalid_argument"


def test_our_own_clients_at_the_same_port(server: ServerProcess) -> None:
    with nearcall.connect(server.url.replace("http://", "grpc://"), Shop) as shop:
        assert shop.price(Item("pen", 2.5, []), 2) == 5.0
        assert list(shop.countdown(3)) == [3, 2, 1]


def test_a_class_that_cannot_cross_is_refused_in_words() -> None:
    @nearcall.service(name="Watched")
    class Watched:
        def watch(self, shop: Shop) -> None: ...

    with pytest.raises(TypeError, match=r"Watched.watch\(\) cannot be served"):
        nearcall.Server(Watched(), "http://127.0.0.1:0")


def test_what_changes_nothing_is_in_the_proto(capsys: pytest.CaptureFixture[str]) -> None:
    from nearcall.cli import main

    assert main(["proto", "tests.e2e.test_http:Shop"]) in (0, None)
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if "rpc Find(" in line]
    assert lines == [
        "rpc Find(ShopFindRequest) returns (ShopFindResponse) { option idempotency_level = NO_SIDE_EFFECTS; }"
    ]
