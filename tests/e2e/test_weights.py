"""What values take in memory is charged by their kind, so that no kind slips through the limit of a client."""

from __future__ import annotations

import dataclasses
import decimal
import tracemalloc
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_type_hints

import msgspec
import pytest

import nearcall

MEMORY = 64 << 20
ALLOWED = MEMORY // 4
"""One client's values may take a quarter."""


@dataclasses.dataclass
class Plain:
    number: int = 1


@dataclasses.dataclass
class Listing:
    first: list[int] = dataclasses.field(default_factory=list)
    second: list[int] = dataclasses.field(default_factory=list)


class Row(NamedTuple):
    a: int = 1
    b: int = 2
    c: int = 3
    d: int = 4
    e: int = 5
    f: int = 6
    g: int = 7
    h: int = 8


@nearcall.service
class Holder:
    async def anything(self, values: list[Any]) -> int:
        return len(values)

    async def sets(self, values: list[set[int]]) -> int:
        return len(values)

    async def frozensets(self, values: list[frozenset[str]]) -> int:
        return len(values)

    async def plain(self, values: list[Plain]) -> int:
        return len(values)

    async def listings(self, values: list[Listing]) -> int:
        return len(values)

    async def rows(self, values: list[Row]) -> int:
        return len(values)

    async def floats(self, values: list[float]) -> int:
        return len(values)

    async def decimals(self, values: list[decimal.Decimal]) -> int:
        return len(values)

    async def uuids(self, values: list[uuid.UUID]) -> int:
        return len(values)

    async def dicts(self, values: list[dict[str, int]]) -> int:
        return len(values)


KINDS: dict[str, tuple[str, Any]] = {
    "sets": ("sets", set()),
    "sets of five": ("sets", {1, 2, 3, 4, 5}),
    "frozensets": ("frozensets", frozenset()),
    "objects": ("plain", Plain(2)),
    "objects with lists": ("listings", Listing()),
    "named tuples": ("rows", Row()),
    "floats": ("floats", 1.5),
    "decimals": ("decimals", decimal.Decimal(1)),
    "UUIDs": ("uuids", uuid.uuid4()),
    "dicts": ("dicts", {"ab": 1}),
    "dicts of six": ("dicts", {"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1}),
    "any dicts": ("anything", {"a": 1}),
    "any dicts without keys": ("anything", {}),
    "any lists": ("anything", [1]),
    "any texts": ("anything", "ab"),
    "any wide texts": ("anything", "😀"),
    "any long ints": ("anything", 2**62),
    "any bytes": ("anything", b"ab"),
}


def taken(method: str, value: Any) -> float:
    """The bytes that one value takes here when it is decoded, as Python's allocator is asked for them."""
    few = 10_000
    decoder = msgspec.msgpack.Decoder(get_type_hints(getattr(Holder, method))["values"])
    body = msgspec.msgpack.encode([value] * few)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        values = decoder.decode(body)
        after = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(values) == few
    return (after - before) / few


@pytest.fixture(scope="module")
def holder(runtime_dir: Path) -> Iterator[Any]:
    with (
        nearcall.Server(
            Holder(), f"unix://{runtime_dir}/weights", max_memory=MEMORY, max_message_size=MEMORY // 4
        ) as server,
        nearcall.connect(server.urls[0], Holder) as client,
    ):
        yield client


@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_value_takes_much_more_than_is_charged(holder: Any, kind: str) -> None:
    method, value = KINDS[kind]
    count = int(1.3 * ALLOWED / taken(method, value))
    with pytest.raises(nearcall.ResourceExhausted, match="take more memory than this client may use"):
        getattr(holder, method)([value] * count)
    # What was charged for it is free again, and a third of it is allowed.
    assert getattr(holder, method)([value] * (count // 4)) == count // 4


def test_small_ints_cost_their_places(holder: Any) -> None:
    count = 1_500_000
    assert holder.anything([1] * count) == count
