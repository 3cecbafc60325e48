"""What results mean: quantiles, intervals, checks and verdicts, on samples whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from made_up import latencies, launch, result
from nearcall_lab.analysis.compare import (
    Limits,
    against_baseline,
    compare,
    compare_mechanisms,
    interval_text,
    judge,
    note,
    together,
)
from nearcall_lab.analysis.quantiles import quantile
from nearcall_lab.analysis.same import launches_for, tally
from nearcall_lab.analysis.summary import little_problem, summarise, without_number
from nearcall_lab.results.distribution import BrokenHistogram, Distribution, decode, merged
from nearcall_lab.results.histogram import latencies as stored
from nearcall_lab.results.kept_up import overload
from nearcall_lab.results.metric import metric_of
from nearcall_lab.results.model import CellResult, Latencies, Launch
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.stats import Ratio, spread, student_t, unpaired_ratio


def _decoded(samples: np.ndarray) -> Distribution:  # type: ignore[type-arg]
    found = stored(samples.astype(np.int64))
    assert found is not None
    return decode(found)


def test_what_is_stored_is_read_within_a_bucket() -> None:
    rng = np.random.default_rng(1)
    samples = np.exp(rng.uniform(0, np.log(3.5e12), 20_000)).astype(np.int64)
    found = _decoded(samples)
    assert found.n == 20_000
    for p in (0.5, 0.9, 0.99):
        truth = np.sort(samples)[int(np.ceil(p * 20_000)) - 1]
        assert found.quantile(p) == pytest.approx(truth, rel=0.001)
    assert found.mean() == pytest.approx(samples.mean(), rel=0.001)
    values, counts = found.points()
    assert counts.sum() == 20_000
    assert (np.diff(values) > 0).all()


def test_short_times_are_exact() -> None:
    assert decode(latencies([1, 2, 3, 2047])).points()[0].tolist() == [1, 2, 3, 2047]


def test_launches_are_merged_and_never_averaged() -> None:
    """Nine fast launches and a slow one: the mean of ten p99s is far from the p99 of all calls."""
    parts = [latencies([1000] * 1000) for _ in range(9)] + [latencies([100_000] * 1000)]
    found = merged(parts)
    assert found is not None
    assert found.n == 10_000
    assert found.quantile(0.99) == pytest.approx(100_000, rel=0.001)
    assert found.quantile(0.5) == 1000
    assert merged([None, None]) is None


def test_a_quantile_needs_ten_samples_beyond_it() -> None:
    few = _decoded(np.arange(1, 1000))
    assert quantile(few, 0.99) is None
    assert few.quantile(0.99) is None
    assert quantile(_decoded(np.arange(1, 1001)), 0.99) is not None


def test_what_is_not_a_histogram_is_said() -> None:
    for text in ("", "nonsense", "HISTFAAAABl4nC1V"):
        with pytest.raises(BrokenHistogram):
            decode(Latencies(text, 1, 1.0, 1, 1))


@pytest.mark.parametrize("p", [0.5, 0.99])
def test_quantile_intervals_cover_the_truth_as_often_as_they_say(p: float) -> None:
    rng, hits, trials = np.random.default_rng(2), 0, 300
    truth = -1e5 * np.log(1 - p)
    for _ in range(trials):
        found = quantile(_decoded(rng.exponential(1e5, 2_000) + 1), p)
        assert found is not None
        assert found.low <= found.value
        hits += found.low * 0.999 <= truth and (found.high is None or truth <= found.high * 1.001)
    assert 0.92 <= hits / trials <= 0.985


def test_an_interval_beyond_the_largest_sample_is_open() -> None:
    found = quantile(_decoded(np.arange(1, 1001)), 0.99)
    assert found is not None
    assert found.high is not None
    found = quantile(_decoded(np.arange(1, 1001)), 0.99, confidence=0.9999)
    assert found is not None
    assert found.high is None


@pytest.mark.parametrize(
    ("p", "freedom", "truth"),
    [(0.975, 1, 12.706), (0.975, 4, 2.776), (0.995, 9, 3.250), (0.995, 18, 2.878), (0.975, 1000, 1.962)],
)
def test_student_t_is_the_printed_table(p: float, freedom: int, truth: float) -> None:
    assert student_t(p, freedom) == pytest.approx(truth, abs=0.001)


def test_welch_covers_the_truth_as_often_as_it_says() -> None:
    rng, hits, trials = np.random.default_rng(3), 0, 1000
    for _ in range(trials):
        found = unpaired_ratio(list(2 * rng.lognormal(0, 0.1, 5)), list(rng.lognormal(0, 0.02, 8)), confidence=0.95)
        assert found.low is not None
        assert found.high is not None
        hits += found.low <= 2 <= found.high
    assert 0.93 <= hits / trials <= 0.985


def test_spread_narrows_with_launches() -> None:
    rng = np.random.default_rng(4)
    values = list(rng.lognormal(0, 0.05, 100))
    assert spread(values[:2]) is None
    wide, narrow = spread(values[:5]), spread(values)
    assert wide is not None
    assert narrow is not None
    assert narrow == pytest.approx(1.984 * 0.05 / 10, rel=0.25)
    assert wide > 2 * narrow


def test_verdicts() -> None:
    base = result("slow", [3000, 3010, 2990, 3005, 2995])
    faster = compare(base, result("fast", [1000, 1030, 970, 1010, 990]), paired=True)
    assert faster.outcome == "faster"
    assert faster.speed is not None
    assert faster.sentence() == f"{interval_text(faster.speed)} faster at 15 B echo"
    assert faster.sentence().startswith("3.00× [")
    slower = compare(result("fast", [1000, 1030, 970, 1010, 990]), base, paired=False)
    assert slower.outcome == "slower"
    assert slower.sentence().startswith("3.00× [")
    assert slower.sentence().endswith("slower at 15 B echo")


def test_what_the_launches_cannot_tell_is_no_pass() -> None:
    found = compare(result("slow", [1000, 2000, 500, 1500]), result("fast", [1100, 800, 1500, 1000]), paired=True)
    assert found.outcome == "cannot tell"
    assert found.sentence().startswith("cannot tell at 15 B echo: ")


def test_the_same_is_said_with_its_margin() -> None:
    found = compare(result("slow", [1e6, 1001e3, 999e3]), result("fast", [1001e3, 1e6, 1e6]), paired=True)
    assert found.outcome == "same"
    assert found.sentence().startswith("the same within 5 % at 15 B echo: 1.00× [")


@pytest.mark.parametrize(
    ("value", "low", "high", "outcome"),
    [
        (1.03, 1.02, 1.04, "faster"),
        (0.95, 0.94, 0.96, "slower"),
        (1.01, 1.009, 1.011, "same"),  # sure, and too small
        (1.00, 0.96, 1.04, "same"),
        (1.00, 0.95, 1.04, "cannot tell"),  # 1 / 1.05 is 0.952
        (0.95, 0.90, 1.01, "cannot tell"),
        (1.23, 0.546, 2.77, "cannot tell"),
    ],
)
def test_three_answers(value: float, low: float, high: float, outcome: str) -> None:
    assert judge(Ratio(value, low, high, 10)) == outcome
    assert judge(Ratio(value, low, high, 10).inverse()) == {"faster": "slower", "slower": "faster"}.get(
        outcome, outcome
    )


def test_a_gate_may_let_a_small_slowdown_pass() -> None:
    gate = Limits(min_effect=0.05, margin=0.05)
    assert judge(Ratio(0.97, 0.96, 0.98, 10), gate) == "same"
    assert judge(Ratio(0.96, 0.94, 0.98, 10), gate) == "cannot tell"
    assert judge(Ratio(0.93, 0.91, 0.95, 10), gate) == "slower"


def test_a_difference_that_chance_gives_among_many_is_not_named() -> None:
    rng = np.random.default_rng(1)
    found = [
        compare(
            result("slow", list(1e6 * rng.lognormal(0, 0.1, 4))),
            result("fast", list(1e6 * rng.lognormal(0, 0.1, 4))),
            paired=True,
        )
        for _ in range(300)
    ]
    by_itself = [c for c in found if c.outcome in ("faster", "slower")]
    assert by_itself  # one in a hundred
    judged = together(found)
    assert [c.candidate for c in judged] == [c.candidate for c in found]
    assert {c.outcome for c in judged} == {"cannot tell"}
    assert "which chance gives among 300 comparisons" in judged[found.index(by_itself[0])].sentence()


def test_among_many_that_differ_all_are_named() -> None:
    sure = compare(result("slow", [3e6, 3.1e6, 2.9e6]), result("fast", [1e6, 1.03e6, 0.99e6]), paired=True)
    assert {c.outcome for c in together([sure] * 50)} == {"faster"}
    assert together([]) == []


def test_pairing_takes_out_what_launches_have_in_common() -> None:
    noise = np.random.default_rng(5).lognormal(0, 0.5, 6)
    base, candidate = result("slow", list(1100e3 * noise)), result("fast", list(1000e3 * noise))
    assert compare(base, candidate, paired=True).outcome == "faster"
    assert compare(base, candidate, paired=False).outcome == "cannot tell"


def _few() -> CellResult:
    found = result("slow", [])
    found.launches = [launch(number, n=19) for number in range(5)]
    return found


@pytest.mark.parametrize(
    ("base", "candidate", "said"),
    [
        (result("slow", [1000.0] * 2), result("fast", [1000.0] * 5), "an interval needs three launches, there are 2"),
        (_few(), result("fast", [1000.0] * 5), "only 0 of 5 launches have samples enough for a median"),
        (result("slow", [], "failed"), result("fast", [1000.0] * 5), "slow failed"),
        (result("slow", [1.0] * 5), result("fast", [1.0] * 5, "overloaded"), "fast is overloaded"),
    ],
)
def test_what_cannot_be_compared_is_said(base: object, candidate: object, said: str) -> None:
    found = compare(base, candidate, paired=True)  # type: ignore[arg-type]
    assert found.outcome == "unusable"
    assert said in found.sentence()


def test_the_metric_follows_the_mode() -> None:
    def metric(work: Work, mode: Mode) -> str:
        return metric_of(Cell("x", work, mode)).title

    echo = Work(size=15)
    assert metric(echo, Mode()) == "round trip, median"
    assert metric(echo, Mode(connections=2)) == "calls per second"
    assert metric(echo, Mode(outstanding=2)) == "calls per second"
    assert metric(echo, Mode("open", rate=5)) == "response, median"
    assert metric(Work("send", 20), Mode("one-way")) == "messages per second"
    assert metric(Work("send", 20), Mode("one-way", rate=5)) == "until arrival, median"
    assert metric_of(Cell("x", Work("count", items=50), Mode("stream"))).of(launch(0, n=40)) == 40 * 50


def test_more_is_better_where_it_is() -> None:
    mode = Mode(connections=4)
    base, candidate = (result(name, [1000.0] * 4, mode=mode) for name in ("slow", "fast"))
    for found in candidate.launches:
        found.wall_s = 0.5 + 0.001 * found.number
    verdict = compare(base, candidate, paired=True)
    assert verdict.outcome == "faster"
    assert verdict.speed is not None
    assert verdict.speed.value == pytest.approx(2, rel=0.01)


def test_overload() -> None:
    assert overload(launch(0, n=99, due=100)) == ""
    assert overload(launch(0, n=98, due=100)) == "98.0% of the 100 calls that were due got done"
    reason = overload(launch(0, n=60, due=100, errors={"TimeoutError": 30}))
    assert reason == "60.0% of the 100 calls that were due got done, 30 failed"
    assert overload(launch(0, n=100, due=100, growing=True)) == "calls were answered later and later"
    assert overload(launch(0, n=10)) == ""


def test_a_summary_of_an_overloaded_cell_has_no_quantiles() -> None:
    cell = result("fast", [1000.0] * 3, "overloaded", Mode("open", rate=100))
    assert summarise(cell).quantiles == {}
    cell.status = "ok"
    assert set(summarise(cell).quantiles) == {0.5, 0.9}  # of 120 samples


def test_littles_law() -> None:
    assert little_problem(None) == little_problem(0.96) == little_problem(1.04) == ""
    assert "slots were idle 30% of the time" in little_problem(0.7)
    assert "is broken" in little_problem(1.2)


def test_remarks() -> None:
    cell = result("fast", [1000.0] * 3)
    cell.launches[0].errors = {"TimeoutError": 40}
    cell.launches[1].warmed_up = False
    cell.launches[2].left_behind = ["/dev/shm/x"]
    cell.busy_polls = True
    found = summarise(cell, floor_ns=100)
    assert found.failed.share == 40 / 160
    for said in (
        "40 of 160 failed: TimeoutError",
        "the floor is 10% of it",
        "not warmed up in 1 of 3",
        "left 1 things behind",
        "polls without pause",
    ):
        assert any(said in remark for remark in found.remarks), said


def test_every_state_without_a_number_has_its_word() -> None:
    def said(status: str, problem: str = "", *launches: Launch) -> str:
        cell = result("fast", [], status)
        cell.problem, cell.launches = problem, list(launches)
        assert summarise(cell).value is None
        return without_number(summarise(cell))

    few = launch(0, n=3)
    assert said("failed", "no luck") == "failed: no luck"
    assert said("unsupported", "has no quote") == "unsupported: has no quote"
    assert said("not reached") == said("not reached", "") == "not reached"
    assert said("ok") == "no launch was recorded"
    assert said("ok", "", few) == "too few samples for a median: 3 calls in 1 launch; give it more seconds"
    assert said("overloaded", "x", few).startswith("overloaded, too few samples for a median: 3 calls in 1 launch")
    nothing = Launch(0, 0, "", 0, 1.0, errors={"lost": 100})
    assert said("ok", "", nothing) == "no call got done: 0 calls in 1 launch; 100 of 100 failed: lost"


def test_a_verdict_says_what_failed_meanwhile() -> None:
    base, candidate = result("slow", [2000.0] * 3), result("fast", [1000.0] * 3)
    assert "failed" not in compare(base, candidate, paired=True).sentence()
    candidate.launches[1].errors = {"TimeoutError": 40}
    assert compare(base, candidate, paired=True).sentence().endswith("echo; candidate: 40 of 160 failed: TimeoutError")


def test_the_note_says_how_many_would_be_wrong() -> None:
    found = [compare(result("slow", [1e6] * 4), result("fast", [1e6] * 4), paired=False)] * 100
    assert "If nothing differed, about 1.0 of 100 intervals would leave 1 out by chance" in note(found)
    assert "at most 1 % are wrong on average" in note(found)
    assert "not paired" in note(found)
    assert "one is named in 1 of 100 comparisons" in note(found[:1])


# The lab against itself, on made-up launches: noise as on a good machine, with a drift that launches share. The real
# thing is `nearcall-lab compare --aa`.


def _made_up(pairs: int, slowdown: float, seed: int) -> list[tuple[float, float]]:
    rng = np.random.default_rng(seed)
    drift = np.cumsum(rng.normal(0, 0.02, pairs))
    a, b = (np.exp(drift + rng.normal(0, 0.02, pairs)) * 10_000 for _ in range(2))
    return list(zip(a.tolist(), (b * (1 + slowdown)).tolist(), strict=True))


def test_where_there_is_no_difference_95_of_100_find_none() -> None:
    found = tally(_made_up(1000, 0.0, 1), launches=10, comparisons=100, seed=1)
    assert found.own_launches
    assert found.different <= 5
    assert found.faster + found.slower + found.same + found.cannot_tell == 100


def test_a_slowdown_of_5_percent_is_found() -> None:
    found = tally(_made_up(1000, 0.05, 2), launches=10, comparisons=100, seed=1, exchange=False)
    assert found.slower >= 95
    assert found.faster == 0


def test_comparisons_from_a_pool_say_so() -> None:
    found = tally(_made_up(20, 0.0, 3), launches=10, comparisons=100, seed=1)
    assert not found.own_launches
    with pytest.raises(ValueError, match="10 launches on each side need 10 pairs, there are 9"):
        tally(_made_up(9, 0.0, 3), launches=10, comparisons=1, seed=1)


def test_an_interval_of_95_percent_would_call_too_many() -> None:
    """Why verdicts rest on 99 %: with noise that is large beside the least effect, every twentieth would be wrong."""
    rng = np.random.default_rng(6)
    pairs = list(zip(rng.lognormal(0, 0.2, 10_000).tolist(), rng.lognormal(0, 0.2, 10_000).tolist(), strict=True))
    wrong = {c: tally(pairs, 10, 1000, 1, limits=Limits(confidence=c)).different for c in (0.95, 0.99)}
    assert 30 <= wrong[0.95] <= 80
    assert wrong[0.99] <= 25


@pytest.mark.parametrize("launches", [3, 4, 6, 10])
def test_few_launches_find_no_more_that_is_not_there(launches: int) -> None:
    """With a handful the answer is seldom sure, and no more often wrong."""
    rng = np.random.default_rng(7)
    noise = rng.lognormal(0, 0.1, (2, launches * 1000))
    found = tally(list(zip(*noise.tolist(), strict=True)), launches, 1000, seed=1)
    assert found.own_launches
    assert found.different <= 25


def test_how_many_launches_would_do_is_about_right() -> None:
    pairs = _made_up(400, 0.05, 8)
    needed = launches_for(pairs, 0.05)
    assert needed is not None
    many = _made_up(200 * needed, 0.05, 9)
    assert 180 <= tally(many, needed, 200, seed=1, exchange=False).slower <= 200
    fewer = tally(many, needed // 2, 200, seed=1, exchange=False).slower
    assert fewer < 180
    assert launches_for(_made_up(50, 0.05, 8), 1e-6) is None
    assert launches_for(pairs[:2], 0.05) is None


def test_two_mechanisms_of_one_run() -> None:
    from pathlib import Path

    from nearcall_lab.results.store import Recorded

    cells = [
        result("slow", [3000.0] * 4),
        result("fast", [1000.0] * 4),
        result("fast", [], "unsupported", Mode("open")),
    ]
    recorded = Recorded(Path(), None, cells)  # type: ignore[arg-type]
    found = compare_mechanisms(recorded, "slow", "fast")
    assert [c.outcome for c in found] == ["faster"]
    assert found[0].paired


def test_against_the_baseline_neither_itself_nor_the_floor_is_compared() -> None:
    from pathlib import Path
    from types import SimpleNamespace

    from nearcall_lab.results.store import Recorded

    cells = [result(name, [ns] * 4) for name, ns in (("slow", 3000.0), ("fast", 1000.0), ("noop", 100.0))]
    info = SimpleNamespace(baseline="slow", floor="noop")
    found = against_baseline(Recorded(Path(), info, cells))  # type: ignore[arg-type]
    assert {digest: c.outcome for digest, c in found.items()} == {cells[1].digest: "faster"}


def test_the_longest_call_of_all_launches_is_kept() -> None:
    cell = result("fast", [1000.0] * 3)
    cell.launches[1].response = latencies([1000] * 39 + [200_000_000])
    assert summarise(cell).longest_ns == 200_000_000  # a stall that no percentile of so few calls shows
    cell.status = "overloaded"
    assert summarise(cell).longest_ns is None
