"""What happened when, and a picture of it."""

from __future__ import annotations

import threading
import time
from html import escape
from pathlib import Path
from typing import NamedTuple

_LEFT, _WIDTH, _LANE, _TOP = 150, 1000, 34, 64
_INK, _PALE, _SPEECH = "#1f2933", "#9aa5b1", "#2b6cb0"
_COLOURS = {
    "started": "#2f855a",
    "answers": "#2f855a",
    "late": "#b7791f",
    "error": "#b7791f",
    "downgraded": "#9aa5b1",
    "died": "#c53030",
    "failed": "#c53030",
    "refused": "#6b46c1",
    "gap": "#c53030",
}
_LABELLED = ("late", "died")


class Mark(NamedTuple):
    """An instant on a lane."""

    lane: str
    at: float
    kind: str
    text: str


class Bar(NamedTuple):
    """A stretch on a lane, with a colour of its own kind."""

    lane: str
    begin: float
    end: float
    kind: str
    text: str


class Timeline:
    """Collects from any thread. Times are seconds since its making."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._change = threading.Lock()
        self.marks: list[Mark] = []
        self.bars: list[Bar] = []

    def now(self) -> float:
        """Seconds since the beginning."""
        return self.at(time.monotonic())

    def at(self, clock: float) -> float:
        """Seconds from the beginning to a time of ``time.monotonic()``."""
        return clock - self._began

    def mark(self, lane: str, kind: str, text: str) -> None:
        """Notes that something happens now."""
        with self._change:
            self.marks.append(Mark(lane, self.now(), kind, text))

    def bar(self, lane: str, begin: float, end: float, kind: str, text: str) -> None:
        """Notes what lasted from one time to another."""
        with self._change:
            self.bars.append(Bar(lane, begin, end, kind, text))

    def draw(self, path: Path, title: str) -> None:
        """Writes the picture, as SVG."""
        with self._change:
            marks, bars = list(self.marks), list(self.bars)
        ends = [bar.end for bar in bars] + [mark.at for mark in marks]
        path.write_text(_svg(title, marks, bars, max([1.0, *ends])), encoding="utf-8")


def _svg(title: str, marks: list[Mark], bars: list[Bar], end: float) -> str:
    lanes = {bar.lane for bar in bars} | {mark.lane for mark in marks}
    rows = sorted(lanes, key=lambda lane: (lane != "speech", lane))  # what must not stop comes first
    height = _TOP + _LANE * len(lanes) + 56
    scale = _WIDTH / end
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_LEFT + _WIDTH + 30}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="20" y="28" font-size="16" font-weight="bold" fill="{_INK}">{escape(title)}</text>',
    ]
    bottom = _TOP + _LANE * len(lanes)
    step = next((each for each in (0.5, 1, 2, 5, 10, 20, 60) if end / each <= 14), 120)
    for number in range(int(end / step) + 1):
        x = _LEFT + number * step * scale
        parts.append(f'<line x1="{x:.1f}" y1="{_TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="#e4e7eb"/>')
        parts.append(
            f'<text x="{x:.1f}" y="{_TOP - 14}" fill="{_PALE}" text-anchor="middle">{number * step:g} s</text>'
        )
    for row, lane in enumerate(rows):
        y = _TOP + row * _LANE
        parts.append(f'<text x="{_LEFT - 10}" y="{y + 20}" fill="{_INK}" text-anchor="end">{escape(lane)}</text>')
        parts += [_bar(bar, y, scale) for bar in bars if bar.lane == lane]
        parts += [_mark(mark, y, scale) for mark in marks if mark.lane == lane]
    parts.append(_legend(sorted({mark.kind for mark in marks}), bottom + 32))
    return "\n".join([*parts, "</svg>\n"])


def _bar(bar: Bar, y: int, scale: float) -> str:
    x, width = _LEFT + bar.begin * scale, max(1.5, (bar.end - bar.begin) * scale)
    colour = _COLOURS["gap"] if bar.kind == "gap" else _SPEECH if bar.lane == "speech" else "#cbd2d9"
    text = escape(bar.text)
    label = ""
    if bar.kind not in ("gap", "runs") and width > 40:
        fitting = escape(bar.text[: int(width / 6.6)])
        label = f'<text x="{x + 4:.1f}" y="{y + 20}" fill="#ffffff" font-size="11">{fitting}</text>'
    return (
        f'<rect x="{x:.1f}" y="{y + 5}" width="{width:.1f}" height="{_LANE - 12}" rx="3" fill="{colour}">'
        f"<title>{text}</title></rect>{label}"
    )


def _mark(mark: Mark, y: int, scale: float) -> str:
    x, colour = _LEFT + mark.at * scale, _COLOURS.get(mark.kind, _PALE)
    label = ""
    if mark.kind in _LABELLED:
        label = f'<text x="{x + 9:.1f}" y="{y + 20}" fill="{colour}" font-size="11">{mark.kind}</text>'
    return (
        f'<circle cx="{x:.1f}" cy="{y + 16}" r="6" fill="{colour}" stroke="#ffffff" stroke-width="1.5">'
        f"<title>{escape(f'{mark.at:.2f} s: {mark.kind}: {mark.text}')}</title></circle>{label}"
    )


def _legend(kinds: list[str], y: int) -> str:
    parts: list[str] = []
    x = _LEFT
    for kind in kinds:
        parts.append(f'<circle cx="{x}" cy="{y - 4}" r="5" fill="{_COLOURS.get(kind, _PALE)}"/>')
        parts.append(f'<text x="{x + 10}" y="{y}" fill="{_INK}">{escape(kind)}</text>')
        x += 30 + 7 * len(kind)
    return "".join(parts)
