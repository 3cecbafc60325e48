"""The command line: ``nearcall-lab demo|runtime|list``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import msgspec
from rich.console import Console

from nearcall_lab import __version__
from nearcall_lab.demo.rows import shown
from nearcall_lab.placement import choose
from nearcall_lab.registry import Entrant, discover

_WIDTH_WITHOUT_TERMINAL = 190
"""Columns when the output goes to a file: enough for the demo's table in one piece."""


def _select(console: Console, names: str | None) -> list[Entrant]:
    """The mechanisms asked for, or the demo's. Unknown names end the command with the known ones."""
    entrants = discover()
    if names is None:
        return [entrant for entrant in entrants if shown(entrant)]
    known = {entrant.mechanism.name: entrant for entrant in entrants}
    unknown = [name for name in names.split(",") if name not in known]
    if unknown:
        console.print(f"unknown mechanism {unknown[0]!r}; there are: {', '.join(sorted(known))}")
        raise SystemExit(2)
    return [known[name] for name in names.split(",")]


def _demo(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.demo.page import render
    from nearcall_lab.demo.run import DemoRun, Plan
    from nearcall_lab.demo.terminal import LiveProgress, print_report

    placement = choose("free" if args.unpinned else "apart")
    plan = Plan(rounds=args.rounds, slice_s=args.slice_ms / 1e3, limit_s=args.limit, seed=args.seed)
    console.print(f"nearcall-lab {__version__} demo: {placement.describe()}; at most {args.limit / 60:.1f} minutes")
    with LiveProgress(console) as progress:
        run = DemoRun(_select(console, args.only), placement, plan, progress)
        run.run()
    report = run.report()
    print_report(console, report)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    (out / "demo.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    (out / "demo.html").write_text(render(report), encoding="utf-8")
    console.print(f"wrote {out / 'demo.json'} and {out / 'demo.html'}")
    return 130 if report.ended_early == "interrupted" else 0


def _runtime(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.runtime_bench.command import run

    return run(console, Path(args.out), args.rounds, args.floor_binary, quick=args.quick)


def _list(args: argparse.Namespace, console: Console) -> int:
    for entrant in discover():
        state = entrant.problem or f"ready {entrant.version}".strip()
        console.print(f"{entrant.mechanism.name:20} {entrant.mechanism.label:28} {state}", highlight=False)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nearcall-lab", description=__doc__)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True)

    demo = commands.add_parser("demo", help="every mechanism beside its peers: a table, JSON and a page")
    demo.add_argument("--rounds", type=int, default=5, help="fresh launches per mechanism (default 5)")
    demo.add_argument(
        "--slice-ms", type=float, default=100, help="timed milliseconds per cell and launch (default 100)"
    )
    demo.add_argument(
        "--limit", type=float, default=165, help="start nothing new after this many seconds (default 165)"
    )
    demo.add_argument("--seed", type=int, default=1, help="seed of the random order (default 1)")
    demo.add_argument("--only", metavar="NAME,…", help="only these mechanisms, by the names `list` shows")
    demo.add_argument("--unpinned", action="store_true", help="let the kernel place the processes")
    demo.add_argument("--out", default="out", help="directory for demo.json and demo.html (default out)")
    demo.set_defaults(run=_demo)

    runtime = commands.add_parser("runtime", help="nearcall against its own targets: Markdown and JSON")
    runtime.add_argument("--rounds", type=int, default=5, help="fresh launches per mechanism (default 5)")
    runtime.add_argument("--floor-binary", metavar="PATH", help="program that measures the shared-memory ring alone")
    runtime.add_argument("--quick", action="store_true", help="shorter slices; for trying it out, not for publishing")
    runtime.add_argument("--out", default="out", help="directory for runtime.json (default out)")
    runtime.set_defaults(run=_runtime)

    listing = commands.add_parser("list", help="what can run here, and why the rest cannot")
    listing.set_defaults(run=_list)
    return parser


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit status."""
    args = _parser().parse_args(argv)
    for name in ("rounds", "slice_ms", "limit"):
        value = getattr(args, name, 1)
        if value <= 0:
            print(f"nearcall-lab: --{name.replace('_', '-')} must be above zero, not {value}", file=sys.stderr)
            return 2
    console = Console() if sys.stdout.isatty() else Console(width=_WIDTH_WITHOUT_TERMINAL)
    return int(args.run(args, console))
