"""Values over every transport: they arrive as they left or are refused; hostile ones cost the call and nothing else."""

from __future__ import annotations

import asyncio
import datetime as dt
import decimal
import struct
import uuid
import zoneinfo
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, TypedDict

import msgspec
import pytest

import nearcall

EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
SECRET = b"SECRET-OF-ANOTHER-CONNECTION-" * 20


@dataclass
class Animal:
    name: str
    at: dt.datetime | None = None


@dataclass
class Dog(Animal):
    breed: str = "?"


class Movie(TypedDict, total=False):
    title: str


class Sparing(msgspec.Struct, omit_defaults=True):
    x: int
    y: float = 5.0


class KennelError(Exception):
    pass


@nearcall.service(errors=[KennelError])
class Kennel:
    def keep(self, animal: Animal) -> Animal:
        return animal

    def keep_all(self, animals: list[Animal]) -> dict[str, Animal]:
        return {animal.name: animal for animal in animals}

    def rent(self, movie: Movie) -> Movie:
        return movie

    def echo(self, value: Any) -> Any:
        return value

    def spare(self, value: Sparing) -> Sparing:
        return value

    def each(self, values: Iterator[Any]) -> Iterator[Any]:
        yield from values

    def adopt(self) -> Animal:
        return Dog("rex")

    def fail(self, value: Any) -> None:
        error = KennelError(value)
        error.value = value  # type: ignore[attr-defined]
        raise error

    def fill(self, count: int) -> list[Any]:
        return [[] for _ in range(count)]


@pytest.fixture
def kennel_url(new_url: str) -> Iterator[str]:
    with nearcall.Server(Kennel(), new_url, max_values=200_000) as server:
        yield server.urls[0]


ANYTHING: list[Any] = [
    (1, (2.0, "x")),
    {1, 2},
    frozenset({(1, "a")}),
    {(1, 2): {"a": (3,)}, None: b"x", 1: True},
    dt.datetime(2024, 2, 29, 12, 30, 0, 7, tzinfo=EAST),
    dt.datetime(2024, 10, 27, 2, 30, fold=1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    dt.datetime(2024, 2, 29, 12, 30),
    dt.date(2024, 2, 29),
    dt.time(1, 2, 3, 4, tzinfo=EAST),
    dt.timedelta(days=-3, microseconds=1),
    uuid.UUID(int=7),
    decimal.Decimal("1.500000000000000000000000000000000001"),
    bytearray(b"x"),
    -0.0,
    2**64 - 1,
    -(2**70),
    True,
]


def same(a: Any, b: Any) -> bool:
    return type(a) is type(b) and repr(a) == repr(b)


def test_any_arrives_as_it_left(kennel_url: str) -> None:
    with nearcall.connect(kennel_url, Kennel) as kennel:
        for value in ANYTHING:
            assert same(kennel.echo(value), value)
        assert same(kennel.echo(ANYTHING), ANYTHING)
        assert same(list(kennel.each(ANYTHING)), ANYTHING)
    with nearcall.connect(kennel_url) as anyone:
        assert same(anyone.echo(ANYTHING), ANYTHING)
        at = dt.datetime(2024, 2, 29, 12, 30, tzinfo=EAST)
        assert anyone.keep({"name": "a", "at": at}) == {"name": "a", "at": at.isoformat()}
        assert anyone.keep_all([{"name": "a", "at": at}])["a"]["at"] == at.isoformat()
        assert anyone.spare({"x": 1}) == {"x": 1, "y": 5.0}
        with pytest.raises(
            nearcall.InvalidArgument, match=r"argument 'animal' cannot be sent: Animal has no field 'breed'"
        ):
            anyone.keep({"name": "a", "breed": "b"})


def test_exceptions_carry_what_they_carried(kennel_url: str) -> None:
    with nearcall.connect(kennel_url, Kennel) as kennel, pytest.raises(KennelError) as caught:
        kennel.fail(ANYTHING)
    assert same(caught.value.args, (ANYTHING,))
    assert same(caught.value.value, ANYTHING)  # type: ignore[attr-defined]


def test_what_would_be_lost_is_refused(kennel_url: str) -> None:
    with nearcall.connect(kennel_url, Kennel) as kennel:
        with pytest.raises(
            nearcall.InvalidArgument, match=r"Kennel.keep\(\): argument 'animal' must be Animal, got .*Dog"
        ):
            kennel.keep(Dog("rex"))
        with pytest.raises(nearcall.InvalidArgument, match=r"argument 'animals' at \[1\]: expected Animal, got .*Dog"):
            kennel.keep_all([Animal("a"), Dog("rex")])
        with pytest.raises(nearcall.InvalidArgument, match=r"argument 'movie' .*Movie has no key 'year'"):
            kennel.rent({"title": "x", "year": 3})  # type: ignore[typeddict-unknown-key]
        with pytest.raises(nearcall.InvalidArgument, match=r"argument 'value' .*Dog is a class that the receiver"):
            kennel.echo([Dog("rex")])
        with pytest.raises(nearcall.Internal, match=r"Kennel.adopt\(\): the result must be Animal, got .*Dog"):
            kennel.adopt()
        at = dt.datetime(2024, 2, 29, 12, 30, tzinfo=EAST)
        assert kennel.keep_all([Animal("a", at)])["a"].at.utcoffset() == EAST.utcoffset(None)  # type: ignore[union-attr]

    async def main() -> None:
        async with nearcall.aio.connect(kennel_url, Kennel) as kennel:
            with pytest.raises(nearcall.InvalidArgument, match=r"must be Animal, got .*Dog"):
                await kennel.keep(Dog("rex"))
            assert same(await kennel.echo(ANYTHING), ANYTHING)

    asyncio.run(main())


def test_every_field_travels(kennel_url: str) -> None:
    @nearcall.service(name="Kennel")
    class Elsewhere:
        def spare(self, value: Any) -> Any: ...

        def keep(self, animal: Any) -> Any: ...

    with nearcall.connect(kennel_url, Elsewhere) as kennel:
        assert kennel.spare({"x": 1}) == {"x": 1, "y": 5.0}
        assert kennel.keep({"name": "a"}) == {"name": "a", "at": None}


@pytest.mark.parametrize("dtype", ["S0", "U0", "|S0", "<U0", "|V0", [["a", "|S0"]]], ids=str)
def test_no_memory_of_the_server_is_read(kennel_url: str, dtype: Any) -> None:
    header = msgspec.msgpack.encode([dtype, [len(SECRET)], "C", 0])
    hostile = msgspec.Raw(msgspec.msgpack.encode(msgspec.msgpack.Ext(2, header)))
    with nearcall.connect(kennel_url, Kennel) as honest, nearcall.connect(kennel_url, Kennel) as attacker:
        for _ in range(20):
            assert honest.echo(SECRET) == SECRET
            with pytest.raises(nearcall.InvalidArgument):
                attacker.echo([hostile, bytes(1)])


def test_more_values_than_allowed_are_refused_before_they_are_made(kennel_url: str) -> None:
    maps = 300_000
    hostile = msgspec.Raw(b"\xdd" + struct.pack(">I", maps) + b"\x80" * maps)
    nested = msgspec.Raw(b"\xc9" + struct.pack(">I", maps + 5) + b"\x04\xdd" + struct.pack(">I", maps) + b"\x80" * maps)
    with nearcall.connect(kennel_url, Kennel, max_values=1_000) as kennel:
        for value in (hostile, nested):
            with pytest.raises(
                nearcall.ResourceExhausted, match=r"Kennel.echo: .* more than 200000 values.*max_values"
            ):
                kennel.echo(value)
        assert kennel.echo([1] * 900) == [1] * 900
        assert len(kennel.echo("x" * 300_000)) == 300_000
        assert len(kennel.fill(900)) == 900
        with pytest.raises(nearcall.ResourceExhausted, match=r"Kennel.fill: .* more than 1000 values"):
            kennel.fill(1_100)
        assert kennel.echo(1) == 1


def test_the_option_is_checked() -> None:
    for wrong in (0, -1, 1.5, True, "x"):
        with pytest.raises(nearcall.InvalidArgument, match="max_values must be a whole number"):
            nearcall.connect("shm://nobody", Kennel, max_values=wrong)  # type: ignore[arg-type]
        with pytest.raises(nearcall.InvalidArgument, match="max_values must be a whole number"):
            nearcall.Server(Kennel(), "shm://nobody", max_values=wrong)  # type: ignore[arg-type]


def test_values_nested_too_deeply_cost_the_call_and_nothing_else(kennel_url: str) -> None:
    body = b"\x90"
    for _ in range(3_000):
        body = b"\x91\xc9" + struct.pack(">I", len(body)) + b"\x04" + body
    with nearcall.connect(kennel_url, Kennel) as kennel:
        for hostile in (body, b"\x91" * 100_000 + b"\xc0", b"\x81\x00" * 50_000 + b"\xc0"):
            with pytest.raises(nearcall.InvalidArgument, match="nested too deeply"):
                kennel.echo(msgspec.Raw(hostile))
        assert kennel.echo(1) == 1
