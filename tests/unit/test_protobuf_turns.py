"""A long Protobuf message is decoded in turns: other threads run meanwhile."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import nearcall
from nearcall.codec.protobuf.service import Protobuf
from nearcall.service.making import in_codec
from nearcall.service.service import plan_of

from .protobuf_bytes import varint


@dataclass
class Node:
    value: int = 0


@nearcall.service
class Nodes:
    def add(self, nodes: list[Node]) -> None: ...

    def number(self, nodes: dict[int, Node]) -> None: ...


@pytest.fixture
def without_collector() -> Iterator[None]:
    """Python's garbage collector has long turns of its own, and gives none to others."""
    gc.disable()
    yield
    gc.enable()


def decoder(method: str) -> Callable[[bytes, int], Any]:
    found = next(one for one in in_codec(plan_of(Nodes), Protobuf()).methods if one.name == method)
    decode: Callable[[bytes, int], Any] = found.arguments.coding.decode.decode
    return decode


def nested(message: bytes) -> bytes:
    """As the field with number 1."""
    return b"\x0a" + varint(len(message)) + message


@pytest.mark.usefixtures("without_collector")
@pytest.mark.parametrize(
    ("method", "make"),
    [
        ("add", lambda: b"\x0a\x00" * 300_000),
        ("number", lambda: b"".join(nested(b"\x08" + varint(number)) for number in range(100_000))),
    ],
    ids=["add", "number"],
)
def test_other_threads_have_turns(method: str, make: Callable[[], bytes]) -> None:
    decode, message, turns, is_over = decoder(method), make(), 0, threading.Event()

    def count() -> None:
        nonlocal turns
        while not is_over.wait(0.0001):
            turns += 1

    thread = threading.Thread(target=count)
    thread.start()
    try:
        while not turns:
            pass
        before = turns
        (values,) = decode(message, 2_000_000)
        meanwhile = turns - before
    finally:
        is_over.set()
        thread.join()
    assert len(values) >= 100_000
    # A turn is a millisecond, or five while nobody asks for one. The message takes 30 ms at the very least.
    assert meanwhile >= 4
