"""Colours and marks of the lab's pages.

The palette is Okabe and Ito's, adjusted for light and dark; shapes repeat the meaning of the colours.
"""

from __future__ import annotations

import math

from markupsafe import Markup

FAMILIES: dict[str, tuple[str, str, str]] = {
    # family: (mark, colour on light, colour on dark)
    "nearcall": ("circle", "#0062a8", "#5cb8f0"),
    "shared memory": ("square", "#9a5b00", "#f0b040"),
    "socket": ("diamond", "#5a6570", "#a9b4bf"),
    "messaging": ("up", "#00795a", "#35c79d"),
    "rpc": ("down", "#c04600", "#ff8a50"),
    "http": ("cross", "#a3467f", "#e39cc6"),
    "floor": ("bar", "#20262c", "#e6ebf0"),
}

FAMILY_NAMES = {"rpc": "RPC framework", "http": "HTTP"}


def css_class(family: str) -> str:
    """Class that carries a family's colour; an unknown family has that of RPC frameworks."""
    return "f-" + (family if family in FAMILIES else "rpc").replace(" ", "-")


def mark(family: str, x: float, y: float, r: float = 5.0) -> Markup:
    """An SVG shape for a family, centred on ``(x, y)``, about `r` pixels in radius."""
    kind = FAMILIES.get(family, FAMILIES["rpc"])[0]
    css = f'class="mark {css_class(family)}"'
    if kind == "circle":
        return Markup(f'<circle {css} cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>')
    if kind == "bar":
        return Markup(f'<rect {css} x="{x - r / 3:.1f}" y="{y - r:.1f}" width="{r / 1.5:.1f}" height="{2 * r:.1f}"/>')
    if kind == "cross":
        points = _cross(r)
    else:
        count, turn = {"square": (4, 45), "diamond": (4, 0), "up": (3, -90), "down": (3, 90)}[kind]
        scale = r * 1.22
        angles = [math.radians(turn + i * 360 / count) for i in range(count)]
        points = [(scale * math.cos(a), scale * math.sin(a)) for a in angles]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points)
    return Markup(f'<polygon {css} points="{path}"/>')


def _cross(r: float) -> list[tuple[float, float]]:
    arm = r * 0.38
    quarter = [(arm, -r), (arm, -arm), (r, -arm)]
    points: list[tuple[float, float]] = []
    for _ in range(4):
        points += quarter
        quarter = [(-y, x) for x, y in quarter]
    return points


def icon(family: str) -> Markup:
    """The family's mark as a picture in a line of text; the text beside it has the same information."""
    return Markup(f'<svg class="icon" viewBox="0 0 14 14" aria-hidden="true">{mark(family, 7, 7)}</svg>')


def palette(dark: bool) -> str:
    """The families' colours as CSS variables."""
    return " ".join(f"--{css_class(family)}:{spec[1 + dark]};" for family, spec in FAMILIES.items())


def classes() -> str:
    """The rules that give the families' classes their colours."""
    return "\n".join(f".{css_class(family)} {{ color:var(--{css_class(family)}); }}" for family in FAMILIES)
