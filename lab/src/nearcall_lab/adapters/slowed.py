"""Any other mechanism with some nanoseconds added to each call, to see whether the lab notices.

Not an entry: the comparison of the lab with itself starts it. Which mechanism, and by how much it is slowed down, is
told to the worker processes through the environment.
"""

from __future__ import annotations

import dataclasses
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, cast

from nearcall_lab.contract import Adapter, Mechanism, Operation, Ready, Session, Spec, Stop

VARIABLE = "NEARCALL_LAB_SLOWED"
"""JSON: ``module`` and ``mechanism`` as the registry knows them, ``ns`` to be added to each call."""


def setting(module: str, mechanism: str, ns: int) -> str:
    """What the variable has to hold."""
    return json.dumps({"module": module, "mechanism": mechanism, "ns": ns})


def slowed(mechanism: Mechanism, ns: int) -> Mechanism:
    """The row of a slowed mechanism."""
    settings = f"{mechanism.settings}; {ns} ns added to each call"
    return dataclasses.replace(mechanism, name=f"{mechanism.name}-slowed", settings=settings)


def _configured() -> tuple[Adapter, Mechanism, int] | None:
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    found = json.loads(text)
    adapter = cast(Adapter, importlib.import_module(found["module"]))
    mechanism = next(m for m in adapter.MECHANISMS if m.name == found["mechanism"])
    return adapter, mechanism, int(found["ns"])


_WRAPPED = _configured()
MECHANISMS: tuple[Mechanism, ...] = () if _WRAPPED is None else (slowed(_WRAPPED[1], _WRAPPED[2]),)


def _wrapped() -> tuple[Adapter, Mechanism, int]:
    if _WRAPPED is None:
        raise RuntimeError(f"{VARIABLE} does not say which mechanism to slow down")
    return _WRAPPED


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    adapter, mechanism, _ = _wrapped()
    adapter.serve(dataclasses.replace(spec, mechanism=mechanism), ready, stop)


class _SlowedSession:
    def __init__(self, session: Session, ns: int) -> None:
        self._session = session
        self._ns = ns

    def open(self) -> None:
        self._session.open()

    def call(self, operation: Operation) -> Callable[[Any], Any]:
        call, clock, ns = self._session.call(operation), time.perf_counter_ns, self._ns

        def slowed_call(argument: Any) -> Any:
            reply = call(argument)
            end = clock() + ns
            while clock() < end:
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


def connect(spec: Spec) -> Session:
    adapter, mechanism, ns = _wrapped()
    return _SlowedSession(cast(Session, adapter.connect(dataclasses.replace(spec, mechanism=mechanism))), ns)
