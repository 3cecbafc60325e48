"""A log that other processes follow: one-way calls in, an endless stream out, and an end that both sides notice.

    python examples/log_tail.py serve
    python examples/log_tail.py

It prints::

    INFO disk is at 91 %
    WARNING disk is at 92 %
    WARNING disk is at 93 %
    followers: 1
    followers after the last one left: 0
"""

import enum
import queue
import sys
import time
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass

import nearcall

URL = "shm://example-log"


class Level(enum.IntEnum):
    DEBUG = 10
    INFO = 20
    WARNING = 30


@dataclass
class Line:
    level: Level
    text: str


@nearcall.service
class Log:
    def __init__(self) -> None:
        self._followers: set[queue.SimpleQueue[Line]] = set()
        self._last: list[Line] = []

    @nearcall.oneway
    def write(self, line: Line) -> None:
        """Returns as soon as the line is on its way."""
        self._last = [*self._last[-99:], line]
        for follower in list(self._followers):
            follower.put(line)

    def tail(self, last: int = 10, at_least: Level = Level.DEBUG) -> Generator[Line, None, None]:
        """The last lines, then every new one, until the caller has had enough."""
        mine: queue.SimpleQueue[Line] = queue.SimpleQueue()
        for line in self._last[-last:]:
            mine.put(line)
        self._followers.add(mine)
        try:
            while True:
                line = mine.get()
                if line.level >= at_least:
                    yield line
        finally:  # the caller closed the stream, or is gone: noticed with the next line
            self._followers.discard(mine)

    def followers(self) -> int:
        return len(self._followers)


def main() -> None:
    with nearcall.connect(URL, Log) as log:
        log.write(Line(Level.DEBUG, "started"))
        log.write(Line(Level.INFO, "disk is at 91 %"))
        # Leaving a stream early gives the call up. An iterator has no close() for type checkers; a generator has.
        with closing(log.tail(at_least=Level.INFO)) as lines:
            first = next(lines)
            print(first.level.name, first.text)
            for percent in (92, 93):
                log.write(Line(Level.WARNING, f"disk is at {percent} %"))
                line = next(lines)
                print(line.level.name, line.text)
            print("followers:", log.followers())
        while log.followers():
            log.write(Line(Level.INFO, "anybody there?"))
            time.sleep(0.01)
        print("followers after the last one left:", log.followers())


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Log(), URL)
    else:
        main()
