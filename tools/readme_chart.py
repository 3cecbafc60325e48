"""The README's chart: round trips of the mechanisms that a reader compares first, as bars."""

from html import escape
from math import ceil, floor, log10
from typing import NamedTuple

from nearcall_lab.stats import format_time

LEFT, RIGHT, TOP, STEP = 214, 60, 58, 26
WIDTH = 760

STYLE = """\
    .ground { fill: #f7f8fa; stroke: #8a939e; }
    .grid { stroke: #cfd5dc; }
    .ours { fill: #2f6db3; }
    .theirs { fill: #9aa5b1; }
    text { font-family: ui-sans-serif, system-ui, "DejaVu Sans", sans-serif; font-size: 13px; fill: #1f2933; }
    .title { font-weight: 600; font-size: 15px; }
    .small { font-size: 12px; fill: #3e4c59; }
    .end { text-anchor: end; }
    .middle { text-anchor: middle; }"""


class Bar(NamedTuple):
    """One mechanism."""

    label: str
    nanoseconds: float
    ours: bool


def chart(title: str, bars: list[Bar]) -> str:
    """An SVG with a bar for each mechanism, on a logarithmic scale of whole powers of ten.

    Args:
        title: What was measured.
        bars: At least one; from top to bottom.
    """
    times = [bar.nanoseconds for bar in bars]
    low = 10 ** floor(log10(min(times)))
    high = max(10 * low, 10 ** ceil(log10(max(times))))
    height = TOP + STEP * len(bars) + 34

    def x(nanoseconds: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * log10(nanoseconds / low) / log10(high / low)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" '
        'role="img" aria-labelledby="title">',
        f'  <title id="title">{escape(title)}</title>',
        f"  <style>\n{STYLE}\n  </style>",
        f'  <rect class="ground" x="1" y="1" width="{WIDTH - 2}" height="{height - 2}" rx="10"/>',
        f'  <text class="title" x="22" y="34">{escape(title)}</text>',
    ]
    bottom = TOP + STEP * len(bars)
    mark = low
    while mark <= high:
        lines.append(f'  <line class="grid" x1="{x(mark):.1f}" y1="{TOP - 6}" x2="{x(mark):.1f}" y2="{bottom}"/>')
        lines.append(f'  <text class="small middle" x="{x(mark):.1f}" y="{bottom + 18}">{tick(mark)}</text>')
        mark *= 10
    for number, bar in enumerate(bars):
        y = TOP + STEP * number
        kind = "ours" if bar.ours else "theirs"
        lines.append(f'  <text class="end" x="{LEFT - 10}" y="{y + 13}">{escape(bar.label)}</text>')
        lines.append(f'  <rect class="{kind}" x="{LEFT}" y="{y}" width="{x(bar.nanoseconds) - LEFT:.1f}" height="18"/>')
        value = format_time(bar.nanoseconds)
        lines.append(f'  <text class="small" x="{x(bar.nanoseconds) + 6:.1f}" y="{y + 13}">{value}</text>')
    return "\n".join([*lines, "</svg>", ""])


def tick(nanoseconds: float) -> str:
    """A power of ten without decimals: `1 µs`."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:g} {unit}"
    return f"{nanoseconds:g} ns"
