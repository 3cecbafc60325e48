"""Codecs at nearcall's own URLs: a client asks for one that the server offers, and both write messages in it."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import nearcall
import nearcall.aio
from nearcall.codec import table
from nearcall.codec.of_values import OfValues
from nearcall.service.reading import read_description

from ..hostile import raw
from ..hostile.frames import CALL, ERROR, NAMED, REPLY, frame
from .conftest import OUTSIDE, TRANSPORTS


@dataclass
class Point:
    x: int
    y: float = 0.5
    name: str | None = None


@dataclass
class PointOfLater(Point):
    colour: str = ""


@nearcall.service
class Shapes:
    def move(self, point: Point, by: int = 1) -> Point:
        return Point(point.x + by, point.y, point.name)

    def nothing(self) -> None:
        pass

    def data(self, data: bytes, times: int) -> bytes:
        return data * times

    def count(self, to: int) -> Iterator[int]:
        yield from range(to)

    def total(self, numbers: Iterator[int], first: int = 0) -> int:
        return first + sum(numbers)

    async def scaled(self, numbers: AsyncIterator[float], by: float) -> AsyncIterator[float]:
        async for number in numbers:
            yield number * by

    def fail(self, text: str) -> None:
        raise nearcall.NotFound(text, details={"text": text})

    @nearcall.oneway
    def note(self, text: str) -> None:
        noted.append(text)
        arrived.set()


@nearcall.service
class Others:
    def last(self) -> str:
        return "last"


@nearcall.service(name="Shapes")
class OtherOrder:
    """What `Shapes` is to a client that declares the parameters in another order, and one that the server has not."""

    def move(self, by: int, point: PointOfLater) -> Point: ...
    def gone(self) -> None: ...


noted: list[str] = []
arrived = threading.Event()


class Reversed:
    """JSON from its end to its beginning: nobody takes it for something else."""

    name = "reversed"

    def encode(self, value: Any) -> bytes:
        return msgspec.json.encode(value)[::-1]

    def decode(self, data: bytes, type: Any) -> Any:
        return msgspec.json.decode(data[::-1], type=type)


@pytest.fixture(params=OUTSIDE)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def url(transport: str, key: str, runtime_dir: Path, certificates: Path) -> Iterator[str]:
    urls = TRANSPORTS[transport](f"c{key}", runtime_dir)
    with nearcall.Server(Shapes(), Others(), urls, codecs=["json", Reversed()]) as server:
        yield server.urls[0]


@pytest.fixture(params=["msgpack", "json", "reversed"])
def codec(request: pytest.FixtureRequest) -> Any:
    return Reversed() if request.param == "reversed" else request.param


def test_every_kind_of_call(url: str, codec: Any) -> None:
    with nearcall.Channel(url, codec=codec) as channel:
        shapes = channel.client(Shapes).service
        assert shapes.move(Point(1)) == Point(2)
        assert shapes.move(by=-3, point=Point(1, 2.5, "p")) == Point(-2, 2.5, "p")
        assert shapes.nothing() is None  # type: ignore[func-returns-value]
        assert list(shapes.count(5)) == [0, 1, 2, 3, 4]
        assert shapes.total(iter([1, 2, 3]), 10) == 16
        with pytest.raises(nearcall.NotFound, match="that") as caught:
            shapes.fail("that")
        assert caught.value.details == {"text": "that"}
        noted.clear()
        arrived.clear()
        shapes.note("here")
        assert arrived.wait(20)
        assert noted == ["here"]
        assert channel.client(Others).service.last() == "last"


def test_bytes(url: str) -> None:
    with nearcall.connect(url, Shapes, codec="json") as shapes:
        assert shapes.data(b"\xff\x00", 2) == b"\xff\x00\xff\x00"


def test_in_a_loop(url: str, codec: Any) -> None:
    async def numbers() -> AsyncIterator[float]:
        for number in (1.0, 2.0):
            yield number

    async def main() -> None:
        async with nearcall.aio.connect(url, Shapes, codec=codec) as shapes:
            assert await shapes.move(Point(1), by=2) == Point(3)  # type: ignore[misc]
            assert [number async for number in shapes.scaled(numbers(), 3.0)] == [3.0, 6.0]

    asyncio.run(main())


def test_clients_of_one_server_differ(url: str) -> None:
    with nearcall.connect(url, Shapes) as one, nearcall.connect(url, Shapes, codec="json") as two:
        assert one.move(Point(1)) == two.move(Point(1)) == Point(2)
        # Without a class, values are plain data, which the server describes in msgpack.
        with nearcall.connect(url) as dynamic:
            assert dynamic.Shapes.move({"x": 1, "y": 0.5, "name": None}) == {"x": 2, "y": 0.5, "name": None}


def test_names_count_and_not_the_order(url: str) -> None:
    for codec in ("json", Reversed()):
        with nearcall.connect(url, OtherOrder, codec=codec) as shapes:
            with pytest.raises(nearcall.Unimplemented, match="no method 'gone'"):
                shapes.gone()
            if codec != "json":
                assert shapes.move(1, PointOfLater(1)) == Point(2)  # this codec's decoder skips names
            else:
                with pytest.raises(nearcall.InvalidArgument, match="colour"):
                    shapes.move(1, PointOfLater(1))


def test_what_is_wrong_is_said(url: str) -> None:
    with nearcall.connect(url, Shapes, codec=Reversed()) as shapes:
        with pytest.raises(nearcall.InvalidArgument, match="argument 'by' must be int, got str"):
            shapes.move(Point(1), "x")  # type: ignore[arg-type]
        with pytest.raises(nearcall.InvalidArgument, match=r"Shapes\.move\(\): the arguments cannot be decoded: .*int"):
            shapes.move(Point("x"))  # type: ignore[arg-type]
        with pytest.raises(nearcall.InvalidArgument, match=r"Shapes\.move\(\): the arguments cannot be sent"):
            shapes.move(Point(object()))  # type: ignore[arg-type]


class Broken(Reversed):
    """Both functions return what they should not."""

    def encode(self, value: Any) -> bytes:
        return "no bytes"  # type: ignore[return-value]


class Untyped(Reversed):
    def decode(self, data: bytes, type: Any) -> Any:
        return msgspec.json.decode(data[::-1])


def test_a_codec_that_breaks_its_word_fails_its_calls(url: str) -> None:
    wrong = "the codec reversed has made str of it, and not bytes"
    with (
        nearcall.connect(url, Shapes, codec=Broken()) as shapes,
        pytest.raises(nearcall.InvalidArgument, match=wrong),
    ):
        shapes.move(Point(1))
    wrong = "what the codec reversed has made of it must be Point, got dict"
    with nearcall.connect(url, Shapes, codec=Untyped()) as shapes, pytest.raises(nearcall.Internal, match=wrong):
        shapes.move(Point(1))


class CannotWrite(Reversed):
    def encode(self, value: Any) -> bytes:
        raise KeyError("there")


class CannotRead(Reversed):
    def decode(self, data: bytes, type: Any) -> Any:
        raise KeyError("here")


def test_what_a_codec_raises_is_named_and_is_the_cause(key: str, caplog: pytest.LogCaptureFixture) -> None:
    writes, reads = "the arguments cannot be sent: KeyError: 'there'", "the result cannot be decoded: KeyError: 'here'"
    place = f"inproc://{key}"
    with nearcall.Server(Shapes(), place, codecs=[Reversed()]):
        for codec, error, said in (
            (CannotWrite(), nearcall.InvalidArgument, writes),
            (CannotRead(), nearcall.Internal, reads),
        ):
            with nearcall.connect(place, Shapes, codec=codec) as shapes, pytest.raises(error, match=said) as caught:
                shapes.move(Point(1))
            assert isinstance(caught.value.__cause__, KeyError)
    with (
        nearcall.Server(Shapes(), place, codecs=[CannotRead()]),
        nearcall.connect(place, Shapes, codec=Reversed()) as shapes,
        pytest.raises(nearcall.InvalidArgument, match="the arguments cannot be decoded: KeyError: 'here'"),
    ):
        shapes.move(Point(1))
    with (
        nearcall.Server(Shapes(), place, codecs=[CannotWrite()]),
        nearcall.connect(place, Shapes, codec=Reversed()) as shapes,
        pytest.raises(nearcall.Internal, match="the result cannot be sent: KeyError: 'there'"),
    ):
        shapes.move(Point(1))
    # The server's log leads to the line of the codec.
    assert 'raise KeyError("there")' in caplog.text


def test_a_byte_may_be_a_value(transport: str, key: str, runtime_dir: Path, certificates: Path) -> None:
    place = TRANSPORTS[transport](f"v{key}", runtime_dir)
    with (
        nearcall.Server(Shapes(), place, codecs=[Reversed()], max_values=1000) as server,
        nearcall.connect(server.urls[0], Shapes, codec=Reversed()) as shapes,
    ):
        assert shapes.move(Point(1, name="x" * 900)).x == 2
        with pytest.raises(nearcall.ResourceExhausted, match=r"1\d{3} bytes, each of which may be a value .* 1000 are"):
            shapes.move(Point(1, name="x" * 1000))


def test_a_codec_that_is_not_offered(url: str, transport: str, key: str, runtime_dir: Path) -> None:
    class Unknown(Reversed):
        name = "unknown"

    with pytest.raises(
        nearcall.FailedPrecondition, match="does not offer the codec 'unknown'; it has msgpack, json, reversed"
    ):
        nearcall.connect(url, Shapes, codec=Unknown())
    # A server that offers none describes itself like one that does not know of codecs.
    with (
        nearcall.Server(Shapes(), TRANSPORTS[transport](f"w{key}", runtime_dir)) as server,
        pytest.raises(nearcall.FailedPrecondition, match="does not offer the codec 'json'; it has msgpack:"),
    ):
        nearcall.connect(server.urls[0], Shapes, codec="json")


def test_a_later_server_may_number_otherwise(transport: str, key: str, runtime_dir: Path, certificates: Path) -> None:
    """The client looks anew where the methods of its codec begin, and calls none if the server offers it no more."""
    place = TRANSPORTS[transport](f"l{key}", runtime_dir)
    with nearcall.Server(Others(), Shapes(), place, codecs=["json"]) as server:
        client = nearcall.connect(server.urls[0], Shapes, codec="json", wait_for_ready=True)
        assert client.service.move(Point(1)) == Point(2)
    with client as shapes:
        with nearcall.Server(Shapes(), server.urls[0], codecs=[Reversed(), "json"]):
            assert shapes.move(Point(1)) == Point(2)
        wrong = "does not offer the codec 'json'"
        with nearcall.Server(Shapes(), server.urls[0]), pytest.raises(nearcall.FailedPrecondition, match=wrong):
            shapes.move(Point(1))


def test_a_codec_is_added_by_a_line(transport: str, key: str, runtime_dir: Path, monkeypatch: Any) -> None:
    """As CONTRIBUTING says: a file, here the class above, and a line in the table. Both sides then know its name."""
    monkeypatch.setattr(table, "CODECS", {**table.CODECS, "reversed": lambda: OfValues(Reversed())})
    place = TRANSPORTS[transport](f"a{key}", runtime_dir)
    with nearcall.Server(Shapes(), Others(), place, codecs=cast(Any, ["reversed"])) as server:
        test_every_kind_of_call(server.urls[0], "reversed")
        test_in_a_loop(server.urls[0], "reversed")


@nearcall.service
class Room:
    def join(self, guest: Others) -> None: ...


@nearcall.service(name="Shapes")
class WithGuest:
    """Its only method takes an object, other than that of `Shapes`."""

    def total(self, numbers: Iterator[int], guest: Others | None = None) -> int: ...


def test_who_needs_msgpack_is_told(url: str) -> None:
    with nearcall.Channel(url, codec=Reversed()) as channel:
        with pytest.raises(nearcall.FailedPrecondition, match=r"in the codec 'reversed': .*'guest' holds objects"):
            channel.client(WithGuest)
        dynamic = channel.client()
        with pytest.raises(nearcall.FailedPrecondition, match="known from a description, which says too little"):
            dynamic.service.Shapes.move({"x": 1})


@pytest.mark.parametrize("first", [-1, 1 << 16, "1", 1.5, None])
def test_numbers_that_none_can_have(first: Any) -> None:
    described: dict[str, Any] = {"nearcall": 1, "services": [], "codecs": {"json": first}}
    with pytest.raises(nearcall.FailedPrecondition, match="malformed"):
        read_description(described)
    with pytest.raises(nearcall.FailedPrecondition, match=r"malformed.*\\x1b"):
        read_description({**described, "codecs": {"\x1b": 3}})


@pytest.mark.parametrize("codec", ["json", Reversed()], ids=["json", "own"])
def test_objects_are_passed_in_msgpack_only(codec: Any, key: str) -> None:
    with pytest.raises(TypeError, match=r"codecs: in (json|reversed), Room\.join\(\).*'guest'.*send data"):
        nearcall.Server(Room(), f"inproc://{key}", codecs=[codec])


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ("json", TypeError, "codecs takes a list"),
        (["xml"], nearcall.InvalidArgument, 'codecs must be "msgpack" or "json", or a codec of yours'),
        ([3], TypeError, "encode"),
        ([Reversed], TypeError, r"codecs takes an object, not a class: write Reversed\(\)"),
        ([type("Nameless", (Reversed,), {"name": ""})()], nearcall.InvalidArgument, "a name of their own"),
        ([type("Taken", (Reversed,), {"name": "json"})()], nearcall.InvalidArgument, "a name of their own"),
        ([type("Long", (Reversed,), {"name": "x" * 101})()], nearcall.InvalidArgument, "1 to 100 characters.* has 101"),
        (["json", "json"], nearcall.InvalidArgument, "two have the name 'json'"),
    ],
)
def test_mistakes(given: Any, error: type[Exception], said: str, key: str) -> None:
    with pytest.raises(error, match=said) as caught:
        nearcall.Server(Shapes(), f"inproc://{key}", codecs=given)
    assert caught.value.option == "codecs"  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="codecs is for nearcall's own URLs"):
        nearcall.Server(Shapes(), "grpc://127.0.0.1:0", codecs=["json"])
    with pytest.raises(ValueError, match="codec is for"):
        nearcall.connect("grpc://127.0.0.1:1", Shapes, codec="json")


def test_a_peer_that_knows_json_alone(url: str) -> None:
    """Its numbers begin where the description says."""
    with raw.connect(url) as peer:
        first = peer.codecs["json"]
        peer.send(frame(CALL, json.dumps({"point": {"x": 1}, "by": 2}).encode(), method=first))
        reply = peer.receive()
        assert reply.kind == REPLY
        assert json.loads(reply.rest) == {"x": "3", "y": 0.5}
        wrongs = (
            b'{"point": {"x": 1, "z": 1}}',
            b'{"pont": {"x": 1}}',
            b"{",
            b"",
            b"\xff",
            b'{"point": {"x": "\\u0000"}}',
        )
        for call, wrong in enumerate(wrongs, 2):
            peer.send(frame(CALL, wrong, method=first, call=call))
            assert peer.receive().kind == ERROR
        # The flag for arguments by name is msgpack's.
        peer.send(frame(CALL, b'{"point": {"x": 1}}', method=first, call=20, flags=NAMED, parts=[]))
        failed = peer.receive()
        assert failed.kind == ERROR
        assert b"arguments do not come by name in this codec" in failed.rest
