"""Candidates for stated needs, each with the stored numbers that come closest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from nearcall_lab.analysis.summary import Summary, summaries
from nearcall_lab.choice.facts import Facts, facts_of
from nearcall_lab.choice.needs import Needs, against
from nearcall_lab.registry import Entrant
from nearcall_lab.results.store import Recorded
from nearcall_lab.scenario.cell import Network

_FAR = 30.0
"""A size that differs by more than this factor says little about the one that is asked for."""


@dataclass(frozen=True)
class Number:
    """A stored cell that says something about the needs."""

    summary: Summary
    run: str
    started: str


@dataclass
class Candidate:
    """A mechanism that does what is needed, or would if it were faster."""

    entrant: Entrant
    facts: Facts
    number: Number | None = None
    most: float | None = None
    """The most a second that any stored cell of such work reached; None where there is none."""

    def too_slow(self, needs: Needs) -> bool:
        """Whether more is asked for a second than was ever measured."""
        return bool(needs.rate and self.most is not None and self.most < needs.rate)


@dataclass
class Choice:
    """The answer."""

    candidates: list[Candidate] = field(default_factory=list)
    """The fastest first; those without numbers last."""
    too_slow: list[Candidate] = field(default_factory=list)
    left_out: dict[str, list[str]] = field(default_factory=dict)
    """Why each of the others does not do, by label."""
    unknown: list[str] = field(default_factory=list)
    """Labels of mechanisms of which the lab has no facts."""


def choose(needs: Needs, entrants: Sequence[Entrant], runs: Iterable[Recorded]) -> Choice:
    """The mechanisms that do what is needed. Of several runs with the same cell the last one counts."""
    numbers: dict[str, list[Number]] = {}
    for recorded in runs:
        for summary in summaries(recorded):
            found = Number(summary, str(recorded.path), recorded.info.started)
            numbers.setdefault(summary.result.cell.mechanism, []).append(found)
    choice = Choice()
    for entrant in entrants:
        facts, mechanism = facts_of(entrant), entrant.mechanism
        if mechanism.family == "floor":
            continue
        if facts is None:
            choice.unknown.append(mechanism.label)
        elif reasons := against(needs, mechanism, facts):
            choice.left_out[mechanism.label] = reasons
        else:
            mine = [number for number in numbers.get(mechanism.name, []) if _speaks_of(number, needs)]
            best = min(mine, key=lambda number: _distance(number, needs), default=None)
            candidate = Candidate(entrant, facts, best, max(map(a_second, mine), default=None))
            (choice.too_slow if candidate.too_slow(needs) else choice.candidates).append(candidate)
    choice.candidates.sort(key=_speed)
    choice.too_slow.sort(key=_speed)
    return choice


def a_second(number: Number) -> float:
    """Calls, messages or items of a stream that were done in a second."""
    return (number.summary.throughput or 0.0) * max(1, number.summary.result.cell.work.items)


def _speaks_of(number: Number, needs: Needs) -> bool:
    """Whether a cell is of the operation and about the size that are needed, measured in full on the machine itself."""
    cell = number.summary.result.cell
    apart = not (cell.same_process or cell.mode.callers or cell.mode.kind in ("connect", "burst", "mixed"))
    if cell.work.operation != needs.operation or not apart or number.summary.value is None:
        return False
    if not needs.other_host and (cell.host or cell.network != Network()):
        return False
    return needs.operation == "count" or _apart(cell.work.size, needs.size) <= math.log(_FAR)


def _apart(one: int, other: int) -> float:
    return abs(math.log(max(1, one) / max(1, other)))


def _distance(number: Number, needs: Needs) -> tuple[float, float, float]:
    """The smaller, the more a cell says: first its size, then the calls under way, then the rate."""
    cell = number.summary.result.cell
    slots = _apart(cell.mode.slots, needs.at_once)
    rate = _apart(round(cell.mode.rate), round(needs.rate)) if needs.rate and cell.mode.rate else 1.0
    return _apart(cell.work.size, needs.size), slots, rate if needs.rate else cell.mode.rate


def _speed(candidate: Candidate) -> tuple[bool, float]:
    number = candidate.number
    if number is None or number.summary.value is None:
        return True, 0.0
    median = number.summary.quantiles.get(0.5)
    if number.summary.metric.more_is_better or median is None:
        return False, 1e9 / (a_second(number) or 1.0)
    return False, median.value
