"""The methods of a server by their numbers, and what runs each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from .. import _core
from ..call.failures import Failures
from ..call.interceptors import Chain, intercept_handler
from ..service.injecting import Injector
from ..service.plan import MethodPlan, ServicePlan
from .entries import Entry, PathEntry
from .instances import Served, handler_of

__all__ = ["MethodTable", "Surroundings"]


class Surroundings(NamedTuple):
    """What is around every handler of a server."""

    chain: Chain
    """Functions around every call."""
    failures: Failures
    """Reports exceptions of handlers."""
    injector: Injector
    """Fills in what handlers depend on."""
    max_values: int
    """Values that a received message may hold."""
    tracebacks: bool
    """Whether clients see the traceback of an exception."""

    def describer(self, method: MethodPlan, errors: tuple[type[Exception], ...]) -> Any:
        """What describes a handler's exceptions for clients, in a service with these exceptions of its own."""
        return self.failures.describer(method, errors, self.tracebacks)


class MethodTable:
    """The methods of a server in the order of their numbers."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._around = surroundings
        self.methods: list[tuple[_core.Method, Any]] = []
        """For the core: each method with its handler, ``None`` if it is only called on objects."""
        self.handlers: list[tuple[MethodPlan, Any]] = []
        """The same, by their plans."""
        self.measured: list[tuple[str, str] | None] = []
        """What each counts as in the statistics: name and kind; ``None``: nothing."""
        self.numbers: dict[tuple[str, str], int] = {}
        """The numbers of those that are only called on objects, by the names of service and method."""
        self.paths: dict[str, dict[str, PathEntry]] = {}
        """Those that are found by their paths, by the name of their codec."""
        self.codecs: dict[str, int] = {}
        """The numbers of the first methods in further codecs, by the codecs' names."""

    def add(self, served: Served, *, measured: bool = True) -> None:
        """Adds the methods of a service in msgpack."""
        for method in served.plan.methods:
            handler = self._around.injector.around(method, handler_of(served, method))
            handler = intercept_handler(self._around.chain, method, handler)
            counted = (method.full_name, method.kind) if measured else None
            self._add(method, handler, served.plan.errors, counted)

    def add_passed(self, plan: ServicePlan) -> None:
        """Adds the methods of a service whose objects are passed."""
        for method in plan.methods:
            self.numbers[plan.name, method.name] = len(self.methods)
            self.methods.append((_core.Method(method, max_values=self._around.max_values), None))
            self.handlers.append((method, None))
            self.measured.append((method.full_name, method.kind))

    def add_codec(self, codec: str, entries: Iterable[Entry]) -> None:
        """Adds the methods of all services in another codec, by their numbers."""
        self.codecs[codec] = len(self.methods)
        self._add_all(entries)

    def add_entries(self, codec: str, entries: Sequence[Entry]) -> None:
        """Adds methods in another codec, which the core knows by that name, by their paths."""
        numbered = enumerate(entries, len(self.methods))
        self.paths.setdefault(codec, {}).update({entry.path: entry.numbered(number) for number, entry in numbered})
        self._add_all(entries)

    def _add_all(self, entries: Iterable[Entry]) -> None:
        for entry in entries:
            counted = (entry.plan.full_name, entry.kind) if entry.measured else None
            self._add(entry.plan, entry.handler, entry.errors, counted)

    def _add(
        self, plan: MethodPlan, handler: Any, errors: tuple[type[Exception], ...], counted: tuple[str, str] | None
    ) -> None:
        describer = self._around.describer(plan, errors)
        self.methods.append((_core.Method(plan, max_values=self._around.max_values, describe_error=describer), handler))
        self.handlers.append((plan, handler))
        self.measured.append(counted)
