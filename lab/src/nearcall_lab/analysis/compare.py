"""Whether one result is faster than another, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import msgspec

from nearcall_lab.results.failed import failed_of
from nearcall_lab.results.metric import Metric, metric_of
from nearcall_lab.results.model import CellResult, Status
from nearcall_lab.results.store import Recorded
from nearcall_lab.stats import FEWEST, Ratio, credible, paired_ratio, significant, unpaired_ratio


@dataclass(frozen=True)
class Limits:
    """The limits that decide a verdict, all as shares; docs/adr/0024-verdicts-for-few-launches.md gives
    the reasons.
    """

    confidence: float = 0.99
    """Confidence of each interval. 1 minus it is also the share of the differences named on one page that may be
    wrong.
    """
    min_effect: float = 0.02
    """A smaller difference is not reported, however certain it is."""
    margin: float = 0.05
    """Two cells are called the same where the whole interval is within this distance of 1."""


LIMITS = Limits()

_SAID: dict[Status, str] = {
    "overloaded": "is overloaded",
    "failed": "failed",
    "unsupported": "cannot run this",
    "not reached": "was not reached",
}

Outcome = Literal["faster", "slower", "same", "cannot tell", "unusable"]
"""``same``: it is certain that the two differ by less than the margin. ``cannot tell``: neither that nor a difference
is certain; more launches, or a quieter machine, could decide it. ``unusable``: there is nothing to compare.
"""


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
    """Why the comparison is unusable."""
    margin: float = LIMITS.margin
    """The margin that ``same`` refers to."""
    among: int = 1
    """Number of comparisons that were made together; above 1 where a difference is not named because there were so
    many.
    """

    @property
    def work(self) -> str:
        """The work, in a few words."""
        return self.candidate.cell.title()

    def sentence(self) -> str:
        """The verdict, for example ``3.10× [2.90–3.30] faster at 1 KB echo``, and which calls failed meanwhile."""
        return "; ".join([self._verdict(), *self.failures()])

    def failures(self) -> list[str]:
        """Which of the two had calls that failed: a speed that was reached with failed calls is worth less."""
        sides = (("base", self.base), ("candidate", self.candidate))
        found = [(side, failed_of(result.launches).sentence()) for side, result in sides]
        return [f"{side}: {sentence}" for side, sentence in found if sentence]

    def _verdict(self) -> str:
        if self.speed is None or self.outcome == "unusable":
            return f"no verdict at {self.work}: {self.problem}"
        if self.outcome == "same":
            return f"the same within {self.margin * 100:g} % at {self.work}: {interval_text(self.speed)}"
        if self.outcome == "cannot tell":
            chance = f", which chance gives among {self.among} comparisons" if self.among > 1 else ""
            return f"cannot tell at {self.work}: {interval_text(self.speed)}{chance}"
        shown = self.speed if self.outcome == "faster" else self.speed.inverse()
        return f"{interval_text(shown)} {self.outcome} at {self.work}"


def interval_text(ratio: Ratio) -> str:
    """For example ``3.10× [2.90–3.30]``."""
    if ratio.low is None or ratio.high is None:
        return f"{significant(ratio.value)}×"
    return f"{significant(ratio.value)}× [{significant(ratio.low)}–{significant(ratio.high)}]"


def judge(speed: Ratio, limits: Limits = LIMITS) -> Outcome:
    """The outcome of an interval.

    A difference needs an interval without 1 and an effect that matters. Equivalence needs an interval within the
    margin, which is to pass two one-sided tests: D. J. Schuirmann, "A comparison of the two one-sided tests procedure
    and the power approach", Journal of Pharmacokinetics and Biopharmaceutics 15 (1987).
    """
    if speed.low is None or speed.high is None:
        return "unusable"
    least = 1 + limits.min_effect
    if speed.decided() and not 1 / least < speed.value < least:
        return "faster" if speed.value > 1 else "slower"
    return _without_a_difference(speed, limits)


def _without_a_difference(speed: Ratio, limits: Limits) -> Outcome:
    most = 1 + limits.margin
    within = speed.low is not None and speed.high is not None and 1 / most < speed.low and speed.high < most
    return "same" if within else "cannot tell"


def compare(base: CellResult, candidate: CellResult, paired: bool, limits: Limits = LIMITS) -> Comparison:
    """Compare two cells by the metric of the candidate's; `paired` if launches of one number were made side by side.

    This judges one comparison by itself. Several that are shown together are judged by `together`.
    """
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
    if usable < FEWEST <= fewest:
        return unusable(f"only {usable} of {fewest} launches have samples enough for a median: give them more seconds")
    if not usable:
        return unusable("no launch has samples enough for a median")
    speed = speed_of(ours, theirs, metric.more_is_better, paired, limits.confidence)
    if speed.low is None:
        return unusable(f"an interval needs three launches, there are {speed.pairs}", speed)
    return Comparison(base, candidate, metric, speed, paired, judge(speed, limits), margin=limits.margin)


def together(comparisons: Sequence[Comparison], limits: Limits = LIMITS) -> list[Comparison]:
    """Verdicts that are shown on one page: a difference that chance can produce among that many comparisons is not
    named.

    Of the differences that are left at most the share 1 - `limits.confidence` is wrong on average, and a page without
    any difference names one no more often than that.
    """
    tested = [(c, c.speed) for c in comparisons if c.speed is not None and c.speed.p_value is not None]
    kept = credible([speed.p_value or 0.0 for _, speed in tested], 1 - limits.confidence)
    judged = {
        id(c): replace(c, outcome=_without_a_difference(speed, limits), among=len(tested))
        for (c, speed), keep in zip(tested, kept, strict=True)
        if not keep and c.outcome in ("faster", "slower")
    }
    return [judged.get(id(c), c) for c in comparisons]


def speed_of(ours: list[float], theirs: list[float], more_is_better: bool, paired: bool, confidence: float) -> Ratio:
    """How many times better our launches are than theirs."""
    top, bottom = (ours, theirs) if more_is_better else (theirs, ours)
    if paired:
        return paired_ratio(top, bottom, confidence=confidence)
    return unpaired_ratio(top, bottom, confidence=confidence)


def compare_runs(base: Recorded, candidate: Recorded, limits: Limits = LIMITS) -> list[Comparison]:
    """Every cell that both runs have. Two runs share no point in time, so their launches are not paired."""
    same = base.path.resolve() == candidate.path.resolve()
    found = []
    for result in candidate.cells:
        other = base.cell(result.digest)
        if other is not None and (other.launches or result.launches):
            found.append(compare(other, result, same, limits))
    return together(found, limits)


def compare_mechanisms(recorded: Recorded, base: str, candidate: str, limits: Limits = LIMITS) -> list[Comparison]:
    """Two mechanisms on all work that both were given in one run, paired by launch."""
    return together([c for c in _with(recorded, base, limits) if c.candidate.cell.mechanism == candidate], limits)


def against_baseline(recorded: Recorded, limits: Limits = LIMITS) -> dict[str, Comparison]:
    """Each cell of a run, by digest, against the run's baseline on the same work; without the floor, which does not
    compete.
    """
    info = recorded.info
    found = [c for c in _with(recorded, info.baseline, limits) if c.candidate.cell.mechanism != info.floor]
    return {c.candidate.digest: c for c in together(found, limits)}


def _with(recorded: Recorded, base: str, limits: Limits) -> list[Comparison]:
    """Every cell compared with the cell of the mechanism `base` for the same work, except where neither could be
    run.
    """
    by_work = {_without_mechanism(r): r for r in recorded.cells if r.cell.mechanism == base}
    pairs = ((by_work.get(_without_mechanism(result)), result) for result in recorded.cells)
    return [
        compare(other, result, True, limits)
        for other, result in pairs
        if other is not None and other is not result and not {result.status, other.status} <= {"unsupported"}
    ]


def _without_mechanism(result: CellResult) -> str:
    return msgspec.structs.replace(result.cell, mechanism="").digest()


def note(comparisons: Sequence[Comparison], limits: Limits = LIMITS) -> str:
    """What a reader must know about these verdicts, in a few sentences."""
    paired = {comparison.paired for comparison in comparisons} <= {True}
    tested = sum(c.speed is not None and c.speed.p_value is not None for c in comparisons)
    return f"{_rule(paired, limits)} {_number(tested, limits)}"


def _rule(paired: bool, limits: Limits) -> str:
    """The rule by which two cells are called different, or the same."""
    how = "launches paired" if paired else "launches not paired, since two runs share no point in time"
    return (
        f"Intervals of {limits.confidence * 100:g} % over launches ({how}). A difference is named from "
        f"{limits.min_effect * 100:g} % on, where the interval leaves 1 out; two are the same where the whole interval "
        f"is within {limits.margin * 100:g} %; otherwise the launches cannot tell."
    )


def _number(comparisons: int, limits: Limits) -> str:
    """What chance would do in that many comparisons at once, and what is done against it."""
    wrong = (1 - limits.confidence) * 100
    if comparisons < 2:
        return f"Where there is no difference, one is named in {wrong:g} of 100 comparisons."
    by_chance = significant(comparisons * (1 - limits.confidence), 2)
    return (
        f"If nothing differed, about {by_chance} of {comparisons} intervals would leave 1 out by chance. So a "
        f"difference must be surer than that, and of those named at most {wrong:g} % are wrong on average (Benjamini "
        "and Hochberg)."
    )
