"""``nearcall-lab compare``."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from rich.console import Console

from nearcall_lab.cli.command import CANNOT_TELL, UserError, above_zero, percent

if TYPE_CHECKING:
    from nearcall_lab.analysis.compare import Comparison, Limits

NAME = "compare"
HELP = "is it faster, and how sure is that? Two runs, or two mechanisms of one run"
EPILOG = """\
examples:
  nearcall-lab compare out/runs/before out/runs/after       the same cells of two runs; fails a pipeline if slower
  nearcall-lab compare raw-unix nearcall-unix               two mechanisms of the last run, launches paired
  nearcall-lab compare raw-unix nearcall-unix --run DIR     of that run
  nearcall-lab compare --aa raw-unix                        the lab against itself: does it see what is not there?

The first is the base, the second the candidate: "2× faster" is said of the candidate. There are three answers. A
difference needs an interval that does not contain 1 and an effect of at least --min-effect. "The same" needs the whole
interval within --margin. Otherwise the launches cannot tell, and more of them, or a quieter machine, would. A gate that
may let a slowdown of 5 % pass takes --min-effect 5 --margin 5. Where several cells are compared, a difference that
chance gives among so many is not named.

--aa launches one mechanism beside itself, and beside itself slowed down by --slowdown, and compares so many launches
with as many a hundred times. The comparisons draw their launches from a pool of --pool pairs; where the pool has a
hundred times as many pairs as launches are compared, each has its own.

exit status: 0 the same or faster in every cell; 1 slower in at least one; 2 nothing could be compared; 3 none slower,
and it cannot be told of at least one.
With --aa: 0 the machine is good enough; 1 more than 5 % of the comparisons find a difference that is not there; 3 none
of that, and the slowdown is found in fewer than 95 % of the comparisons of the most launches: the machine is too noisy.
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("base", nargs="?", help="a run (directory or combined.json), or a mechanism")
    parser.add_argument("candidate", nargs="?", help="the same, to be judged against it")
    parser.add_argument(
        "--run", dest="source", type=Path, metavar="RUN", help="run of the two mechanisms (default: last)"
    )
    parser.add_argument(
        "--min-effect",
        type=percent,
        default=0.02,
        metavar="PERCENT",
        help="a smaller difference is not called one (default 2%%)",
    )
    parser.add_argument(
        "--margin",
        type=percent,
        default=0.05,
        metavar="PERCENT",
        help="two are the same where the interval is within it (default 5%%)",
    )
    parser.add_argument(
        "--confidence", type=percent, default=0.99, metavar="PERCENT", help="of intervals (default 99%%)"
    )
    parser.add_argument("--json", action="store_true", help="as JSON on standard output")
    own = parser.add_argument_group("the lab against itself")
    own.add_argument("--aa", metavar="MECHANISM", help="compare this mechanism with itself")
    own.add_argument("--slowdown", type=percent, default=0.05, metavar="PERCENT", help="to be found (default 5%%)")
    own.add_argument(
        "--launches",
        type=_numbers,
        default=(4, 6, 10),
        metavar="N,…",
        help="launches on each side of a comparison (default 4,6,10)",
    )
    own.add_argument("--pool", type=above_zero(int), default=20, metavar="PAIRS", help="pairs of launches (default 20)")
    own.add_argument("--seconds", type=above_zero(float), default=0.3, help="timed length of a launch (default 0.3)")
    own.add_argument("--out", type=Path, metavar="DIR", help="where its runs go (default: out/again)")


def _numbers(text: str) -> tuple[int, ...]:
    from nearcall_lab.stats import FEWEST

    try:
        found = sorted({int(part) for part in text.split(",")})
    except ValueError:
        raise argparse.ArgumentTypeError(f"takes numbers such as 4,6,10, not {text}") from None
    if found[0] < FEWEST:
        raise argparse.ArgumentTypeError(f"an interval needs {FEWEST} launches, not {found[0]}")
    return tuple(found)


def limits_of(args: argparse.Namespace) -> Limits:
    """The command line's settings for verdicts. Raises `UserError`."""
    from nearcall_lab.analysis.compare import Limits

    if args.margin < args.min_effect:
        raise UserError("--margin must not be below --min-effect: what is too small to be a difference is the same")
    return Limits(args.confidence, args.min_effect, args.margin)


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.analysis.compare import note

    limits = limits_of(args)
    if args.aa:
        if args.base:
            raise UserError("--aa takes one mechanism and nothing to compare it with")
        from nearcall_lab.cli.against_itself import against_itself

        return against_itself(args, limits, console)
    if not args.candidate:
        raise UserError("compare takes two runs or two mechanisms; --help shows how")
    found = _comparisons(args, limits)
    if not found:
        raise UserError(f"{args.base} and {args.candidate} have no cell in common that was measured")
    if args.json:
        print(msgspec.json.format(msgspec.json.encode([_plain(c) for c in found]), indent=1).decode())
    else:
        console.print(f"{args.candidate} against {args.base}", style="bold", markup=False, highlight=False)
        for comparison in sorted(found, key=lambda c: _ORDER.index(c.outcome)):
            style = {"faster": "green", "slower": "red", "cannot tell": "yellow", "unusable": "dim"}.get(
                comparison.outcome, ""
            )
            same = comparison.base.cell.mechanism == comparison.candidate.cell.mechanism
            who = f"{comparison.candidate.cell.mechanism}: " if same else ""
            line = f"  {who}{comparison.sentence()}"
            console.print(line, style=style, markup=False, highlight=False, soft_wrap=True)
        text = note(found, limits)
        console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)
    outcomes = {comparison.outcome for comparison in found}
    if outcomes == {"unusable"}:
        return 2
    return 1 if "slower" in outcomes else CANNOT_TELL if "cannot tell" in outcomes else 0


_ORDER = ("slower", "faster", "same", "cannot tell", "unusable")


def _comparisons(args: argparse.Namespace, limits: Limits) -> list[Comparison]:
    from nearcall_lab.analysis.compare import compare_mechanisms, compare_runs
    from nearcall_lab.cli.runs import latest
    from nearcall_lab.results.store import read
    from nearcall_lab.scenario.keys import suggest

    base, candidate = Path(args.base), Path(args.candidate)
    if base.exists() and candidate.exists():
        return compare_runs(read(base), read(candidate), limits)
    if base.exists() != candidate.exists() and args.source is None:
        there, missing = (base, candidate) if base.exists() else (candidate, base)
        raise UserError(f"{there} is a run, and {missing} is not there; compare takes two runs or two mechanisms")
    recorded = read(args.source or latest())
    known = sorted({cell.cell.mechanism for cell in recorded.cells})
    for name in (args.base, args.candidate):
        if name not in known:
            raise UserError(
                f"{name} is neither a run nor a mechanism of {recorded.path}{suggest(name, known)}; "
                f"there are {', '.join(known)}"
            )
    return compare_mechanisms(recorded, args.base, args.candidate, limits)


def _plain(comparison: Comparison) -> dict[str, object]:
    return {
        "base": comparison.base.cell.mechanism,
        "candidate": comparison.candidate.cell.mechanism,
        "digest": comparison.candidate.digest,
        "work": comparison.work,
        "metric": comparison.metric.title,
        "outcome": comparison.outcome,
        "times_faster": comparison.speed,
        "paired": comparison.paired,
        "problem": comparison.problem,
        "failed_calls": comparison.failures(),
    }
