"""A table of routes that is swapped while messages flow: what is lost, doubled or goes astray, and how long it takes.

Two tables of many entries take turns: by the one all messages go to one receiver, by the other to a second one.
Messages have numbers, and the time when they were due. Each receiver keeps both, and when they came.
"""

from __future__ import annotations

import os
import struct
import threading
import time
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from nearcall_lab.studies.replica import Findings
from nearcall_lab.studies.rmr.by_tables import places, serve_until_terminated
from nearcall_lab.studies.rmr.tally import PATIENCE_S
from nearcall_lab.studies.serving import server_process

ENTRIES = 10_000
RATE = 8_500
"""Messages per second: the study's second highest rate. Sender and tables share an interpreter."""
SECONDS = 10.0
"""At scale 1, with tables that are swapped and once more without."""
PAUSE_S = 0.02
"""Between two tables."""
SIZE = 20
_NUMBER = struct.Struct("<qq")
_FIRST, _JOURNAL = 1_000, 100_000
"""Types of messages: the first of `ENTRIES`, and the question for what was kept."""


def serve_journal(url: str, ready: Callable[[Any], None]) -> None:
    """A node that keeps number and delay of each message."""
    from nearcall import route

    kept, node = array("q"), route.Node(url)

    def take(message: Any) -> None:
        now = time.monotonic_ns()
        number, due = _NUMBER.unpack_from(message.payload)
        kept.extend((number, now - due))

    def tell(message: Any) -> None:
        message.reply(kept.tobytes())
        del kept[:]

    node.on(*range(_FIRST, _FIRST + ENTRIES))(take)
    node.on(_JOURNAL)(tell)
    serve_until_terminated(node, ready)


def table(name: str, url: str) -> str:
    """All types go to one receiver."""
    entries = "".join(f"mse | {type_} | -1 | {url}\n" for type_ in range(_FIRST, _FIRST + ENTRIES))
    return f"newrt | start | {name}\n{entries}newrt | end | {ENTRIES}\n"


class Swaps(threading.Thread):
    """Puts tables in force, one after the other, until it is told to end."""

    def __init__(self, node: Any, tables: Sequence[str]) -> None:
        super().__init__(daemon=True)
        self._node, self._tables = node, tables
        self._enough = threading.Event()
        self.in_force: int | None = 0
        """Number of the table that alone can be in force now; None while one takes the other's place."""
        self.took_s: list[float] = []
        self.problem: Exception | None = None

    def run(self) -> None:
        turn = 0
        try:
            while not self._enough.wait(PAUSE_S):
                turn = (turn + 1) % len(self._tables)
                self.in_force = None
                begin = time.perf_counter()
                self._node.install(self._tables[turn])
                self.took_s.append(time.perf_counter() - begin)
                self.in_force = turn
        except Exception as error:
            self.problem = error

    def end(self) -> None:
        self._enough.set()
        self.join()
        if self.problem is not None:
            raise self.problem


class Outcome:
    """What became of all messages of one run."""

    def __init__(self, sent: Sequence[int | None], journals: Sequence[array[int]]) -> None:
        """`sent` has, for each message, whose it was by the only table in force; None if two were possible."""
        came = Counter(number for journal in journals for number in journal[::2])
        self.lost = len(sent) - len(came)
        self.doubled = sum(count - 1 for count in came.values())
        self.astray = sum(
            sent[number] is not None and sent[number] != receiver
            for receiver, journal in enumerate(journals)
            for number in journal[::2]
        )
        self.delays_us = sorted(delay / 1e3 for journal in journals for delay in journal[1::2])

    def quantile(self, share: float) -> float:
        """Microseconds from when a message was due until it came."""
        return self.delays_us[min(len(self.delays_us) - 1, int(len(self.delays_us) * share))]


def flow(node: Any, seconds: float, in_force: Callable[[], int | None]) -> list[int | None]:
    """Sends at the rate; returns which table was in force before and after each message, None if that changed."""
    padding, sent = os.urandom(SIZE - _NUMBER.size), []
    begin = time.monotonic_ns()
    for number in range(round(RATE * seconds)):
        due = begin + number * 1_000_000_000 // RATE
        left = due - time.monotonic_ns()
        if left > 0:
            time.sleep(left / 1e9)
        before = in_force()
        node.send(_FIRST + number % ENTRIES, _NUMBER.pack(number, due) + padding)
        sent.append(before if before == in_force() else None)
    return sent


def row(findings: Findings, scheme: str, seconds: float) -> None:
    """One transport, with tables swapped and without."""
    from nearcall import route

    with ExitStack() as stack:
        place = stack.enter_context(places(scheme))
        urls = [stack.enter_context(server_process(serve_journal, place(name))) for name in ("first", "second")]
        node = stack.enter_context(route.Node(place("sender")))
        tables = [table(f"t{number}", url) for number, url in enumerate(urls)]
        for text in reversed(tables):  # so that both receivers are connected, and the first table is in force
            node.install(text)
            node.ready(PATIENCE_S)

        def journals() -> list[array[int]]:
            found = []
            for url in urls:
                journal = array("q")
                journal.frombytes(node.call(_JOURNAL, to=url, timeout=PATIENCE_S).payload)
                found.append(journal)
            return found

        still = Outcome(flow(node, seconds, lambda: 0), journals())
        swaps = Swaps(node, tables)
        swaps.start()
        sent = flow(node, seconds, lambda: swaps.in_force)
        swaps.end()
        moved = Outcome(sent, journals())
    findings.put(
        "swap",
        f"nearcall.route {scheme}",
        [
            *(len(sent), len(swaps.took_s), moved.lost, moved.doubled, moved.astray),
            *(moved.quantile(0.5), moved.quantile(0.99), moved.delays_us[-1], still.quantile(0.99)),
            sum(swaps.took_s) / len(swaps.took_s) * 1e3,
        ],
    )


def run(findings: Findings, scale: float) -> None:
    """Each transport of the router."""
    findings.add(
        "swap",
        f"A table of {ENTRIES:,} entries swapped while {RATE:,} messages/s flow",
        [
            *("messages", "tables", "lost", "doubled", "by the wrong table"),
            *("p50 µs", "p99 µs", "longest µs", "p99 µs, no swaps", "ms a table"),
        ],
    )
    for scheme in ("shm", "unix", "tcp", "rmr", "nats"):
        findings.attempt(
            f"nearcall.route {scheme}, tables swapped", partial(row, findings, scheme, max(0.4, SECONDS * scale))
        )
