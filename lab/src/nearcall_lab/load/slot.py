"""A slot: one call under way at a time. The calls of a slot follow each other; those of different slots overlap."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from nearcall_lab.failure import explain, kind_of
from nearcall_lab.load.record import Recorder

GIVE_UP_AFTER = 100
"""Failed calls in a row after which a slot stops: its connection is dead, and failing is faster than working."""


class WrongReply(Exception):
    """A reply whose length or content is not what the call must return."""


@dataclass
class Slot:
    """What a slot calls, with which arguments, and with which results."""

    number: int
    """Unique over all client processes."""
    unit: Callable[[Any], Any]
    """One unit of work: a call, a batch, a stream, a connection. A coroutine function for asyncio."""
    arguments: list[Any]
    """Used in turn."""
    check: Callable[[Any, Any], bool]
    describe: Callable[[Any, Any], str]
    replies_are_bytes: bool = False
    """Set at the first reply: replies that are `bytes` are compared in the loop itself. Views are not, since Python
    compares them item by item.
    """
    marks: dict[str, list[int]] = field(default_factory=dict)
    """Stamps inside a unit, by name, one per unit that succeeded."""
    values: Iterator[Any] = field(init=False)
    value_due: Callable[[int, int], Any] = field(init=False)
    """The argument of the call with that number and due time (open loop)."""
    recorder: Recorder = field(default_factory=Recorder)
    errors: Counter[str] = field(default_factory=Counter)
    """Calls that raised, by kind (`failure.kind_of`)."""
    first_error: str = ""
    waiting_ns: int = 0
    """CPU time of waiting for due times: the lab's, not the mechanism's."""
    _row: int = 0
    _length_at_error: int = -1

    def __post_init__(self) -> None:
        self.restart()

    def restart(self, expected: int = 0, intended: bool = False) -> None:
        """Drop what was recorded and make room for `expected` calls."""
        self.recorder = Recorder(expected, intended)
        self.errors = Counter()
        self.waiting_ns = 0
        self._row, self._length_at_error = 0, -1
        for stamps in self.marks.values():
            stamps.clear()
        self.values = itertools.cycle(self.arguments)
        arguments, count = self.arguments, len(self.arguments)
        self.value_due = lambda number, due_ns: arguments[number % count]

    def failed(self, error: Exception) -> bool:
        """Count a call that raised. True if the slot should stop calling."""
        self.errors[kind_of(error)] += 1
        if not self.first_error:
            self.first_error = explain(error)
        length = len(self.recorder)
        self._row = self._row + 1 if length == self._length_at_error else 1
        self._length_at_error = length
        return self._row >= GIVE_UP_AFTER

    def wrong(self, value: Any, reply: Any) -> WrongReply:
        """The exception for a wrong reply."""
        return WrongReply(self.describe(value, reply))
