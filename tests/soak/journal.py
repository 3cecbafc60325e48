"""Counters that outlive the process that counts: memory mapped from a file, a page for each client."""

from __future__ import annotations

import mmap
from pathlib import Path

from ..words import load, store

# Of every call: it was begun, and then one of the others. What is missing of those was under way when its client died.
FIELDS = (
    "begun",
    "replied",
    "failed",  # with an error that was to be expected: the server died, or was asked to fail
    "cancelled",
    "late",
    "oneway_begun",
    "oneway_sent",
    "oneway_failed",
    "done",  # the client ended in good order
    "wrong",  # an answer that was not the answer to this question
)
SERVER_FIELDS = ("delivered", "disordered")
_WORD = 8
_PAGE = 128


class Journal:
    """Rows of numbers in a file; every number has one process that writes it."""

    def __init__(self, path: Path, rows: int) -> None:
        with path.open("a+b") as file:
            file.truncate(rows * _PAGE)
            self._memory = mmap.mmap(file.fileno(), rows * _PAGE)

    def get(self, row: int, field: int) -> int:
        """A number of a row."""
        return load(self._memory, row * _PAGE + field * _WORD)

    def put(self, row: int, field: int, value: int) -> None:
        """Sets a number of a row."""
        store(self._memory, row * _PAGE + field * _WORD, value)

    def add(self, row: int, field: int) -> int:
        """Adds one, for the only thread that writes the number; what it is then."""
        value = self.get(row, field) + 1
        self.put(row, field, value)
        return value

    def row(self, row: int, names: tuple[str, ...]) -> dict[str, int]:
        """All numbers of a row by name."""
        return {name: self.get(row, number) for number, name in enumerate(names)}
