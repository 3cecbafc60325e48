"""What ends a program, such as Ctrl-C, is no error of a value: it goes on where it came up while one was made."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import nearcall
import nearcall.aio

ENDS: dict[str, type[BaseException]] = {"KeyboardInterrupt": KeyboardInterrupt, "SystemExit": SystemExit}


@dataclass
class Reading:
    """Python code runs when one is read, as in many classes; a signal may come just then."""

    ends: str

    def __post_init__(self) -> None:
        if self.ends in ENDS:
            raise ENDS[self.ends]


def reading(ends: str) -> Reading:
    made = Reading("")
    made.ends = ends
    return made


@nearcall.service
class Sensor:
    def read(self, ends: str) -> Reading:
        return reading(ends)

    def readings(self, ends: str) -> Iterator[Reading]:
        yield Reading("")
        yield reading(ends)

    def write(self, value: Reading) -> str:
        return value.ends

    async def write_soon(self, value: Reading) -> str:
        return value.ends


@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("codec", [None, "json"])
def test_at_a_client_it_is_raised(ends: str, codec: Any, key: str) -> None:
    with (
        nearcall.Server(Sensor(), f"inproc://{key}", codecs=["json"]),
        nearcall.connect(f"inproc://{key}", Sensor, codec=codec) as sensor,
    ):
        for call in (lambda: sensor.read(ends), lambda: list(sensor.readings(ends))):
            with pytest.raises(ENDS[ends]):
                call()
        assert sensor.read("") == Reading("")


@pytest.mark.parametrize("ends", ENDS)
def test_a_server_goes_on(ends: str, key: str) -> None:
    with nearcall.Server(Sensor(), f"inproc://{key}"), nearcall.connect(f"inproc://{key}", Sensor) as sensor:
        calls: tuple[Callable[[Reading], Any], ...] = (sensor.write, sensor.write_soon)
        for call in calls:
            with pytest.raises(nearcall.RpcError, match=ends):
                call(reading(ends))
            assert call(Reading("fine")) == "fine"


def test_in_a_loop(key: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(f"inproc://{key}", Sensor) as sensor:
            await sensor.read("SystemExit")

    with nearcall.Server(Sensor(), f"inproc://{key}"), pytest.raises(SystemExit):
        asyncio.run(main())
