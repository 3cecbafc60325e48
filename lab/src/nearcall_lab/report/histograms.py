"""The raw distributions of a cell as a file for download: an HdrHistogram log, which that library's tools read."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from urllib.parse import quote

from nearcall_lab.report.model import Row
from nearcall_lab.results.histogram import histogram_of
from nearcall_lab.results.model import Latencies, Launch

MOST_CHARACTERS = 2_000_000
"""Characters of histograms on one page, at most."""


class Detail(Enum):
    """How much of the distributions fits into a page."""

    LAUNCHES = "one histogram for each launch"
    MERGED = "all launches in one histogram, to keep this page small; the run's files have each launch"
    NONE = "left out, to keep this page small; the run's files have every launch"


def detail_for(rows: Sequence[Row]) -> Detail:
    """The highest level of detail that fits into a page."""
    sizes = [[len(part.histogram) for _, part in _parts(row)] for row in rows]
    if sum(map(sum, sizes)) <= MOST_CHARACTERS:
        return Detail.LAUNCHES
    # Merged, a cell takes about as much as its largest part, and seldom twice that.
    return Detail.MERGED if sum(2 * max(mine, default=0) for mine in sizes) <= MOST_CHARACTERS else Detail.NONE


def log(row: Row, detail: Detail) -> str:
    """The text of the file; empty where there is nothing to put into it."""
    parts = _parts(row)
    if detail is Detail.NONE or not parts:
        return ""
    lines = [
        "#[Histogram log format version 1.3]",
        f"#[{_plain(row.cell.mechanism)}, {_plain(row.cell.title())}, cell {row.result.digest}]",
        "#[Nanoseconds from 1 to one hour, three digits. Interval_Max is in milliseconds.]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    if detail is Detail.MERGED:
        length = sum(launch.wall_s for launch, _ in parts)
        merged = histogram_of(*(part for _, part in parts)).encode().decode()
        lines.append(_line("all", length, max(part.max for _, part in parts), merged))
    else:
        for launch, part in parts:
            lines.append(_line(f"launch-{launch.number}", launch.wall_s, part.max, part.histogram))
    return "\n".join(lines) + "\n"


def data_uri(text: str) -> str:
    """A ``data:`` URI that contains the text."""
    return "data:text/plain;charset=utf-8," + quote(text, safe="/+=,:;()[]#".replace("#", ""))


def _parts(row: Row) -> list[tuple[Launch, Latencies]]:
    return [(launch, launch.response) for launch in row.result.launches if launch.response is not None]


def _line(tag: str, seconds: float, most_ns: int, histogram: str) -> str:
    return f"Tag={tag},0.000,{seconds:.3f},{most_ns / 1e6:.6f},{histogram}"


def _plain(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)
