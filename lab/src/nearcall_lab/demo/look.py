"""Colours and marks of the page. The palette is Okabe and Ito's, adjusted for light and dark; shapes repeat what colour says."""

from __future__ import annotations

import math

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


STYLE = """
:root { color-scheme: light dark; --page:#fbfcfd; --card:#fff; --ink:#18202a; --soft:#5b6774; --line:#dde3e9;
  --grid:#e7ecf1; --good:#0062a8; --warn:#9a4a00; LIGHT }
@media (prefers-color-scheme: dark) { :root { --page:#11161c; --card:#192028; --ink:#e7edf3; --soft:#9aa7b4;
  --line:#2c3641; --grid:#27313b; --good:#5cb8f0; --warn:#ffb070; DARK } }
* { box-sizing: border-box; }
body { margin:0; background:var(--page); color:var(--ink); font:15px/1.5 system-ui, "Segoe UI", Roboto, sans-serif; }
main { max-width:1240px; margin:0 auto; padding:2rem 1.25rem 4rem; }
h1 { font-size:1.7rem; line-height:1.2; margin:0 0 .3rem; letter-spacing:-.01em; }
h2 { font-size:1.15rem; margin:2.4rem 0 .3rem; }
p, li { max-width:78ch; } .soft { color:var(--soft); } p { margin:.2rem 0 .8rem; }
.cards { display:grid; gap:.8rem; grid-template-columns:repeat(auto-fit, minmax(185px, 1fr)); margin:1.2rem 0; }
.card { background:var(--card); border:1px solid var(--line); border-radius:10px; padding:.75rem .9rem; }
.card h3 { margin:0; font-size:.8rem; font-weight:600; color:var(--soft); }
.card b { display:block; font-size:1.35rem; line-height:1.35; font-variant-numeric:tabular-nums; }
.card span { font-size:.84rem; color:var(--soft); display:block; line-height:1.35; }
.flags { border-left:3px solid var(--warn); padding:.1rem 0 .1rem .8rem; margin:1rem 0; }
.flags li { margin:0; } .flags ul { margin:0; padding-left:1.1rem; }
.legend { display:flex; flex-wrap:wrap; gap:.3rem 1.1rem; font-size:.86rem; margin:.5rem 0 .8rem; padding:0; }
.legend li { list-style:none; display:flex; align-items:center; gap:.35rem; }
.panels { display:grid; gap:1rem; grid-template-columns:repeat(auto-fit, minmax(min(100%, 520px), 1fr)); }
figure { margin:0; background:var(--card); border:1px solid var(--line); border-radius:10px; padding:.7rem .8rem .4rem; }
figcaption { font-weight:600; } figcaption small { font-weight:400; color:var(--soft); }
svg { display:block; width:100%; height:auto; } svg text { fill:var(--ink); font:12px system-ui, sans-serif; }
svg .tick, svg .num { fill:var(--soft); font-size:11px; } svg .num { font-variant-numeric:tabular-nums; }
svg .grid { stroke:var(--grid); } svg .base { stroke:var(--soft); stroke-dasharray:3 3; }
svg .strong { font-weight:650; } .mark { fill:currentColor; stroke:var(--card); stroke-width:1; }
.range { stroke:currentColor; stroke-width:2; opacity:.45; } .curve { fill:none; stroke:currentColor; stroke-width:1.8; }
.series { opacity:.9; } .scaling:hover .series { opacity:.16; } .scaling .series:hover, .scaling .series:focus { opacity:1; outline:none; }
.series:hover .curve, .series:focus .curve { stroke-width:3; } .series text { fill:currentColor; }
.scroll { overflow-x:auto; background:var(--card); border:1px solid var(--line); border-radius:10px; }
table { border-collapse:collapse; width:100%; font-size:.86rem; } th, td { padding:.4rem .7rem; text-align:right; vertical-align:top; }
th { background:var(--card); white-space:nowrap; } thead th { border-bottom:1px solid var(--line); }
tbody tr + tr > * { border-top:1px solid var(--grid); } th:first-child { text-align:left; position:sticky; left:0; z-index:1; }
td { font-variant-numeric:tabular-nums; white-space:nowrap; } td small, th small { color:var(--soft); display:block; font-weight:400; }
td.text { text-align:left; white-space:normal; min-width:14rem; } td.why { text-align:left; color:var(--warn); white-space:normal; }
thead button { all:unset; cursor:pointer; } thead button:focus-visible { outline:2px solid var(--good); outline-offset:2px; }
th[aria-sort] button::after { content:" ▴"; } th[aria-sort=descending] button::after { content:" ▾"; }
code { background:var(--grid); border-radius:4px; padding:.05rem .3rem; }
@media print { body { background:#fff; } .panels { display:block; } figure { break-inside:avoid; margin-bottom:1rem; } }
"""


def style() -> str:
    """The style sheet with the palette filled in."""
    names = list(FAMILIES.items())
    light = " ".join(f"--{css_class(f)}:{spec[1]};" for f, spec in names)
    dark = " ".join(f"--{css_class(f)}:{spec[2]};" for f, spec in names)
    classes = "\n".join(f".{css_class(f)} {{ color:var(--{css_class(f)}); }}" for f, _ in names)
    return STYLE.replace("LIGHT", light).replace("DARK", dark) + classes
