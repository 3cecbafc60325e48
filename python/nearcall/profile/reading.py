"""Reads what the processes of a profiled program have written down."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from .recorder import CALLS, FAILED, RECORD, TABLES, VERSION

__all__ = ["Frame", "Name", "Record", "Recorded", "Site", "Sites", "covered", "read"]


class Frame(NamedTuple):
    """A place in the program."""

    file: str
    line: int
    function: str


class Name(NamedTuple):
    """What was called."""

    library: str
    kind: str
    text: str


class Record(NamedTuple):
    """A call, with numbers into the tables of its process."""

    number: int
    parent: int
    stack: int
    name: int
    lane: int
    begun: int
    ended: int
    waited: int
    sent: int
    received: int
    outcome: int
    arguments: int


Site = tuple[Frame, Name]
"""A line, and what it calls."""
Sites = dict[Site, list[Record]]
"""The calls of each, in the order of their begin."""
_ENDS = frozenset({"GeneratorExit", "StopIteration", "StopAsyncIteration"})
"""An iterator has ended, or a stream was left early."""
UNKNOWN = Frame("(unknown)", 0, "(unknown)")


class Recorded:
    """What one process has written down."""

    def __init__(self, tables: Path) -> None:
        self.pid = self.parent = self.begun = 0
        self.one_in = 1
        self.most = 0
        self.argv: list[str] = []
        self.notes: list[str] = []
        self.stacks: dict[int, tuple[Frame, ...]] = {}
        """Each from the inside outwards."""
        self.names: dict[int, Name] = {}
        self.lanes: dict[int, str] = {}
        self._frames: dict[int, Frame] = {}
        # The last line is cut off if the process was killed while it wrote.
        for line in tables.read_text(encoding="utf-8", errors="surrogatepass").splitlines():
            try:
                self._take(json.loads(line))
            except ValueError:
                continue
        self.records = sorted(self._records(tables.with_suffix(CALLS)), key=attrgetter("begun"))
        seen = max((record.number for record in self.records), default=0)
        self.weight = max(1.0, seen / len(self.records)) * self.one_in if self.records else 1.0
        """How many calls each record stands for."""

    def _take(self, entry: dict[str, Any]) -> None:
        match next(iter(entry.items())):
            case "pid", pid:
                self.pid, self.parent = pid, entry["parent"]
                self.one_in, self.most = entry["one_in"], entry["most"]
            case "version", version:
                if version != VERSION:
                    raise RuntimeError(f"records of version {version} cannot be read by nearcall {VERSION}")
                self.argv, self.begun = entry["argv"], entry["begun"]
            case "frame", [number, file, line, function]:
                self._frames[number] = Frame(file, line, function)
            case "stack", [number, *frames]:
                self.stacks[number] = tuple(self._frames.get(frame, UNKNOWN) for frame in frames) or (UNKNOWN,)
            case "name", [number, library, kind, text]:
                self.names[number] = Name(library, kind, text)
            case "lane", [number, thread, task]:
                self.lanes[number] = f"{thread}: {task}" if task else thread
            case "note", note:
                self.notes.append(note)
            case _:
                pass

    def _records(self, path: Path) -> Iterator[Record]:
        data = path.read_bytes()
        for found in RECORD.iter_unpack(data[: len(data) // RECORD.size * RECORD.size]):
            # A place that was not written yet, or half, when the process ended.
            if found[0] > 0 and 0 < found[5] <= found[6]:
                yield Record._make(found)

    def stack(self, record: Record) -> tuple[Frame, ...]:
        """Where a call was made, from the inside outwards; never empty."""
        return self.stacks.get(record.stack, (UNKNOWN,))

    def name(self, record: Record) -> Name:
        """What was called."""
        return self.names.get(record.name, Name("", "call", "(unknown)"))

    def error(self, record: Record) -> str | None:
        """The kind of error that a call has raised; ``None``: none, or one that only tells of an end."""
        if record.outcome < FAILED:
            return None
        found = self.names.get(record.outcome - FAILED)
        return "(unknown)" if found is None else None if found.text in _ENDS else found.text


def covered(records: Iterable[Record]) -> int:
    """The time in which at least one of the calls was waited for, ns. They come in the order of their begin."""
    total = until = 0
    for record in records:
        # Of a stream only the waiting counts: as if it had come at once.
        ended = record.begun + record.waited
        if ended > until:
            total += ended - max(record.begun, until)
            until = ended
    return total


def read(folder: Path) -> list[Recorded]:
    """All processes that have made calls, the earliest first."""
    found = [Recorded(path) for path in folder.glob(f"*{TABLES}") if path.with_suffix(CALLS).exists()]
    return sorted((each for each in found if each.records), key=lambda each: each.begun)
