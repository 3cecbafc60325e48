"""The same census with nearcall.

    python after.py

It prints::

    progress: 4 of 4
    zeros: 125000, ones: 250000
    in the ledger: ['part 0', 'part 1', 'part 2', 'part 3']
    a clerk says: 3 words
    a clerk failed: ValueError: nothing to count
"""

import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Protocol

import nearcall

SIZE = 1_000_000
PARTS = 4
COMMAND = [sys.executable, __file__, "serve"]


@nearcall.service
class Ledger(Protocol):
    """What workers see of the ledger, which stays in the parent."""

    def enter(self, entry: str) -> None: ...


class Book(Ledger):
    def __init__(self) -> None:
        self._entries: list[str] = []

    def enter(self, entry: str) -> None:
        self._entries.append(entry)

    def entries(self) -> list[str]:
        return sorted(self._entries)


@nearcall.service(errors=[ValueError])
class Worker:
    def census(self, data: memoryview, part: int, ledger: Ledger, progress: Callable[[int], None]) -> tuple[int, int]:
        counted = data.tobytes()
        ledger.enter(f"part {part}")
        progress(part)
        return counted.count(0), counted.count(1)

    def words(self, text: str) -> int:
        if not text:
            raise ValueError("nothing to count")
        return len(text.split())


def take_census(workers: list[Worker]) -> None:
    data = nearcall.buffer(SIZE)  # memory that the workers will see; it is nobody's when all have let go
    data[:] = bytes([0, 1, 1, 2, 3, 4, 5, 6]) * (SIZE // 8)
    done: list[int] = []
    book = Book()
    calls: list[nearcall.StartedCall[tuple[int, int]]] = []
    for part in range(PARTS):
        first = part * SIZE // PARTS
        worker = workers[part % len(workers)]
        slice_ = data[first : first + SIZE // PARTS]
        calls.append(nearcall.start(worker.census, slice_, part, book, done.append))
    zeros, ones = map(sum, zip(*(call.result() for call in calls), strict=True))
    print(f"progress: {len(done)} of {PARTS}")
    print(f"zeros: {zeros}, ones: {ones}")
    print("in the ledger:", book.entries())


def ask_a_clerk(clerk: Worker) -> None:
    for text in ("one two three", ""):
        try:
            print(f"a clerk says: {clerk.words(text)} words")
        except ValueError as error:
            print(f"a clerk failed: {type(error).__name__}: {error}")


def main() -> None:
    with ExitStack() as children:
        workers = [children.enter_context(nearcall.spawn(COMMAND, Worker)) for _ in range(2)]
        take_census(workers)
        ask_a_clerk(workers[0])


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Worker(), "stdio:")
    else:
        main()
