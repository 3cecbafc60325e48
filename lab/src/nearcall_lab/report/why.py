"""Why a mechanism is as fast as it is: its system calls and context switches for each call, and what each further byte
costs.
"""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from nearcall_lab.report.charts.sizes import per_byte
from nearcall_lab.report.html import element, items, join, paragraph
from nearcall_lab.report.model import Report, Row
from nearcall_lab.report.text import NOTHING, count

HEADS = (
    "mechanism",
    "work",
    "syscalls, client",
    "syscalls, server",
    "over calls",
    "switches, client",
    "switches, server",
    "over calls",
    "per further KB",
    "polls",
    "remark",
)

CAVEATS = (
    "Counted in a pass of its own, since watching slows down what is watched: nothing here was timed, and what depends "
    "on timing, such as whether a side sleeps, can differ from the timed launches.",
    "Switches without such a pass are those of the timed launches; system calls are then unknown. "
    "nearcall-lab run --observe counts them.",
    "Copies are not counted as such. The time of each further kilobyte, from the two largest payloads of one "
    "mechanism, tells them: a copy costs some 0.1 ns per byte while it stays in the cache.",
)


@dataclass(frozen=True)
class Reason:
    """The numbers of one row."""

    row: Row
    work: str
    cells: list[str]
    """Texts for the columns of `HEADS`, in its order, from the client's system calls on."""


def reasons(report: Report) -> list[Reason]:
    """Every row with any of these numbers."""
    growth = per_byte(report)
    found = []
    for row, work in ((row, group.full_title) for group in report.groups for row in group.rows):
        seen = row.result.observation
        switches = _switches(row)
        further = growth.get(row.key, "–")
        if seen is None and switches == (None, None):
            continue
        calls = sum(launch.calls for launch in row.result.launches)
        if seen is not None and (seen.client_switches is not None or seen.server_switches is not None):
            switches, calls = (seen.client_switches, seen.server_switches), seen.calls
        polls = row.result.busy_polls or (seen is not None and seen.busy_polling)
        found.append(
            Reason(
                row,
                work,
                [
                    count(seen.client_syscalls if seen else None),
                    count(seen.server_syscalls if seen else None),
                    _calls(seen.syscalls_calls if seen else 0),
                    *(count(value) for value in switches),
                    _calls(calls if switches != (None, None) else 0),
                    further,
                    "yes" if polls else "",
                    seen.problem if seen else "",
                ],
            )
        )
    return found


def _calls(number: int) -> str:
    """Over how many calls the counts were taken; not recorded in runs of an older lab."""
    return f"{number:,}" if number else NOTHING


def _switches(row: Row) -> tuple[float | None, float | None]:
    """Context switches per call in the timed launches."""
    calls = sum(launch.calls for launch in row.result.launches)
    if not calls:
        return None, None
    sides = []
    for side in ("client", "server"):
        parts = [getattr(launch, side) for launch in row.result.launches]
        sides.append(sum(part.voluntary_switches + part.involuntary_switches for part in parts) / calls)
    return (None, None) if not any(sides) else (sides[0], sides[1])


def section(report: Report) -> Markup:
    """The table."""
    found = reasons(report)
    if not found:
        return paragraph("Nothing was counted in this run: nearcall-lab run --observe does.", class_="empty")
    rows = [
        element(
            "tr",
            element("th", reason.row.name, scope="row"),
            element("td", reason.work, class_="words"),
            [
                element("td", value, class_="words soft" if at == len(reason.cells) - 1 else None)
                for at, value in enumerate(reason.cells)
            ],
            data_m=reason.row.cell.mechanism,
        )
        for reason in found
    ]
    heads = [
        element("th", head, scope="col", class_="words" if at in (0, 1, len(HEADS) - 1) else None)
        for at, head in enumerate(HEADS)
    ]
    return join(
        element(
            "div",
            element(
                "table",
                element("caption", "Counts per call", class_="hidden"),
                element("thead", element("tr", heads)),
                element("tbody", rows),
                id="counts",
            ),
            class_="scroll tall", tabindex="0", role="region", aria_label="Counts per call",
        ),
        element("div", element("strong", "Beware"), items(list(CAVEATS)), class_="caveat"),
    )  # fmt: skip
