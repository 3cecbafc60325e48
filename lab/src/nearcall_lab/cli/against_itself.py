"""``nearcall-lab compare --aa``: one mechanism against itself, and against itself slowed down."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from collections.abc import Iterable

from rich.console import Console

from nearcall_lab.adapters import slowed
from nearcall_lab.analysis.compare import Limits, interval_text, speed_of
from nearcall_lab.analysis.same import Pairs, Tally, launches_for, tally
from nearcall_lab.cli.command import CANNOT_TELL, UserError
from nearcall_lab.cli.runs import AGAIN, carry_out, new_directory
from nearcall_lab.engine.run import Options, begin
from nearcall_lab.registry import Entrant, discover
from nearcall_lab.results.metric import metric_of
from nearcall_lab.results.model import CellResult
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.load import Planned, Scenario, Settings

COMPARISONS = 100
RIGHT = 0.95
"""Share of the comparisons that must be right."""
_SIZE = 1_000
_SEED = 1


def against_itself(args: argparse.Namespace, limits: Limits, console: Console) -> int:
    """Run both parts and print what was found. Returns the exit status. Raises `UserError`."""
    entrant = next((e for e in discover() if e.mechanism.name == args.aa), None)
    if entrant is None or entrant.problem:
        raise UserError(f"{args.aa}: {entrant.problem if entrant else 'no such mechanism; see nearcall-lab list'}")
    if entrant.mechanism.style != "threads" and args.slowdown:
        raise UserError(f"{args.aa} is called from asyncio, which --slowdown cannot wrap; give --slowdown 0")
    most = args.launches[-1]
    if args.pool < most:
        raise UserError(f"--pool must be at least {most} pairs, for {most} launches on each side")
    blocks = math.ceil(args.pool / most)
    (same,) = _run(args, console, [entrant], blocks, 2 * most, "with itself")
    pairs = [pair for values in same for pair in _neighbours(values)]
    tallies = _tallies(pairs, args, limits, exchange=True)
    for launches, found in tallies.items():
        _tell(console, f"{args.aa} with itself", launches, found, found.comparisons - found.different, "no difference")
    _tell_where_from(console, pairs, tallies.values())
    if any(found.different > (1 - RIGHT) * found.comparisons for found in tallies.values()):
        _advise(
            console,
            "Differences that are not there: verdicts from this machine cannot be trusted. Other work comes and goes, "
            "or launches differ in ways that have nothing to do with the mechanism. nearcall-lab doctor says what to "
            "mend; then try this again.",
        )
        return 1
    return _slowed_down(args, limits, console, entrant, same, blocks) if args.slowdown else 0


def _slowed_down(
    args: argparse.Namespace, limits: Limits, console: Console, entrant: Entrant, same: list[Values], blocks: int
) -> int:
    """The second part: is a slowdown found? Returns the exit status."""
    ns = round(args.slowdown * statistics.median(value for values in same for value in values.values()))
    most = args.launches[-1]
    os.environ[slowed.VARIABLE] = slowed.setting(entrant, (0, ns))
    try:
        entrants = [slowed.wrapped(entrant, added) for added in (0, ns)]
        plain, slower = _run(args, console, entrants, blocks, most, f"with 0 and with {ns} ns added to each call")
    finally:
        del os.environ[slowed.VARIABLE]
    pairs = [(a[n], b[n]) for a, b in zip(plain, slower, strict=True) for n in sorted(a.keys() & b.keys())]
    tallies = _tallies(pairs, args, limits, exchange=False)
    for launches, found in tallies.items():
        what = f"{args.aa} slowed down by {ns} ns, {args.slowdown:.1%}"
        _tell(console, what, launches, found, found.slower, "slower")
    _tell_where_from(console, pairs, tallies.values())
    whole = speed_of([b for _, b in pairs], [a for a, _ in pairs], False, True, limits.confidence).inverse()
    console.print(f"  all pairs together: the time per call is {interval_text(whole)}", style="dim", highlight=False)
    if tallies[most].slower >= RIGHT * COMPARISONS:
        return 0
    enough = launches_for(pairs, args.slowdown, limits=limits)
    advice = f"About {enough} launches would: run SCENARIO --launches {enough}. " if enough else ""
    _advise(
        console,
        f"No difference is found that is not there, but {most} launches are too few on this machine to find a slowdown "
        f"of {args.slowdown:.1%}; such a comparison will say that it cannot tell. {advice}Longer launches (--seconds) "
        "and a quieter machine (nearcall-lab doctor) make each of them worth more.",
    )
    return CANNOT_TELL


Values = dict[int, float]
"""The metric of each launch of one block, by number."""


def _run(
    args: argparse.Namespace,
    console: Console,
    entrants: list[Entrant],
    blocks: int,
    launches: int,
    what: str,
) -> list[list[Values]]:
    """Launch the mechanisms interleaved, `blocks` times `launches` of each; returns the blocks' values for each of
    `entrants`.

    A block is a cell of its own, so that the files stay small. Blocks differ by their seed, which a closed loop does
    not use.
    """
    mode = Mode(seconds=args.seconds)
    planned = tuple(
        Planned(Cell(entrant.mechanism.name, Work(size=_SIZE), mode, seed=seed), entrant)
        for entrant in entrants
        for seed in range(1, blocks + 1)
    )
    settings = Settings(launches=launches, seconds=args.seconds, seed=_SEED)
    scenario = Scenario(f"aa-{args.aa}", f"{args.aa} {what}", "", settings, planned)
    directory = new_directory(scenario.name, args.out or AGAIN)
    run = begin(directory, scenario, Options(command=("nearcall-lab", *sys.argv[1:])))
    console.print(f"{scenario.title}: {launches * len(planned)} launches into {directory}", highlight=False)
    recorded = carry_out(run, planned, console)
    if recorded.info.ended_early:
        raise KeyboardInterrupt
    for cell in recorded.cells:
        if cell.status != "ok":
            raise UserError(f"{cell.cell.mechanism} is {cell.status}: {cell.problem}")
    found = [_values(cell) for cell in recorded.cells]
    return [found[at : at + blocks] for at in range(0, len(found), blocks)]


def _values(result: CellResult) -> Values:
    metric = metric_of(result.cell)
    return {launch.number: value for launch in result.launches if (value := metric.of(launch)) is not None}


def _neighbours(values: Values) -> Pairs:
    """Launches that were made one after the other: those of the numbers 0 and 1, of 2 and 3, and so on."""
    return [(values[n], values[n + 1]) for n in sorted(values) if n % 2 == 0 and n + 1 in values]


def _tallies(pairs: Pairs, args: argparse.Namespace, limits: Limits, exchange: bool) -> dict[int, Tally]:
    if len(pairs) < args.launches[-1]:
        raise UserError("too few launches have samples enough for a median; give them more --seconds")
    return {
        launches: tally(pairs, launches, COMPARISONS, _SEED, exchange=exchange, limits=limits)
        for launches in args.launches
    }


def _tell(console: Console, what: str, launches: int, found: Tally, right: int, hoped: str) -> None:
    answers = {
        "faster": found.faster,
        "slower": found.slower,
        "the same": found.same,
        "cannot tell": found.cannot_tell,
    }
    shown = ", ".join(f"{count} {name}" for name, count in answers.items() if count)
    console.print(
        f"{what}: {right} of {found.comparisons} comparisons of {launches} against {launches} launches find {hoped} "
        f"({shown})",
        style="green" if right >= RIGHT * found.comparisons else "yellow",
        highlight=False,
        soft_wrap=True,
    )


def _tell_where_from(console: Console, pairs: Pairs, tallies: Iterable[Tally]) -> None:
    own = all(found.own_launches for found in tallies)
    drawn = "each has launches of its own" if own else "drawn from a common pool, so not independent"
    console.print(f"  {len(pairs)} pairs of real launches; the comparisons: {drawn}", style="dim", highlight=False)


def _advise(console: Console, text: str) -> None:
    console.print(text, style="bold", markup=False, highlight=False, soft_wrap=True)
