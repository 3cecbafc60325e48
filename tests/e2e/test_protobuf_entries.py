"""Calls whose values are Protobuf or its JSON, over transports that know of neither: a codec is the method's own."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import _core
from nearcall.codec.protobuf.json import Json
from nearcall.codec.protobuf.service import Protobuf
from nearcall.codec.protocol import Codec
from nearcall.server import offered
from nearcall.server.entries import PathEntry
from nearcall.service.making import in_codec
from nearcall.service.service import plan_of


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.5
    names: list[str] = dataclasses.field(default_factory=list)


class Full(Exception):
    pass


@nearcall.service(name="test.v1.Shapes", errors=[Full])
class Shapes:
    def moved(self, point: Point, by: float = 1.0) -> Point:
        return Point(point.x + by, point.y, [*point.names, "moved"])

    def same(self, point: Point) -> Point:
        return point

    def data(self, data: bytes, view: memoryview) -> bytes:
        return data + bytes(view)

    def nothing(self) -> None: ...

    def zero(self) -> int:
        return 0

    def wrong(self) -> int:
        return "text"  # type: ignore[return-value]

    def fails(self) -> int:
        raise Full("no room")

    def count(self, to: int) -> Iterator[Point]:
        for x in range(to):
            yield Point(x)

    def total(self, points: Iterator[Point]) -> float:
        return sum(point.x for point in points)

    def scaled(self, xs: Iterator[float], by: float, plus: float = 0.0) -> Iterator[float]:
        for x in xs:
            yield x * by + plus

    async def later(self, xs: AsyncIterator[float], by: float) -> AsyncIterator[float]:
        async for x in xs:
            yield x * by


@pytest.mark.parametrize("codec", [Protobuf(), Json(), Json(strict=True)], ids=lambda codec: codec.name)
@pytest.mark.parametrize("scheme", ["shm", "unix", "tcp"])
def test_every_kind_of_call_works_in_another_codec(
    scheme: str, codec: Codec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = {"shm": f"shm://proto-{os.getpid()}", "unix": f"unix://{tmp_path}/s", "tcp": "tcp://127.0.0.1:0"}
    paths: dict[str, PathEntry] = {}
    real = _core.Server

    def make(*args: Any, **options: Any) -> _core.Server:
        paths.update(options.pop("paths")["proto"])  # for transports that call by path
        return real(*args, **options)

    monkeypatch.setattr(offered, "codecs_for", lambda _: {"proto": codec})
    monkeypatch.setattr(_core, "Server", make)
    with nearcall.Server(Shapes(), urls[scheme]) as server:
        channel = nearcall.Channel(server.urls[0])
        client = channel.client(Shapes)
        agreement: Any = client._agreement
        for plan in in_codec(plan_of(Shapes), codec).methods:
            entry, streams_in, first_is_arguments, streams_out, is_safe = paths[plan.path or ""]
            assert streams_in == (plan.name in ("total", "scaled", "later"))
            assert streams_out == (plan.name in ("count", "scaled", "later"))
            assert not is_safe
            assert first_is_arguments == (plan.name in ("scaled", "later"))
            method = _core.Method(plan, max_values=1000, number=entry)
            agreement._methods["test.v1.Shapes"][plan.name][1].succeed(method)
        service = client.service
        _calls(service)
        _mistakes(service)
        channel.close()


def _calls(service: Shapes) -> None:
    assert service.moved(Point(1.0, 2.0, ["a"])) == Point(2.0, 2.0, ["a", "moved"])
    assert service.moved(by=3.0, point=Point(1.0)) == Point(4.0, 0.5, ["moved"])
    assert service.same(Point(1)) == Point(1.0)
    assert service.data(b"a" * 100_000, memoryview(b"b")) == b"a" * 100_000 + b"b"
    service.nothing()
    assert service.zero() == 0
    assert [point.x for point in service.count(3)] == [0, 1, 2]
    assert service.total(iter([Point(1), Point(2)])) == 3
    assert list(service.scaled(iter([1.0, 2.0]), 2.0)) == [2.0, 4.0]
    assert list(service.scaled(iter([1.0, 2.0]), by=2.0, plus=1.0)) == [3.0, 5.0]
    assert list(service.scaled(iter([]), 2.0)) == []
    assert list(service.later(iter([1.0, 2.0]), 2.0)) == [2.0, 4.0]  # type: ignore[arg-type,call-overload]


def _mistakes(service: Any) -> None:
    with pytest.raises(
        nearcall.InvalidArgument, match=r"moved\(\): argument 'point' at \.names\[1\]: expected str, got int"
    ):
        service.moved(Point(1.0, 2.0, ["a", 3]), 1.0)
    with pytest.raises(nearcall.InvalidArgument, match=r"same\(\): argument 'point' at \.x: expected float, got str"):
        service.same(Point("x"))  # type: ignore[arg-type]
    with pytest.raises(nearcall.InvalidArgument, match=r"count\(\): argument 'to': an int that is not within"):
        list(service.count(2**63))
    with pytest.raises(nearcall.Internal, match=r"wrong\(\): the result must be int, got str"):
        service.wrong()
    with pytest.raises(nearcall.Unknown, match="no room"):
        service.fails()
    with pytest.raises(nearcall.ResourceExhausted, match="more than 1000 values"):
        service.same(Point(1.0, 1.0, ["x"] * 1000))
