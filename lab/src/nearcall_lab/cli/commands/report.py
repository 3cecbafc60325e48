"""``nearcall-lab report``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from nearcall_lab.cli.command import UserError

if TYPE_CHECKING:
    from nearcall_lab.report.model import Report
    from nearcall_lab.results.store import Recorded
    from nearcall_lab.studies.model import StudyResult

NAME = "report"
HELP = "runs that were made earlier, as a page, as Markdown or in the terminal"
EPILOG = """\
examples:
  nearcall-lab report                               the last run in out/runs, in the terminal
  nearcall-lab report --out report.html             the same as a page: one file, which needs no network
  nearcall-lab report out/runs/quick-20260101-120000 out/runs/sizes-20260101-130000 --out report.html
  nearcall-lab report combined.json --format markdown
  nearcall-lab report --study out/studies/shm-20260101-120000 --out report.html

Without --format, the ending of --out decides (.html or .md). A study's directory is a run as well: named without
another run, it gives the page its numbers. lab/docs/reading-the-report.md explains each part of the page.
"""

_FORMATS = ("html", "markdown", "terminal")
_ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".markdown": "markdown"}


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="*", type=Path, metavar="RUN", help="a run's directory or combined.json")
    parser.add_argument(
        "--study", action="append", default=[], type=Path, metavar="DIR", help="add a study's directory; repeatable"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write it there (default: to the terminal)")
    parser.add_argument("--format", choices=_FORMATS, help="default: by the ending of --out, else terminal")


def run(args: argparse.Namespace, console: Console) -> int:
    from nearcall_lab.cli.runs import latest
    from nearcall_lab.results.store import read
    from nearcall_lab.studies.stored import FILE, read_study

    kind = _format(args.format, args.out)
    paths = list(dict.fromkeys(args.runs))
    # A study that is named as a run shows its published figures, too.
    study_paths = list(dict.fromkeys([*args.study, *(path for path in paths if (path / FILE).is_file())]))
    studies = [read_study(path) for path in study_paths]
    if not paths:
        paths = [_run_of(path, study) for path, study in zip(study_paths, studies, strict=True)] or [latest()]
    recorded = [read(path) for path in paths]
    if kind == "terminal" and args.out is None:
        _print(console, recorded, studies)
        return 0
    if kind == "terminal":
        _write(args.out, _as_text(recorded, studies))
    else:
        from nearcall_lab.report.model import prepare

        text = _rendered(kind, prepare(recorded, studies))
        if args.out is None:
            sys.stdout.write(text)
            return 0
        _write(args.out, text)
    console.print(f"wrote {args.out}", markup=False, highlight=False, soft_wrap=True)
    return 0


def _format(wanted: str | None, out: Path | None) -> str:
    if wanted is not None:
        return wanted
    if out is None:
        return "terminal"
    if out.suffix.lower() not in _ENDINGS:
        raise UserError(f"--out {out}: its ending does not say which format; name it .html or .md, or give --format")
    return _ENDINGS[out.suffix.lower()]


def _run_of(path: Path, study: StudyResult) -> Path:
    return (path if path.is_dir() else path.parent) / study.run


def _rendered(kind: str, report: Report) -> str:
    if kind == "html":
        from nearcall_lab.report import page

        return page.render(report)
    from nearcall_lab.report import markdown

    return markdown.render(report)


def _print(console: Console, recorded: list[Recorded], studies: list[StudyResult]) -> None:
    from nearcall_lab.report.terminal import print_run
    from nearcall_lab.studies.show import markdown

    for found in recorded:
        line = f"{found.info.title} ({found.path}, {found.info.started})"
        console.print(line, markup=False, highlight=False)
        if not found.cells:
            console.print("This run has no cell: nothing was planned.", highlight=False)
        print_run(console, found)
    for study in studies:
        console.print(markdown(study), markup=False, highlight=False, soft_wrap=True)


def _as_text(recorded: list[Recorded], studies: list[StudyResult]) -> str:
    import io

    buffer = io.StringIO()
    _print(Console(file=buffer, width=190), recorded, studies)
    return buffer.getvalue()


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error.strerror or error}") from None
