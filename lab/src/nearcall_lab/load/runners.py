"""How slots run concurrently: each in a thread of its own, or all in one event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from nearcall_lab.contract import Mechanism


class Runner(Protocol):
    """Runs one function, or coroutine function, for each slot, all at once."""

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        """The results in order; raises the first exception after all have ended."""
        ...

    def idle(self, seconds: float) -> None:
        """Let the mechanism run for a while without calls."""
        ...

    def close(self) -> None: ...


class Threads:
    """A thread for each slot, the same one from the first call to the last: some mechanisms tie a connection to the
    thread that made it. A single slot has the main thread."""

    def __init__(self, slots: int) -> None:
        self._threads = [ThreadPoolExecutor(1, f"slot-{i}") for i in range(slots)] if slots > 1 else []

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        if not self._threads:
            return [function() for function in functions]
        futures = [thread.submit(function) for thread, function in zip(self._threads, functions, strict=False)]
        failures = [future.exception() for future in futures]
        for failure in failures:
            if failure is not None:
                raise failure
        return [future.result() for future in futures]

    def idle(self, seconds: float) -> None:
        import time

        time.sleep(seconds)

    def close(self) -> None:
        for thread in self._threads:
            thread.shutdown()


class Loop:
    """One event loop, which the lab owns, in the main thread."""

    def __init__(self, mechanism: Mechanism) -> None:
        if mechanism.loop == "uvloop":
            import uvloop

            self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        else:
            self._loop = asyncio.new_event_loop()
        asyncio.set_event_loop(self._loop)

    def each(self, functions: Sequence[Callable[[], Any]]) -> list[Any]:
        async def all_of_them() -> list[Any]:
            return await asyncio.gather(*(function() for function in functions), return_exceptions=True)

        results = self._loop.run_until_complete(all_of_them())
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def idle(self, seconds: float) -> None:
        self._loop.run_until_complete(asyncio.sleep(seconds))

    def close(self) -> None:
        self._loop.close()


def runner_for(mechanism: Mechanism, slots: int) -> Runner:
    """The runner of a mechanism's style."""
    return Loop(mechanism) if mechanism.style == "asyncio" else Threads(slots)
