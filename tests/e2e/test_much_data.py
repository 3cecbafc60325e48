"""Much data through a stream whose consumer is slower than its producer: the memory of both sides stays small."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType

import pytest

import nearcall

from .process import ServerProcess

ITEM = 1 << 20
ITEMS = 200
MOST_MB = 50


def slowly(items: Iterable[bytes]) -> Iterator[bytes]:
    for item in items:
        time.sleep(0.0005)  # what makes the consumer the slower one, not what the test waits for
        yield item


@nearcall.service
class Pipe:
    def drink(self, data: Iterator[bytes]) -> int:
        return sum(len(item) for item in slowly(data))

    def pour(self, items: int) -> Iterator[bytes]:
        for _ in range(items):
            yield bytes(ITEM)

    def through(self, data: Iterator[bytes]) -> Iterator[bytes]:
        yield from data


def services() -> list[object]:
    return [Pipe()]


class Resident:
    """The most resident memory of some processes while a block runs, beyond what they had before it."""

    def __init__(self, *pids: int) -> None:
        self._pids = pids
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._before = self._most = 0

    def _look(self) -> int:
        pages = (int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._pids)
        return sum(pages) * os.sysconf("SC_PAGE_SIZE")

    def _watch(self) -> None:
        while not self._ended.wait(0.005):
            self._most = max(self._most, self._look())

    def __enter__(self) -> Resident:
        self._before = self._most = self._look()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def grown_mb(self) -> float:
        return (self._most - self._before) / 1e6


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["drink", "pour", "through"])
def test_memory_stays_small(outside_url: str, direction: str) -> None:
    with (
        ServerProcess(outside_url, services=f"{__name__}:services") as server,
        nearcall.connect(server.url, Pipe) as pipe,
    ):
        assert pipe.drink(iter([b"", b"x"])) == 1  # threads and buffers that the first call makes are no stream's
        source = (bytes(ITEM) for _ in range(ITEMS))
        with Resident(os.getpid(), server.pid) as resident:
            if direction == "drink":
                octets = pipe.drink(source)
            else:
                items = pipe.pour(ITEMS) if direction == "pour" else pipe.through(source)
                octets = sum(len(item) for item in slowly(items))
        assert octets == ITEMS * ITEM
        assert resident.grown_mb < MOST_MB
