"""What the study does not ask and a router is for: one message to several receivers, and receivers that take turns.

A sender sends as fast as it goes; then each receiver says how many have come, and when the last did.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial

from nearcall_lab.adapters.librmr import library, whose
from nearcall_lab.studies.replica import TRIAL, Findings
from nearcall_lab.studies.rmr.by_messaging import by_iceoryx2, by_nats, by_zmq
from nearcall_lab.studies.rmr.by_tables import nodes, programs
from nearcall_lab.studies.rmr.tally import Measure, Opened

COPIES = (1, 2, 5, 10)
TURNS = (2, 5, 10)
"""How many receivers."""
MESSAGES = 100_000
SIZE = 20


def measure(opened: Opened, messages: int) -> tuple[float, list[int]]:
    """As `Measure`, with receivers that are there."""
    send_all, ask = opened
    data = os.urandom(SIZE)
    begin = time.monotonic_ns()
    send_all(data, messages)
    reports = ask()
    return messages / (max(last for _, last in reports) - begin) * 1e9, [count for count, _ in reports]


@contextmanager
def anew(way: Callable[[str, int], AbstractContextManager[Opened]]) -> Iterator[Measure]:
    """What measures with receivers of its own each time."""

    def measured(kind: str, count: int, messages: int) -> tuple[float, list[int]]:
        with way(kind, count) as opened:
            return measure(opened, messages)

    yield measured


def ways(most: int) -> dict[str, Callable[[], AbstractContextManager[Measure]]]:
    """What measures, by the name of its row."""
    path = library()
    return {
        **{
            f"nearcall.route {scheme}": partial(nodes, scheme, most, measure)
            for scheme in ("shm", "unix", "tcp", "rmr", "nats")
        },
        f"librmr_si.so, {whose(path)}" if path else "librmr_si.so": partial(programs, most, measure),
        "nats-py, nats-server": partial(anew, by_nats),
        "pyzmq PUB/SUB, PUSH/PULL": partial(anew, by_zmq),
        "iceoryx2 (Python)": partial(anew, by_iceoryx2),
    }


def run(findings: Findings, scale: float) -> None:
    """Copies to one receiver and to more; then as many that take turns."""
    messages = max(200, round(MESSAGES * scale))
    copied_to, turned = (COPIES, TURNS) if scale >= TRIAL else (COPIES[:2], TURNS[:1])
    findings.add(
        "fan-out",
        "A copy to each receiver, messages/s until the last has all",
        ["1 receiver", *(f"{count} receivers" for count in copied_to[1:])],
    )
    findings.add(
        "turns",
        "Receivers take turns: most less fewest messages of one, % of an even share",
        [f"{count} receivers" for count in turned],
    )

    def copies(name: str, measured: Measure) -> None:
        rates: list[float | None] = []
        for count in copied_to:
            rate, had = measured("copies", count, messages)
            if any(one != messages for one in had):
                raise RuntimeError(f"{count} receivers had {had} of {messages} messages each")
            rates.append(rate)
        findings.put("fan-out", name, rates)

    def turns(name: str, measured: Measure) -> None:
        spreads: list[float | None] = []
        for count in turned:
            _, had = measured("turns", count, messages)
            if sum(had) != messages:
                raise RuntimeError(f"{count} receivers had {had} of {messages} messages")
            spreads.append((max(had) - min(had)) * count / messages * 100)
        findings.put("turns", name, spreads)

    def row(name: str, way: Callable[[], AbstractContextManager[Measure]]) -> None:
        with way() as measured:
            copies(name, measured)
            if "iceoryx2" not in name:  # there nothing takes turns
                turns(name, measured)

    for name, way in ways(max(*copied_to, *turned)).items():
        findings.attempt(f"{name}, one to many", partial(row, name, way))
