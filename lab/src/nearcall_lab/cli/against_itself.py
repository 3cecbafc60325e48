"""``nearcall-lab compare --aa``: one mechanism beside itself, and beside itself slowed down."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from rich.console import Console

from nearcall_lab.adapters import slowed
from nearcall_lab.analysis.same import Pairs, Tally, side_by_side, tally
from nearcall_lab.cli.command import UserError
from nearcall_lab.cli.runs import carry_out, new_directory
from nearcall_lab.engine.run import Measure, Options, begin
from nearcall_lab.registry import Entrant, discover
from nearcall_lab.results.metric import metric_of
from nearcall_lab.results.model import CellResult, Launch
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.load import Planned, Scenario, Settings

LAUNCHES = 10
COMPARISONS = 100
RIGHT = 0.95
"""Share of the comparisons that must be right."""
_SIZE = 1_000
_SEED = 1


def against_itself(args: argparse.Namespace, console: Console, measure: Measure | None = None) -> int:
    """Run both parts and tell what was found. Returns the exit status."""
    entrant = next((e for e in discover() if e.mechanism.name == args.aa), None)
    if entrant is None or entrant.problem:
        raise UserError(f"{args.aa}: {entrant.problem if entrant else 'no such mechanism; see nearcall-lab list'}")
    if args.pool < LAUNCHES:
        raise UserError(f"--pool must be at least {LAUNCHES} pairs, for {LAUNCHES} launches on each side")
    same = _run(args, console, measure, [entrant], 2 * args.pool, "with itself")
    values = _values(same[0])
    own_ns = _median_ns(same[0])
    verdicts = [_tell(console, "with itself", side_by_side(values), args, exchange=True)]
    if args.slowdown:
        ns = round(args.slowdown * own_ns)
        os.environ[slowed.VARIABLE] = slowed.setting(entrant.module, entrant.mechanism.name, ns)
        try:
            other = Entrant(slowed.slowed(entrant.mechanism, ns), slowed.__name__, version=entrant.version)
            both = _run(args, console, measure, [entrant, other], args.pool, f"with {ns} ns added to each call")
        finally:
            del os.environ[slowed.VARIABLE]
        by_number = [{launch.number: v for launch, v in _launch_values(result)} for result in both]
        pairs = [(by_number[0][number], by_number[1][number]) for number in sorted(by_number[0].keys() & by_number[1])]
        verdicts.append(_tell(console, f"slowed down by {ns} ns, {args.slowdown:.1%}", pairs, args, exchange=False))
    return int(not all(verdicts))


def _run(
    args: argparse.Namespace,
    console: Console,
    measure: Measure | None,
    entrants: list[Entrant],
    launches: int,
    what: str,
) -> list[CellResult]:
    """Launch the mechanisms interleaved; their results in the order of `entrants`."""
    mode = Mode(seconds=args.seconds)
    planned = tuple(Planned(Cell(e.mechanism.name, Work(size=_SIZE), mode, seed=_SEED), e) for e in entrants)
    settings = Settings(launches=launches, seconds=args.seconds, seed=_SEED)
    scenario = Scenario(f"aa-{args.aa}", f"{args.aa} {what}", "", settings, planned)
    directory: Path = new_directory(scenario.name)
    if args.out:
        directory = args.out / directory.name
    run = begin(directory, scenario, Options(command=("nearcall-lab", *sys.argv[1:])))
    console.print(f"{scenario.title}: {launches * len(planned)} launches into {directory}", highlight=False)
    recorded = carry_out(run, planned, console, measure)
    if recorded.info.ended_early:
        raise KeyboardInterrupt
    for cell in recorded.cells:
        if cell.status != "ok":
            raise UserError(f"{cell.cell.mechanism} is {cell.status}: {cell.problem}")
    return recorded.cells


def _launch_values(result: CellResult) -> list[tuple[Launch, float]]:
    metric = metric_of(result.cell)
    return [(launch, value) for launch in result.launches if (value := metric.of(launch)) is not None]


def _values(result: CellResult) -> list[float]:
    return [value for _, value in _launch_values(result)]


def _median_ns(result: CellResult) -> float:
    values = sorted(_values(result))
    if not values:
        raise UserError("too few samples in a launch for its median; give more --seconds")
    return values[len(values) // 2]


def _tell(console: Console, what: str, pairs: Pairs, args: argparse.Namespace, exchange: bool) -> bool:
    found = tally(
        pairs,
        LAUNCHES,
        COMPARISONS,
        _SEED,
        exchange=exchange,
        confidence=args.confidence,
        min_effect=args.min_effect,
    )
    right = found.same if exchange else found.slower
    good = right >= RIGHT * found.comparisons
    console.print(
        f"{args.aa} {what}: {right} of {found.comparisons} comparisons of {LAUNCHES} against {LAUNCHES} launches say "
        f"{'no difference' if exchange else 'slower'}{_rest(found, exchange)}: {'good' if good else 'not good enough'}",
        style="green" if good else "red",
        highlight=False,
        soft_wrap=True,
    )
    drawn = "each has launches of its own" if found.own_launches else "drawn from a common pool, so not independent"
    console.print(f"  {len(pairs)} pairs of real launches; the comparisons: {drawn}", style="dim", highlight=False)
    return good


def _rest(found: Tally, exchange: bool) -> str:
    other = (
        {"faster": found.faster, "slower": found.slower} if exchange else {"same": found.same, "faster": found.faster}
    )
    shown = [f"{count} {name}" for name, count in other.items() if count]
    return f" ({', '.join(shown)})" if shown else ""
