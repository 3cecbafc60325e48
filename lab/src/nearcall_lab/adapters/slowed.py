"""Other mechanisms with some nanoseconds added to each call, to see whether the lab notices.

No entry of the table: the comparison of the lab with itself starts it. Which mechanisms, and how many nanoseconds, is
told to the worker processes through the environment. What is compared with a slowed mechanism is the same one in the
same wrapping with nothing added, so that the wrapping's own cost is on both sides.
"""

from __future__ import annotations

import dataclasses
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

from nearcall_lab.contract import Adapter, Mechanism, Operation, Ready, Session, Spec, Stop
from nearcall_lab.modules import load
from nearcall_lab.registry import Entrant

VARIABLE = "NEARCALL_LAB_SLOWED"
"""JSON: a list of ``module`` and ``mechanism`` as the registry knows them, and ``ns`` to be added to each call."""


def setting(entrant: Entrant, added_ns: Sequence[int]) -> str:
    """What the variable has to hold for one wrapped mechanism for each of these numbers of nanoseconds."""
    one = {"module": entrant.module, "mechanism": entrant.mechanism.name}
    return json.dumps([{**one, "ns": ns} for ns in added_ns])


def wrapped(entrant: Entrant, ns: int) -> Entrant:
    """The entrant that adds `ns` to each call of another."""
    return Entrant(_row(entrant.mechanism, ns), __name__, entrant.problem, entrant.version)


def _row(mechanism: Mechanism, ns: int) -> Mechanism:
    settings = f"{mechanism.settings}; {ns} ns added to each call"
    return dataclasses.replace(mechanism, name=f"{mechanism.name}+{ns}ns", settings=settings)


def _configured() -> dict[str, tuple[Adapter, Mechanism, int]]:
    found = {}
    for one in json.loads(os.environ.get(VARIABLE, "[]")):
        adapter = cast(Adapter, load(one["module"]))
        mechanism = next(m for m in adapter.MECHANISMS if m.name == one["mechanism"])
        found[_row(mechanism, one["ns"]).name] = (adapter, mechanism, int(one["ns"]))
    return found


_WRAPPED = _configured()
MECHANISMS: tuple[Mechanism, ...] = tuple(_row(mechanism, ns) for _, mechanism, ns in _WRAPPED.values())


def _turn_ns(turns: int = 20_000) -> float:
    """What one turn of an empty loop takes: the best of some tries, since disturbance only ever adds."""
    best = float("inf")
    for _ in range(20):
        begin = time.perf_counter_ns()
        for _ in range(turns):
            pass
        best = min(best, (time.perf_counter_ns() - begin) / turns)
    return best


class _SlowedSession:
    def __init__(self, session: Session, ns: int) -> None:
        self._session = session
        # Turns of a loop, because a look at the clock costs about as much as what is to be added.
        self._turns = range(round(ns / _turn_ns()))

    def open(self) -> None:
        self._session.open()

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        call, turns = self._session.call(operation), self._turns

        def slowed_call(argument: Any) -> Any:
            reply = call(argument)
            for _ in turns:
                pass
            return reply

        return slowed_call

    def stream(self, items: int) -> Iterator[int]:
        return self._session.stream(items)

    def flush(self) -> None:
        self._session.flush()

    def dropped(self) -> int:
        return self._session.dropped()

    def close(self) -> None:
        self._session.close()


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    adapter, mechanism, _ = _WRAPPED[spec.mechanism.name]
    adapter.serve(dataclasses.replace(spec, mechanism=mechanism), ready, stop)


def connect(spec: Spec) -> Session:
    adapter, mechanism, ns = _WRAPPED[spec.mechanism.name]
    return _SlowedSession(cast(Session, adapter.connect(dataclasses.replace(spec, mechanism=mechanism))), ns)
