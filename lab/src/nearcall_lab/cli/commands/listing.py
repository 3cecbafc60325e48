"""``nearcall-lab list``."""

from __future__ import annotations

import argparse
from importlib.resources import files

import msgspec
from rich.console import Console

from nearcall_lab.cli.command import aligned

NAME = "list"
HELP = "mechanisms, scenarios and studies; what can run here, and why the rest cannot"
EPILOG = """\
examples:
  nearcall-lab list                    all of it
  nearcall-lab list mechanisms         the names that --only and scenario files take
  nearcall-lab list scenarios          the names that `nearcall-lab run` takes
  nearcall-lab list --json             for programs
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=("mechanisms", "scenarios", "studies"), help="only these")
    parser.add_argument("--json", action="store_true", help="as JSON on standard output")


def run(args: argparse.Namespace, console: Console) -> int:
    found: dict[str, list[dict[str, str]]] = {"mechanisms": _mechanisms(), "scenarios": _scenarios()}
    found["studies"] = _studies()
    if args.what:
        found = {args.what: found[args.what]}
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(found), indent=1).decode())
        return 0
    for kind, rows in found.items():
        console.print(f"[bold]{kind}[/]")
        for line in aligned([(row["name"], row["title"], row.get("state", "")) for row in rows]):
            console.print(f"  {line}", markup=False, highlight=False, soft_wrap=True)
        if not rows:
            console.print("  none", highlight=False)
    return 0


def _mechanisms() -> list[dict[str, str]]:
    from nearcall_lab.registry import discover

    return [
        {
            "name": entrant.mechanism.name,
            "title": entrant.mechanism.label,
            "state": entrant.problem or f"ready {entrant.version}".strip(),
            "problem": entrant.problem,
            "operations": " ".join(entrant.mechanism.operations),
            "style": entrant.mechanism.style,
            "settings": entrant.mechanism.settings,
            "why": entrant.mechanism.why,
        }
        for entrant in discover()
    ]


def _scenarios() -> list[dict[str, str]]:
    from nearcall_lab.scenario.load import preset_titles

    return [{"name": name, "title": title} for name, title in preset_titles().items()]


def _studies() -> list[dict[str, str]]:
    """A study is a folder of `nearcall_lab.studies` with its figures in ``published.toml``."""
    from nearcall_lab import toml

    found = []
    for folder in sorted(files("nearcall_lab.studies").iterdir(), key=lambda entry: entry.name):
        figures = folder / "published.toml"
        if folder.is_dir() and figures.is_file():
            title = str(toml.loads(figures.read_text(encoding="utf-8"))["title"])
            found.append({"name": folder.name.replace("_", "-"), "title": title})
    return found
