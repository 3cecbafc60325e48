"""The fixtures of nearcall's plugin for pytest, which ``pip install nearcall`` installs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Protocol, TypeVar, overload

import pytest

from .proxy import FaultyProxy
from .serving import faulty, serving

__all__ = ["NearcallFaults", "NearcallServing", "nearcall_faults", "nearcall_serving"]

T = TypeVar("T")


class NearcallServing(Protocol):
    """The type of the fixture ``nearcall_serving``."""

    @overload
    def __call__(
        self,
        service: object,
        *,
        interface: Callable[..., T],
        url: str | None = None,
        server: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> T: ...
    @overload
    def __call__(
        self,
        service: T,
        *,
        url: str | None = None,
        server: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
    ) -> T: ...
    def __call__(self, service: Any, **options: Any) -> Any:
        """As :func:`nearcall.testing.serving`, until the test ends."""
        ...


class NearcallFaults(Protocol):
    """The type of the fixture ``nearcall_faults``."""

    @overload
    def __call__(
        self,
        service: object,
        *,
        interface: Callable[..., T],
        url: str | None = None,
        server: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> tuple[T, FaultyProxy]: ...
    @overload
    def __call__(
        self,
        service: T,
        *,
        url: str | None = None,
        server: Mapping[str, Any] | None = None,
        client: Mapping[str, Any] | None = None,
        seed: int = 0,
    ) -> tuple[T, FaultyProxy]: ...
    def __call__(self, service: Any, **options: Any) -> Any:
        """As :func:`nearcall.testing.faulty`, until the test ends."""
        ...


@pytest.fixture
def nearcall_serving() -> Iterator[NearcallServing]:
    """Serves objects in memory until the test ends.

    ``calc = nearcall_serving(Calculator())``; options as for :func:`nearcall.testing.serving`.
    """
    with ExitStack() as stack:

        def serve(service: Any, **options: Any) -> Any:
            return stack.enter_context(serving(service, **options))

        yield serve


@pytest.fixture
def nearcall_faults() -> Iterator[NearcallFaults]:
    """Serves objects behind proxies that do harm when told to, until the test ends.

    ``calc, proxy = nearcall_faults(Calculator())``; options as for :func:`nearcall.testing.faulty`.
    """
    with ExitStack() as stack:

        def serve(service: Any, **options: Any) -> Any:
            return stack.enter_context(faulty(service, **options))

        yield serve
