"""``nearcall-lab demo``."""

from __future__ import annotations

import argparse
from pathlib import Path

import msgspec
from rich.console import Console

from nearcall_lab import __version__
from nearcall_lab.cli.command import UserError, above_zero, names

NAME = "demo"
HELP = "every mechanism beside its peers: a table, JSON and a page"


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=above_zero(int), default=5, help="fresh launches per mechanism (default 5)")
    parser.add_argument(
        "--slice-ms", type=above_zero(float), default=100, help="timed milliseconds per cell and launch (default 100)"
    )
    parser.add_argument(
        "--limit", type=above_zero(float), default=165, help="start nothing new after this many seconds (default 165)"
    )
    parser.add_argument("--seed", type=int, default=1, help="seed of the random order (default 1)")
    parser.add_argument("--only", metavar="NAME,…", type=names, help="only these mechanisms, by the names `list` shows")
    parser.add_argument("--unpinned", action="store_true", help="let the kernel place the processes")
    parser.add_argument("--out", default="out", help="directory for demo.json and demo.html (default out)")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.demo.page import render
    from nearcall_lab.demo.rows import shown
    from nearcall_lab.demo.run import DemoRun, Plan
    from nearcall_lab.demo.terminal import LiveProgress, print_report
    from nearcall_lab.placement import choose
    from nearcall_lab.registry import discover
    from nearcall_lab.scenario.keys import suggest

    known = {entrant.mechanism.name: entrant for entrant in discover()}
    for name in args.only or []:
        if name not in known:
            raise UserError(f"unknown mechanism {name!r}{suggest(name, known)}; there are: {', '.join(sorted(known))}")
    entrants = [known[name] for name in args.only] if args.only else [e for e in known.values() if shown(e)]
    placement = choose("free" if args.unpinned else "apart")
    plan = Plan(rounds=args.rounds, slice_s=args.slice_ms / 1e3, limit_s=args.limit, seed=args.seed)
    console.print(f"nearcall-lab {__version__} demo: {placement.describe()}; at most {args.limit / 60:.1f} minutes")
    with LiveProgress(console) as progress:
        demo = DemoRun(entrants, placement, plan, progress)
        demo.run()
    report = demo.report()
    print_report(console, report)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (out / "demo.html").write_text(render(report), encoding="utf-8")
    console.print(f"wrote {out / 'demo.json'} and {out / 'demo.html'}")
    return 130 if report.ended_early == "interrupted" else 0
