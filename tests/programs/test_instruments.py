"""Instruments are found, call back, and are found again when they, or the name server, were replaced."""

from __future__ import annotations

import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import IO

import pytest

import nearcall

from ..e2e.ports import own_port
from . import instruments

PATIENCE = 60.0


class Program:
    """A process of the program, and what it says, line by line."""

    def __init__(self, *words: str) -> None:
        command = [sys.executable, instruments.__file__, *words]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self._lines: queue.Queue[str | None] = queue.Queue()
        assert self.process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self.process.stdout,))
        self._reader.start()

    def _read(self, lines: IO[str]) -> None:
        for line in lines:
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def line(self) -> str | None:
        """The next one; nothing when there is none any more."""
        return self._lines.get(timeout=PATIENCE)

    def rest(self) -> list[str]:
        """What it says until it ends."""
        said: list[str] = []
        while (line := self.line()) is not None:
            said.append(line)
        return said

    def end(self) -> str:
        """Kills it. What it has complained of."""
        self.process.kill()
        self._reader.join(PATIENCE)
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        complaints = self.process.stderr.read()
        self.process.wait(PATIENCE)
        self.process.stdout.close()
        self.process.stderr.close()
        return complaints


Start = Callable[..., Program]


@pytest.fixture
def start() -> Iterator[Start]:
    begun: list[Program] = []

    def start(*words: str) -> Program:
        begun.append(Program(*words))
        return begun[-1]

    yield start
    complaints = [program.end() for program in begun]
    assert complaints == [""] * len(begun)


@pytest.fixture
def url() -> str:
    return f"tcp://127.0.0.1:{own_port()}"


def test_found_by_name_and_called_back(start: Start, url: str) -> None:
    start("names", url).line()
    scope = start("serve", url, "scope", "3", "fast", "old")
    other = start("serve", url, "meter", "2", "old")
    assert scope.line() == "known as scope"
    assert other.line() == "known as meter"
    assert start("record", url, "scope", "4").rest() == [
        "say arm(level) first",
        "0: 0 V",
        "2: 6 V",
        "2 told",
    ]
    assert scope.line() == "disarmed"
    assert start("record", url, "meter", "5").rest()[-3:] == ["4: 8 V", "warning: 8 V is over 7 V", "3 told"]
    with nearcall.connect(url, instruments.Names) as names:
        assert sorted(names.having(frozenset({"old"}))) == ["meter", "scope"]
        assert list(names.having(frozenset({"old", "fast"}))) == ["scope"]
        with pytest.raises(nearcall.NotFound, match="there is no camera") as missed:
            names.lookup("camera")
        assert missed.value.details == ["meter", "scope"]


def test_a_session_for_each_client(start: Start, url: str) -> None:
    start("names", url).line()
    scope = start("serve", url, "scope", "3")
    assert scope.line() == "known as scope"
    with nearcall.connect(url, instruments.Names) as names:
        place = names.lookup("scope")
    with nearcall.connect(place.url, instruments.Scope) as other:
        with nearcall.connect(place.url, instruments.Scope) as armed:
            armed.arm(1.0)
            with pytest.raises(instruments.NotArmed):
                other.record(1, instruments.Printer())
            assert armed.record(0, instruments.Printer()) == 0
        assert scope.line() == "disarmed"
        readings = other.watch()
        assert [next(readings) for _ in range(3)] == [0.0, 3.0, 6.0]
    assert scope.line() == "never armed"


def test_names_of_the_dead_are_free(start: Start, url: str) -> None:
    start("names", url).line()
    first = start("serve", url, "scope", "3")
    assert first.line() == "known as scope"
    second = start("serve", url, "scope", "2")
    assert second.line() == "there is a scope already"
    with nearcall.connect(url, instruments.Names) as names:
        place = names.lookup("scope")
        with nearcall.connect(place.url, instruments.Scope) as scope:
            first.process.kill()
            while second.line() != "known as scope":
                pass
            with pytest.raises(nearcall.Unavailable):
                scope.arm(1.0)
        assert names.lookup("scope") != place


def test_a_name_server_that_is_replaced_learns_all_again(start: Start, url: str) -> None:
    names = start("names", url)
    assert names.line() == url
    scope = start("serve", url, "scope", "3")
    assert scope.line() == "known as scope"
    names.process.kill()
    names.process.wait(PATIENCE)
    start("names", url).line()
    assert scope.line() == "known as scope"
    assert start("record", url, "scope", "1").rest()[-1] == "1 told"
