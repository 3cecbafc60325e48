"""The same log index with nearcall.

    python after.py serve
    python after.py

It prints::

    indexed 2 files
    a.log:2 error: disk full
    b.log:1 error: no route
    2 hits
    counted meanwhile: 5
    b.log has 2 lines, the first is 'error: no route'
    too slow
    refused: KeyError
"""

import sys
import time
from collections.abc import Callable
from typing import Protocol

import nearcall

URL = "tcp://127.0.0.1:7104"  # or shm://index, on one machine

FILES = {
    "a.log": ["start", "error: disk full", "stop"],
    "b.log": ["error: no route", "stop"],
}


@nearcall.service
class File(Protocol):
    """An object that stays at the server; what its methods return does not, unless they say so."""

    def name(self) -> str: ...
    def lines(self) -> list[str]: ...


class OpenFile(File):
    def __init__(self, name: str, lines: list[str]) -> None:
        self._name = name
        self._lines = lines

    def name(self) -> str:
        return self._name

    def lines(self) -> list[str]:
        return self._lines  # a copy, in one message


@nearcall.service(instance="session", errors=[KeyError])
class Index:
    """Of this class each connection has an object of its own."""

    def __init__(self) -> None:
        self._files: dict[str, list[str]] = {}

    def add(self, files: dict[str, list[str]]) -> int:
        self._files.update(files)
        return len(self._files)

    def search(self, word: str, found: Callable[[str, int, str], None]) -> int:
        hits = 0
        for name, lines in self._files.items():
            for number, line in enumerate(lines, 1):
                if word in line:
                    hits += 1
                    found(name, number, line)
        return hits

    def count(self) -> int:
        return sum(len(lines) for lines in self._files.values())

    def open(self, name: str) -> File:
        return OpenFile(name, self._files[name])

    def compact(self, seconds: float) -> None:
        time.sleep(seconds)


def ask() -> None:
    with nearcall.connect(URL, Index) as index:
        print("indexed", index.add(FILES), "files")
        hits = index.search("error", lambda name, number, line: print(f"{name}:{number} {line}"))
        print(hits, "hits")
        counting = nearcall.start(index.count)
        print("counted meanwhile:", counting.result())
        file = index.open("b.log")
        lines = file.lines()
        print(f"{file.name()} has {len(lines)} lines, the first is {lines[0]!r}")
        try:
            with nearcall.timeout(0.1):
                index.compact(1.0)
        except nearcall.DeadlineExceeded:
            print("too slow")
        try:
            index.open("c.log")
        except KeyError as error:
            print("refused:", type(error).__name__)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Index, URL)
    else:
        ask()
