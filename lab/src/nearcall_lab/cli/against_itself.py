"""``nearcall-lab compare --aa``: one mechanism beside itself, and beside itself slowed down."""

from __future__ import annotations

import argparse
import math
import os
import statistics
import sys
from pathlib import Path

from rich.console import Console

from nearcall_lab.adapters import slowed
from nearcall_lab.analysis.compare import interval_text, speed_of
from nearcall_lab.analysis.same import Pairs, Tally, tally
from nearcall_lab.cli.command import UserError
from nearcall_lab.cli.runs import carry_out, new_directory
from nearcall_lab.engine.run import Options, begin
from nearcall_lab.registry import Entrant, discover
from nearcall_lab.results.metric import metric_of
from nearcall_lab.results.model import CellResult
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.load import Planned, Scenario, Settings

LAUNCHES = 10
COMPARISONS = 100
RIGHT = 0.95
"""Share of the comparisons that must be right."""
_SIZE = 1_000
_SEED = 1


def against_itself(args: argparse.Namespace, console: Console) -> int:
    """Run both parts and tell what was found. Returns the exit status."""
    entrant = next((e for e in discover() if e.mechanism.name == args.aa), None)
    if entrant is None or entrant.problem:
        raise UserError(f"{args.aa}: {entrant.problem if entrant else 'no such mechanism; see nearcall-lab list'}")
    if entrant.mechanism.style != "threads" and args.slowdown:
        raise UserError(f"{args.aa} is called from asyncio, which --slowdown cannot wrap; give --slowdown 0")
    if args.pool < LAUNCHES:
        raise UserError(f"--pool must be at least {LAUNCHES} pairs, for {LAUNCHES} launches on each side")
    blocks = math.ceil(args.pool / LAUNCHES)
    (same,) = _run(args, console, [entrant], blocks, 2 * LAUNCHES, "with itself")
    verdicts = [_tell(console, "with itself", [pair for values in same for pair in _neighbours(values)], args, True)]
    if args.slowdown:
        ns = round(args.slowdown * statistics.median(value for values in same for value in values.values()))
        os.environ[slowed.VARIABLE] = slowed.setting(entrant, (0, ns))
        try:
            entrants = [slowed.wrapped(entrant, added) for added in (0, ns)]
            what = f"with 0 and with {ns} ns added to each call"
            plain, slower = _run(args, console, entrants, blocks, LAUNCHES, what)
        finally:
            del os.environ[slowed.VARIABLE]
        pairs = [(a[n], b[n]) for a, b in zip(plain, slower, strict=True) for n in sorted(a.keys() & b.keys())]
        verdicts.append(_tell(console, f"slowed down by {ns} ns, {args.slowdown:.1%}", pairs, args, False))
        whole = speed_of([b for _, b in pairs], [a for a, _ in pairs], False, True, args.confidence).inverse()
        console.print(
            f"  all pairs together: the time per call is {interval_text(whole)}", style="dim", highlight=False
        )
    return int(not all(verdicts))


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
    """Launch the mechanisms interleaved, `blocks` times so many launches; the blocks' values for each of `entrants`.

    A block is a cell of its own, told apart by its seed, which a closed loop does not use: cells stay small files.
    """
    mode = Mode(seconds=args.seconds)
    planned = tuple(
        Planned(Cell(entrant.mechanism.name, Work(size=_SIZE), mode, seed=seed), entrant)
        for entrant in entrants
        for seed in range(1, blocks + 1)
    )
    settings = Settings(launches=launches, seconds=args.seconds, seed=_SEED)
    scenario = Scenario(f"aa-{args.aa}", f"{args.aa} {what}", "", settings, planned)
    directory: Path = new_directory(scenario.name)
    if args.out:
        directory = args.out / directory.name
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


def _tell(console: Console, what: str, pairs: Pairs, args: argparse.Namespace, exchange: bool) -> bool:
    if len(pairs) < LAUNCHES:
        raise UserError("too few launches have samples enough for a median; give them more --seconds")
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
