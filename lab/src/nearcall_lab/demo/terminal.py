"""The demo's table in a terminal, split into as many tables as its width requires."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from nearcall_lab.analysis.compare import LIMITS, interval_text
from nearcall_lab.demo.results import Cell, Report, Row
from nearcall_lab.report.text import NOTHING, plain
from nearcall_lab.results.histogram import histogram_of
from nearcall_lab.results.model import CellResult
from nearcall_lab.stats import counted, format_time, significant

_CELL_WIDTH = 22
_LABEL_WIDTH = 28


def _cell(cell: Cell, is_baseline: bool) -> Text:
    """Four lines: p50 and p99, the ratio to the baseline, CPU time, the ratio to the floor with the samples."""
    if cell.p50_ns is None:
        return Text(plain(cell.problem) or NOTHING, style="dim")
    text = Text(format_time(cell.p50_ns), style="bold")
    text.append(f" / {format_time(cell.p99_ns)}", style="not bold dim")
    ratio = interval_text(cell.times_faster) if cell.times_faster else NOTHING
    text.append(f"\n{'baseline' if is_baseline else ratio}", style="not bold cyan")
    if cell.cpu_us is not None:
        text.append(f"\n{format_time(cell.cpu_us * 1e3)} CPU", style="not bold")
    if cell.times_floor is not None:
        text.append(f"\n{significant(cell.times_floor)}× floor, n {cell.n:,}", style="not bold dim")
    return text


def _tables(report: Report, width: int, headings: Mapping[str, str]) -> list[Table]:
    """Tables with the columns of `headings`, and the rows that have a value in any of them."""
    titles = list(headings)
    rows = [row for row in report.rows if not row.problem and any(row.cells[title] != Cell() for title in titles)]
    per_table = max(1, (width - _LABEL_WIDTH - 3) // (_CELL_WIDTH + 3))
    tables = []
    for start in range(0, len(titles), per_table):
        table = Table(show_lines=True, title_justify="left")
        table.add_column("mechanism", min_width=_LABEL_WIDTH - 4, no_wrap=True)
        shown = titles[start : start + per_table]
        for title in shown:
            table.add_column(headings[title], min_width=_CELL_WIDTH, justify="right")
        for row in rows:
            cells = (_cell(row.cells[title], row.name == report.baseline) for title in shown)
            table.add_row(_label(row, report), *cells)
        tables.append(table)
    return tables


def _label(row: Row, report: Report) -> Text:
    text = Text(plain(row.label), style="dim" if row.name == report.floor else "")
    known = row.version or "standard library"
    note = "floor" if row.name == report.floor else f"{known}{', busy polling' if row.busy_polls else ''}"
    text.append(f"\n{note}", style="not bold dim")
    return text


class FirstNumbers:
    """Prints a line for each mechanism when its first launch is made, long before there is a table."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._seen: set[str] = set()

    def __call__(self, results: Sequence[CellResult]) -> None:
        for result in results:
            name = result.cell.mechanism
            if name in self._seen or not result.launches or (response := result.launches[0].response) is None:
                continue
            if not self._seen:
                said = "The first of several launches; the table follows, with intervals, when all are made:"
                self._console.print(said, highlight=False, soft_wrap=True)
            self._seen.add(name)
            p50 = histogram_of(response).get_value_at_percentile(50)
            text = f"  {plain(result.label)}: {result.cell.title()}, median {format_time(p50)}"
            self._console.print(text, style="dim", markup=False, highlight=False, soft_wrap=True)


def print_report(console: Console, report: Report) -> None:
    """Print the numbers, and the settings with which they were measured."""
    width = console.width
    baseline = report.row(report.baseline)
    console.print()
    console.print(
        f"[bold]Round trip, p50 / p99; second line: times faster than {baseline.label if baseline else 'the baseline'} "
        "with its interval over launches; third line: CPU time of both sides; last line: times the floor, samples[/]"
    )
    console.print("One client that calls as fast as it can, a CPU for each side:", highlight=False)
    for table in _tables(report, width, report.workloads):
        console.print(table, width=width)
    if report.conditions:
        first = next(iter(report.workloads.values()), "")
        console.print(f"{first} under other conditions, where not sleeping gains less, or loses:", highlight=False)
        for table in _tables(report, width, report.conditions):
            console.print(table, width=width)
    settings = Table(title="Settings", title_justify="left")
    settings.add_column("mechanism", no_wrap=True)
    settings.add_column("settings that matter")
    settings.add_column("dataclass travels as")
    for row in report.rows:
        if not row.problem:
            settings.add_row(*(Text(plain(text)) for text in (row.label, row.settings, row.typed)))
    console.print(settings, width=width)
    for row in report.rows:
        if row.problem:
            said = f": {plain(row.problem)}"
            console.print(Text.assemble((plain(row.label), "yellow"), said), highlight=False, soft_wrap=True)
    for line in notes(report):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    for flag in report.red_flags:
        console.print(Text.assemble(("caution: ", "red"), plain(flag)), highlight=False, soft_wrap=True)


def notes(report: Report) -> list[str]:
    """How the numbers were measured, one sentence for each aspect."""
    machine = report.environment
    ratios = sum(cell.times_faster is not None for row in report.rows for cell in row.cells.values())
    missing = 100 * (1 - LIMITS.confidence)
    lines = [
        f"{counted(report.launches, 'launch')} of fresh processes per mechanism; {report.placement}.",
        "One call outstanding on each connection. Every reply was compared with what it must be, and every request was "
        "counted in the server. A p50 needs 20 samples and a p99 needs 1,000; a dash means there were fewer.",
        "A ratio is the geometric mean over launches, so it need not equal the quotient of two medians of all samples. "
        f"Its brackets are a {100 * LIMITS.confidence:g} % interval over launches: {missing:g} in 100 misses the "
        f"truth, of these {ratios} about {significant(ratios * missing / 100, 2)}.",
        f"{machine.cpu}, {machine.kernel}, {machine.python}.",
        *([f"nearcall was built {machine.build}."] if machine.build else []),
    ]
    floor = report.row(report.floor)
    if floor and (p50 := next(iter(floor.cells.values())).p50_ns):
        near = "; ".join(report.near_floor())
        lines.append(
            f"Floor: a function call in the same process takes {format_time(p50)} here, clock included; nothing is "
            f"subtracted from any row.{f' It is more than 5 % of: {near}.' if near else ''}"
        )
    return lines
