"""Colours and marks of the page.

The palette is Okabe and Ito's, adjusted for light and dark; shapes repeat what colour says.
"""

from __future__ import annotations

import math
from importlib.resources import files

FAMILIES: dict[str, tuple[str, str, str]] = {
    # family: (mark, colour on light, colour on dark)
    "nearcall": ("circle", "#0062a8", "#5cb8f0"),
    "shared memory": ("square", "#b36b00", "#f0b040"),
    "socket": ("diamond", "#5a6570", "#a9b4bf"),
    "messaging": ("up", "#00795a", "#35c79d"),
    "rpc": ("down", "#c04600", "#ff8a50"),
    "http": ("cross", "#a3467f", "#e39cc6"),
    "floor": ("bar", "#20262c", "#e6ebf0"),
}


def css_class(family: str) -> str:
    """Class that carries a family's colour."""
    return "f-" + family.replace(" ", "-")


def mark(family: str, x: float, y: float, r: float = 5.0) -> str:
    """An SVG shape for a family, centred on ``(x, y)``, about `r` pixels in radius."""
    kind = FAMILIES.get(family, FAMILIES["rpc"])[0]
    css = f'class="mark {css_class(family)}"'
    if kind == "circle":
        return f'<circle {css} cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}"/>'
    if kind == "bar":
        return f'<rect {css} x="{x - r / 3:.1f}" y="{y - r:.1f}" width="{r / 1.5:.1f}" height="{2 * r:.1f}"/>'
    if kind == "cross":
        points = _cross(r)
    else:
        corners = {"square": (4, 45), "diamond": (4, 0), "up": (3, -90), "down": (3, 90)}[kind]
        count, turn = corners
        scale = r * 1.22
        angles = [math.radians(turn + i * 360 / count) for i in range(count)]
        points = [(scale * math.cos(a), scale * math.sin(a)) for a in angles]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in points)
    return f'<polygon {css} points="{path}"/>'


def _cross(r: float) -> list[tuple[float, float]]:
    arm = r * 0.38
    quarter = [(arm, -r), (arm, -arm), (r, -arm)]
    points: list[tuple[float, float]] = []
    for _ in range(4):
        points += quarter
        quarter = [(-y, x) for x, y in quarter]
    return points


def style() -> str:
    """The style sheet with the palette filled in."""
    names = list(FAMILIES.items())
    light = " ".join(f"--{css_class(f)}:{spec[1]};" for f, spec in names)
    dark = " ".join(f"--{css_class(f)}:{spec[2]};" for f, spec in names)
    classes = "\n".join(f".{css_class(f)} {{ color:var(--{css_class(f)}); }}" for f, _ in names)
    sheet = (files(__package__) / "page.css").read_text(encoding="utf-8")
    return sheet.replace("LIGHT", light).replace("DARK", dark) + classes
