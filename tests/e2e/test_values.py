"""Every type crosses a real connection unchanged: as argument, by name, as result, and as item of a stream."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import nearcall

from ..unit.test_roundtrip import TYPES
from .conftest import OUTSIDE, TRANSPORTS
from .process import ServerProcess


def echo_service(number: int, annotation: Any) -> type[Any]:
    class Echo:
        def one(self, value, other=7):  # type: ignore[no-untyped-def]
            return value

        async def one_in_loop(self, value):  # type: ignore[no-untyped-def]
            return value

        def each(self, values):  # type: ignore[no-untyped-def]
            yield from values

    Echo.one.__annotations__ = {"value": annotation, "other": int, "return": annotation}
    Echo.one_in_loop.__annotations__ = {"value": annotation, "return": annotation}
    Echo.each.__annotations__ = {"values": Iterator[annotation], "return": Iterator[annotation]}
    return nearcall.service(name=f"Echo{number}")(Echo)


SERVICES = [echo_service(number, annotation) for number, (annotation, _) in enumerate(TYPES)]


def echoes() -> list[Any]:
    return [service() for service in SERVICES]


@pytest.fixture(scope="module")
def clients(runtime_dir: Any) -> Iterator[Callable[[int], list[Any]]]:
    """A client of each transport for a type."""
    outside = [TRANSPORTS[name]("values", runtime_dir) for name in OUTSIDE]
    inside = [TRANSPORTS[name]("values", runtime_dir) for name in TRANSPORTS if name not in OUTSIDE]
    with (
        ServerProcess(*outside, services="tests.e2e.test_values:echoes") as process,
        nearcall.Server(*echoes(), *inside) as server,
    ):
        yield lambda number: [nearcall.connect(url, SERVICES[number]) for url in [*process.urls, *server.urls]]


@pytest.mark.parametrize("number", range(len(TYPES)), ids=[str(annotation) for annotation, _ in TYPES])
def test_values_cross_unchanged(clients: Callable[[int], list[Any]], number: int) -> None:
    connected = clients(number)

    @settings(max_examples=10, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(st.lists(TYPES[number][1], min_size=1, max_size=3))
    def check(values: list[Any]) -> None:
        value = values[0]
        for client in connected:
            results = [client.one(value, 1), client.one(value=value), client.one(value), client.one_in_loop(value)]
            for result in results:
                assert result == value
                assert type(result) is type(value)
            assert list(client.each(values)) == values

    try:
        check()
    finally:
        for client in connected:
            client.close()
