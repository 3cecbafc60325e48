"""The demo in a terminal: live progress, and the result as tables that fit the width."""

from __future__ import annotations

from rich.console import Console
from rich.progress import TextColumn
from rich.table import Table
from rich.text import Text

from nearcall_lab.demo.results import Cell, Report, Row
from nearcall_lab.demo.run import Progress
from nearcall_lab.engine.progress import LaunchBar, clock_text
from nearcall_lab.stats import format_ratio, format_time, significant

_CELL_WIDTH = 22
_LABEL_WIDTH = 28


class LiveProgress(LaunchBar):
    """Shows the round, too; elsewhere than in a terminal a line for each."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, TextColumn("[bold]round {task.fields[turn]}"), turn=1)
        self._last_turn = 0

    def __call__(self, progress: Progress) -> None:
        left = "" if progress.seconds_left is None else f"about {clock_text(int(progress.seconds_left))} left"
        what = f"{progress.mechanism}: {progress.workload}"
        self.draw(progress.launches_done, progress.launches_total, left, what, turn=progress.turn)
        if not self._console.is_terminal and progress.turn != self._last_turn:
            self._last_turn = progress.turn
            self._console.print(f"round {progress.turn} ({progress.launches_total} launches in all) {left}")


def _cell(cell: Cell, is_baseline: bool) -> Text:
    """Three lines: p50 and p99, the ratio to the baseline, the ratio to the floor with the number of samples."""
    if cell.p50_ns is None:
        if cell.n:
            return Text(f"only {cell.n} samples", style="dim")
        return Text("–" if cell.problem == "not part of this row" else cell.problem, style="dim red")
    text = Text(format_time(cell.p50_ns), style="bold")
    text.append(f" / {format_time(cell.p99_ns)}", style="not bold dim")
    second = "baseline" if is_baseline else format_ratio(cell.times_faster)
    text.append(f"\n{second}", style="not bold cyan")
    if cell.times_floor is not None:
        text.append(f"\n{significant(cell.times_floor)}× floor, n {cell.n:,}", style="not bold dim")
    return text


def _tables(report: Report, width: int) -> list[Table]:
    """The main table, cut into as many as the width asks for."""
    keys = list(report.workloads)
    per_table = max(1, (width - _LABEL_WIDTH - 3) // (_CELL_WIDTH + 3))
    tables = []
    for start in range(0, len(keys), per_table):
        table = Table(show_lines=True, title_justify="left")
        table.add_column("mechanism", min_width=_LABEL_WIDTH - 4, no_wrap=True)
        shown = keys[start : start + per_table]
        for key in shown:
            table.add_column(report.workloads[key], min_width=_CELL_WIDTH, justify="right")
        for row in report.rows:
            if row.problem:
                continue
            table.add_row(_label(row, report), *(_cell(row.cells[key], row.name == report.baseline) for key in shown))
        tables.append(table)
    return tables


def _label(row: Row, report: Report) -> Text:
    style = "dim" if row.name == report.floor else ""
    text = Text(row.label, style=style)
    known = row.version or ("standard library" if row.family in ("socket", "messaging") else "")
    note = "floor" if row.name == report.floor else f"{known}{', busy polling' if row.busy_polls else ''}"
    text.append(f"\n{note}", style="not bold dim")
    return text


def print_report(console: Console, report: Report) -> None:
    """Everything a reader of the terminal needs, the numbers first."""
    width = console.width
    baseline = report.row(report.baseline)
    name = baseline.label if baseline else report.baseline
    console.print()
    console.print(
        f"[bold]Round trip, p50 / p99; second line: times faster than {name} [95 % interval]; "
        "third line: times the floor, samples[/]"
    )
    for table in _tables(report, width):
        console.print(table, width=width)
    settings = Table(title="Settings", title_justify="left")
    settings.add_column("mechanism", no_wrap=True)
    settings.add_column("settings that matter")
    settings.add_column("dataclass travels as")
    for row in report.rows:
        if not row.problem:
            settings.add_row(row.label, row.settings, row.typed)
    console.print(settings, width=width)
    for row in report.rows:
        if row.problem:
            console.print(f"[yellow]{row.label}[/]: {row.problem}", highlight=False)
    for line in notes(report):
        console.print(f"[dim]{line}[/]", highlight=False)
    for flag in report.red_flags:
        console.print(f"[red]caution:[/] {flag}", highlight=False)


def notes(report: Report) -> list[str]:
    """How the numbers came about, one sentence each; the page shows the same ones."""
    floor = report.row(report.floor)
    lines = [
        f"{report.rounds_done} of {report.rounds_planned} rounds in {report.elapsed_s:.0f} s, each with fresh "
        f"processes in random order (seed {report.seed}); {report.placement}.",
        f"Closed loop, one call outstanding, {report.slice_s * 1e3:.0f} ms per cell and launch after "
        f"{report.warm_s * 1e3:.0f} ms of warm-up. Every reply was compared with what it must be, and every request "
        "was counted in the server.",
        "A p50 needs 20 samples and a p99 needs 1,000; a dash means there were fewer. Intervals resample rounds, "
        f"{report.rounds_done} of them; a ratio is the geometric mean of the rounds' ratios, so it need not equal the "
        "quotient of two medians over all samples.",
        f"Environment: {report.environment.cpu}, {report.environment.kernel}, {report.environment.python}.",
    ]
    if floor and (cell := next(iter(floor.cells.values()))).p50_ns:
        lines.append(
            f"Floor: a function call in the same process takes {format_time(cell.p50_ns)} here, clock included; "
            "nothing is subtracted from any row."
        )
        near = [
            f"{row.label} ({report.workloads[key]} {c.floor_share:.0%})"
            for row in report.rows
            for key, c in row.cells.items()
            if row.name != report.floor and c.floor_share is not None and c.floor_share > 0.05
        ]
        if near:
            lines.append(f"The floor is more than 5 % of: {', '.join(near)}.")
    if report.ended_early:
        lines.append(f"Ended early: {report.ended_early}. What was done is shown.")
    return lines
