"""The flame picture: what waited, by the functions that led there, from the first at the top to the calls at the
tips.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from ..types.shown import shown
from .findings import duration
from .model import FlameNode
from .terminal import place

__all__ = ["drawing"]

WIDTH = 1200.0
ROW = 21
LETTER = 6.6
"""Pixels of a letter, about."""
THINNEST = 0.4
"""Pixels; what is thinner is not drawn."""
DEEPEST = 60


def drawing(root: FlameNode) -> str:
    """The picture, as SVG in HTML."""
    if not root.waited:
        return '<p class="soft">Nothing has waited.</p>'
    bars = list(_bars(root, 0.0, 0))
    height = (max(depth for _, _, _, depth in bars) + 1) * ROW + 4
    drawn = "".join(_bar(node, x, width, depth, root.waited) for node, x, width, depth in bars)
    return (
        "<p>The width of a bar is the time that was waited below it. Click on one to widen it, and on the top to "
        "see all again.</p>"
        f'<div class="box wide"><svg id="picture" class="chart" viewBox="0 0 {WIDTH:.0f} {height}" role="group" '
        f'tabindex="0" aria-label="Flame picture of the waiting; the table of lines has the numbers" '
        f'data-width="{WIDTH:.0f}">{drawn}</svg></div>'
    )


def _bars(node: FlameNode, x: float, depth: int, scale: float = 0.0) -> Iterator[tuple[FlameNode, float, float, int]]:
    scale = scale or WIDTH / node.waited
    width = node.waited * scale
    if width < THINNEST or depth > DEEPEST:
        return
    yield node, x, width, depth
    for child in node.children:
        yield from _bars(child, x, depth + 1, scale)
        x += child.waited * scale


def _bar(node: FlameNode, x: float, width: float, depth: int, total: int) -> str:
    where = f" {place(node.file, node.line)}" if node.file else ""
    label = shown(f"{node.label}{where}" if where else node.label)
    said = f"{label}: {duration(node.waited)}, {node.waited / total:.1%}, {node.calls:,} calls"
    kind = "tip" if not node.children and depth else "frame"
    letters = int((width - 8) / LETTER)
    text = "" if letters < 3 else label if len(label) <= letters else f"{label[: letters - 1]}…"
    return (
        f'<g class="{kind}" data-x="{x:.2f}" data-w="{width:.2f}" data-label="{escape(label)}"><title>{escape(said)}'
        f'</title><rect x="{x:.2f}" y="{depth * ROW + 1}" width="{max(width - 0.6, 0.3):.2f}" height="{ROW - 2}" '
        'rx="2"/>'
        f'<text x="{x + 4:.2f}" y="{depth * ROW + 15}">{escape(text)}</text></g>'
    )
