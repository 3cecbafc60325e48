"""A fault of nearcall's own, a panic in the core, ends the call that it concerns, and nothing else."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from typing import Any

import msgspec
import pytest

import nearcall
from nearcall import StatusCode
from nearcall.server import methods

from .test_introspection import until


@nearcall.service
class Totals:
    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    def held(self, numbers: Iterator[int]) -> Iterator[int]:
        yield sum(numbers)

    async def total_in_loop(self, numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])

    def double(self, number: int) -> int:
        return number + number

    async def double_in_loop(self, number: int) -> int:
        return number + number


class Faulty:
    """The core's types, where methods with a stream forget what its items are: the core panics over the first item."""

    def __getattr__(self, name: str) -> Any:
        return getattr(nearcall._core, name)

    def Method(self, plan: Any, **options: Any) -> Any:
        return nearcall._core.Method(msgspec.structs.replace(plan, request_item=None), **options)


def call(calc: Any, method: str) -> None:
    result = getattr(calc, method)(iter([1, 2]))
    if method == "held":
        list(result)


@pytest.fixture
def totals(new_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Where the faulty methods are served."""
    with monkeypatch.context() as patched:
        patched.setattr(methods, "_core", Faulty())
        server = nearcall.Server(Totals(), new_url).start()
    yield server.urls[0]
    server.stop()


@pytest.mark.parametrize("method", ["total", "held", "total_in_loop"])
def test_the_call_ends_with_words_and_the_others_go_on(
    totals: str, method: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.WARNING, "nearcall")
    with nearcall.Channel(totals) as channel, nearcall.connect(totals, Totals) as other:
        calc = channel.client(Totals)
        # More often than there are threads that stand by.
        for number in range(8):
            with nearcall.timeout(10), pytest.raises(nearcall.RpcError) as raised:
                call(calc, method)
            assert raised.value.code == StatusCode.INTERNAL, raised.value
            assert calc.double(number) == other.double(number) == 2 * number
            assert calc.double_in_loop(number) == 2 * number
    assert "has an item" in capfd.readouterr().err
    until(lambda: [line for line in caplog.messages if "has an item" in line or "PanicException" in line])
    assert not [line for line in caplog.messages if "thread" in line and "ended" in line]
