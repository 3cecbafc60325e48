"""Whether one result is faster than another, and how sure that is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from nearcall_lab.results.failed import failed_of
from nearcall_lab.results.metric import Metric, metric_of
from nearcall_lab.results.model import CellResult, Status
from nearcall_lab.results.store import Recorded
from nearcall_lab.stats import Ratio, paired_ratio, significant, unpaired_ratio

CONFIDENCE = 0.99
"""Of the interval a verdict rests on. With 95 % every twentieth comparison of a thing with itself would find a
difference."""
MIN_EFFECT = 0.02
"""A smaller difference is not called one, however sure it is."""

_SAID: dict[Status, str] = {
    "overloaded": "is overloaded",
    "failed": "failed",
    "unsupported": "cannot run this",
    "not reached": "was not reached",
}

Outcome = Literal["faster", "slower", "same", "unusable"]


@dataclass(frozen=True)
class Comparison:
    """A candidate against a base on the same work."""

    base: CellResult
    candidate: CellResult
    metric: Metric
    speed: Ratio | None
    """How many times better the candidate is: above 1 is faster. None where there is nothing to compare."""
    paired: bool
    outcome: Outcome
    problem: str = ""
    """Why it is unusable."""

    @property
    def work(self) -> str:
        """What was done, in a few words."""
        return self.candidate.cell.title()

    def sentence(self) -> str:
        """The verdict, for example ``3.10× [2.90–3.30] faster at 1 KB echo``, and what calls failed meanwhile."""
        return "; ".join([self._verdict(), *self.failures()])

    def failures(self) -> list[str]:
        """Which of the two had calls that failed; a speed reached without them is worth less."""
        sides = (("base", self.base), ("candidate", self.candidate))
        found = [(side, failed_of(result.launches).sentence()) for side, result in sides]
        return [f"{side}: {sentence}" for side, sentence in found if sentence]

    def _verdict(self) -> str:
        if self.speed is None or self.outcome == "unusable":
            return f"no verdict at {self.work}: {self.problem}"
        if self.outcome == "same":
            return f"no difference at {self.work}: {interval_text(self.speed)}"
        shown = self.speed if self.outcome == "faster" else self.speed.inverse()
        return f"{interval_text(shown)} {self.outcome} at {self.work}"


def interval_text(ratio: Ratio) -> str:
    """For example ``3.10× [2.90–3.30]``."""
    if ratio.low is None or ratio.high is None:
        return f"{significant(ratio.value)}×"
    return f"{significant(ratio.value)}× [{significant(ratio.low)}–{significant(ratio.high)}]"


def judge(speed: Ratio, min_effect: float) -> Outcome:
    """The outcome of an interval: a difference needs an interval without 1 and an effect that matters."""
    if speed.low is None:
        return "unusable"
    if not speed.decided() or 1 / (1 + min_effect) < speed.value < 1 + min_effect:
        return "same"
    return "faster" if speed.value > 1 else "slower"


def compare(
    base: CellResult,
    candidate: CellResult,
    paired: bool,
    confidence: float = CONFIDENCE,
    min_effect: float = MIN_EFFECT,
) -> Comparison:
    """Compare two cells by the metric of the candidate's; `paired` if launches of one number were made side by side."""
    metric = metric_of(candidate.cell)

    def unusable(problem: str, speed: Ratio | None = None) -> Comparison:
        return Comparison(base, candidate, metric, speed, paired, "unusable", problem)

    for result in (base, candidate):
        if result.status != "ok":
            reason = f": {result.problem}" if result.problem else ""
            return unusable(f"{result.cell.mechanism} {_SAID[result.status]}{reason}")
    by_number = [
        {launch.number: value for launch in result.launches if (value := metric.of(launch)) is not None}
        for result in (candidate, base)
    ]
    if paired:
        both = sorted(by_number[0].keys() & by_number[1].keys())
        ours, theirs = ([values[number] for number in both] for values in by_number)
    else:
        ours, theirs = (list(values.values()) for values in by_number)
    fewest = min(len(base.launches), len(candidate.launches))
    usable = min(len(ours), len(theirs))
    if usable < 3 <= fewest:
        return unusable(f"only {usable} of {fewest} launches have samples enough for a median: give them more seconds")
    if not usable:
        return unusable("no launch has samples enough for a median")
    speed = speed_of(ours, theirs, metric.more_is_better, paired, confidence)
    if speed.low is None:
        return unusable(f"an interval needs three launches, there are {speed.pairs}", speed)
    return Comparison(base, candidate, metric, speed, paired, judge(speed, min_effect))


def speed_of(ours: list[float], theirs: list[float], more_is_better: bool, paired: bool, confidence: float) -> Ratio:
    """How many times better our launches are than theirs."""
    top, bottom = (ours, theirs) if more_is_better else (theirs, ours)
    if paired:
        return paired_ratio(top, bottom, confidence=confidence)
    return unpaired_ratio(top, bottom, confidence=confidence)


def compare_runs(
    base: Recorded, candidate: Recorded, confidence: float = CONFIDENCE, min_effect: float = MIN_EFFECT
) -> list[Comparison]:
    """Every cell that both runs have. Two runs share no point in time, so their launches are not paired."""
    same = base.path.resolve() == candidate.path.resolve()
    found = []
    for result in candidate.cells:
        other = base.cell(result.digest)
        if other is not None and (other.launches or result.launches):
            found.append(compare(other, result, same, confidence, min_effect))
    return found


def compare_mechanisms(
    recorded: Recorded, base: str, candidate: str, confidence: float = CONFIDENCE, min_effect: float = MIN_EFFECT
) -> list[Comparison]:
    """Two mechanisms on all work that both were given in one run, paired by launch."""
    by_work = {_without_mechanism(r): r for r in recorded.cells if r.cell.mechanism == base}
    found = []
    for result in recorded.cells:
        if result.cell.mechanism == candidate:
            other = by_work.get(_without_mechanism(result))
            if other is not None and not {result.status, other.status} <= {"unsupported"}:
                found.append(compare(other, result, True, confidence, min_effect))
    return found


def _without_mechanism(result: CellResult) -> str:
    return msgspec.structs.replace(result.cell, mechanism="").digest()


def note(comparisons: list[Comparison], confidence: float, min_effect: float) -> str:
    """What a reader must know of these verdicts, in a sentence or two."""
    ways = {comparison.paired for comparison in comparisons}
    how = "launches paired" if ways == {True} else "launches not paired, since two runs share no point in time"
    text = (
        f"Intervals of {confidence * 100:g} % over launches ({how}); "
        f"a difference is named from {min_effect * 100:g} % on."
    )
    expected = len(comparisons) * (1 - confidence)
    if expected >= 0.5:
        text += f" Of so many comparisons about {expected:.0f} would find a difference where there is none."
    return text
