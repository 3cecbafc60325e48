"""Units of work: what a slot does between its two readings of the clock.

A plain call is the session's own callable, with nothing around it. The other units take stamps in between and add them
to `marks` when they have succeeded, so that the marks of a slot pair with its calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, cast

from nearcall_lab.contract import Adapter, AsyncSession, Operation, Session, Spec
from nearcall_lab.scenario.cell import Cell, format_size

Marks = dict[str, list[int]]
Unit = Callable[[Any], Any]
Now = Callable[[], int]

CONNECTION_PHASES = ("made", "connected", "first reply")
FIRST_ITEM = "first item"


def unit_of(cell: Cell, session: Session | AsyncSession, now: Now, asynchronous: bool) -> tuple[Unit, Marks]:
    """The unit of a cell on an open session, and the marks it makes."""
    if cell.mode.kind == "mixed":
        marks: Marks = {format_size(size): [] for size in cell.work.sizes}
        echo = session.call("echo")
        return (_batch_async if asynchronous else _batch)(echo, list(marks.values()), now), marks
    if cell.work.operation == "count":
        marks = {FIRST_ITEM: []}
        if asynchronous:
            return _stream_async(cast(AsyncSession, session), marks[FIRST_ITEM], now), marks
        return _stream(cast(Session, session), marks[FIRST_ITEM], now), marks
    return session.call(cell.work.operation), {}


def in_turn(units: list[Unit]) -> tuple[Unit, Marks]:
    """A unit that is the next of these each time; for plain calls, which make no marks."""
    following = itertools.cycle(units).__next__

    def next_unit(value: Any) -> Any:
        return following()(value)

    return next_unit, {}


def _batch(echo: Unit, marks: list[list[int]], now: Now) -> Unit:
    def batch(values: tuple[bytes, ...]) -> list[Any]:
        replies, stamps = [], []
        for value in values:
            replies.append(echo(value))
            stamps.append(now())
        for mark, stamp in zip(marks, stamps, strict=True):
            mark.append(stamp)
        return replies

    return batch


def _batch_async(echo: Unit, marks: list[list[int]], now: Now) -> Unit:
    async def batch(values: tuple[bytes, ...]) -> list[Any]:
        replies, stamps = [], []
        for value in values:
            replies.append(await echo(value))
            stamps.append(now())
        for mark, stamp in zip(marks, stamps, strict=True):
            mark.append(stamp)
        return replies

    return batch


def _stream(session: Session, mark: list[int], now: Now) -> Unit:
    def stream(items: int) -> list[int]:
        iterator = session.stream(items)
        got = [next(iterator)]
        first = now()
        got.extend(iterator)
        mark.append(first)
        return got

    return stream


def _stream_async(session: AsyncSession, mark: list[int], now: Now) -> Unit:
    async def stream(items: int) -> list[int]:
        got: list[int] = []
        first = 0
        async for item in session.stream(items):
            if not got:
                first = now()
            got.append(item)
        mark.append(first)
        return got

    return stream


def connection_of(
    adapter: Adapter, spec: Spec, operation: Operation, now: Now, asynchronous: bool
) -> tuple[Unit, Marks]:
    """The unit of the mode ``connect``: a session is made, opened, used once and closed.

    The results are taken from the three marks; the loop's second reading of the clock comes only after the closing.
    """
    marks: Marks = {name: [] for name in CONNECTION_PHASES}

    def keep(*stamps: int) -> None:
        for mark, stamp in zip(marks.values(), stamps, strict=True):
            mark.append(stamp)

    def connect(value: Any) -> Any:
        session = cast(Session, adapter.connect(spec))
        made = now()
        try:
            session.open()
            connected = now()
            reply = session.call(operation)(value)
            replied = now()
        finally:
            session.close()
        keep(made, connected, replied)
        return reply

    async def connect_async(value: Any) -> Any:
        session = cast(AsyncSession, adapter.connect(spec))
        made = now()
        try:
            await session.open()
            connected = now()
            reply = await session.call(operation)(value)
            replied = now()
        finally:
            await session.close()
        keep(made, connected, replied)
        return reply

    return (connect_async if asynchronous else connect), marks
