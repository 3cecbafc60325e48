"""What the charts share: axes, lines with their labels, and the figure around them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from nearcall_lab.report.html import element, join
from nearcall_lab.report.look import css_class, mark
from nearcall_lab.report.model import Row

LABEL_GAP = 15.0
DASHES = ("", "7 3", "2 3", "9 3 2 3", "12 4")
"""Dash patterns that distinguish lines of one family, which share a colour."""

Point = tuple[float, float]


@dataclass(frozen=True)
class Axis:
    """Converts values to pixels. On a logarithmic axis `low` is above zero."""

    low: float
    high: float
    start: float
    end: float
    log: bool = True

    def __call__(self, value: float) -> float:
        """The pixel of a value; one beyond an end of the axis is placed at that end."""
        value = min(max(value, self.low), self.high)
        if self.log:
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return self.start + part * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values within the axis."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            steps = (1, 2, 5) if last - first <= 3 else (1,)
            found = [m * 10.0**e for e in range(first, last + 1) for m in steps]
        else:
            width = (self.high - self.low) / 5 or 1.0
            power = 10.0 ** math.floor(math.log10(width))
            step = next(m * power for m in (1, 2, 5, 10) if m * power >= width * 0.999)
            found = [step * i for i in range(math.floor(self.low / step), math.ceil(self.high / step) + 1)]
        return [tick for tick in found if self.low * 0.9999 <= tick <= self.high * 1.0001]


def around(values: Iterable[float], start: float, end: float, room: float = 1.3) -> Axis:
    """A logarithmic axis around values above zero."""
    found = [value for value in values if value > 0 and math.isfinite(value)] or [1.0, 10.0]
    low, high = min(found) / room, max(found) * room
    if high / low < 4:  # a narrow range must not look wide
        middle = math.sqrt(low * high)
        low, high = middle / 2, middle * 2
    return Axis(low, high, start, end)


def short_time(ns: float) -> str:
    """A round time on an axis."""
    for scale, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if ns >= scale * 0.9999:
            return f"{ns / scale:g} {unit}"
    return f"{ns:g} ns"


def short_number(value: float) -> str:
    """A round number on an axis."""
    for scale, unit in ((1e6, " M"), (1e3, " K")):
        if value >= scale * 0.9999:
            return f"{value / scale:g}{unit}"
    return f"{value:g}"


def text(x: float, y: float, content: object, anchor: str = "start", class_: str = "") -> Markup:
    """Words in a drawing."""
    return element("text", content, x=x, y=y, text_anchor=None if anchor == "start" else anchor, class_=class_ or None)


def line(a: Point, b: Point, class_: str) -> Markup:
    """A straight line."""
    return element("line", x1=a[0], y1=a[1], x2=b[0], y2=b[1], class_=class_)


def path(points: Sequence[Point], class_: str, dash: str = "") -> Markup:
    """A line through points."""
    where = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return element("polyline", points=where, class_=class_, stroke_dasharray=dash or None)


def grid_y(axis: Axis, left: float, right: float, label: str, name: str) -> Markup:
    """Horizontal lines with their values; `label` is ``time`` or ``number``, `name` is what is measured."""
    write = short_time if label == "time" else short_number
    parts = []
    for tick in axis.ticks():
        y = axis(tick)
        parts += [line((left, y), (right, y), "grid"), text(left - 8, y + 4, write(tick), "end", "tick")]
    return join(parts, text(left - 8, axis.end - 10, name, "start", "name"))


def grid_x(axis: Axis, top: float, bottom: float, ticks: Sequence[tuple[float, str]], name: str) -> Markup:
    """Vertical lines with their values, as far as there is room for the text."""
    parts, free = [], -math.inf
    for value, label in ticks:
        x = axis(value)
        parts.append(line((x, top), (x, bottom), "grid"))
        half = 3.4 * len(label)
        if x - half > free + 6:
            parts.append(text(x, bottom + 17, label, "middle", "tick"))
            free = x + half
    middle = (axis.start + axis.end) / 2
    return join(parts, text(middle, bottom + 36, name, "middle", "name"))


def apart(wanted: Iterable[Point | tuple[float, str]], gap: float, low: float, high: float) -> dict[str, float]:
    """Places for labels: as near as possible to `wanted`, in that order, at least `gap` apart, and between `low` and
    `high`.
    """
    ordered = sorted((float(y), str(name)) for y, name in wanted)
    # With the gaps subtracted, places must only not decrease: the nearest such places are the means of blocks of
    # neighbours, by "pool adjacent violators" (M. Ayer et al., Annals of Mathematical Statistics 26, 1955).
    blocks: list[tuple[float, int]] = []
    for at, (y, _) in enumerate(ordered):
        mean, count = y - at * gap, 1
        while blocks and blocks[-1][0] > mean:
            before, others = blocks.pop()
            mean, count = (before * others + mean * count) / (others + count), others + count
        blocks.append((mean, count))
    most = high - gap * (len(ordered) - 1)
    places = [min(max(mean, low), most) for mean, count in blocks for _ in range(count)]
    return {name: place + at * gap for at, ((_, name), place) in enumerate(zip(ordered, places, strict=True))}


def dashes(rows: Iterable[Row]) -> dict[str, str]:
    """A dash pattern for each mechanism, different within a family as far as there are patterns."""
    seen: dict[str, int] = {}
    found: dict[str, str] = {}
    for row in rows:
        if row.cell.mechanism not in found:
            number = seen.get(row.result.family, 0)
            seen[row.result.family] = number + 1
            found[row.cell.mechanism] = DASHES[number % len(DASHES)]
    return found


def series(row: Row, said: str, *children: object, class_: str = "") -> Markup:
    """All elements of one mechanism; the page's script shows the text `said`, and fades the others."""
    classes = f"series {css_class(row.result.family)} {class_}".strip()
    return element("g", element("title", said), children, class_=classes, data_m=row.cell.mechanism)


@dataclass(frozen=True)
class Curve:
    """One mechanism's line."""

    row: Row
    points: list[Point]
    """In pixels, from left to right."""
    said: str
    marked: bool = True
    extra: Markup | None = None


def curves(found: Sequence[Curve], right: float, top: float, bottom: float) -> Markup:
    """Lines, each with its name at its end."""
    pattern = dashes(curve.row for curve in found)
    ends = [(curve.points[-1][1], curve.row.key) for curve in found]
    places = apart(ends, LABEL_GAP, top + 4, bottom)
    parts = []
    for curve in found:
        row, (x, y), at = curve.row, curve.points[-1], places[curve.row.key]
        parts.append(
            series(
                row,
                curve.said,
                path(curve.points, "curve", pattern[row.cell.mechanism]),
                [mark(row.result.family, px, py, 3.6) for px, py in (curve.points if curve.marked else [(x, y)])],
                curve.extra,
                # From a line that ends early, the lead to its name is long: it is drawn so faint that it is not taken
                # for data.
                path([(x + 6, y), (right + 30, at), (right + 34, at)], "lead far" if right - x > 40 else "lead"),
                text(right + 38, at + 4, row.name, class_="label"),
            )
        )
    return join(parts)


def height_for(count: int, least: float = 380) -> float:
    """The height of a plot whose lines have `count` labels."""
    return max(least, LABEL_GAP * count + 20)


@dataclass(frozen=True)
class Figure:
    """One drawing, with its content as text for readers who cannot see it."""

    key: str
    title: str
    """What distinguishes it from other figures of its kind."""
    drawing: Markup
    about: str
    """One sentence for readers who cannot see it."""
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    """Its numbers as a table."""
    remarks: Sequence[str] = ()


def canvas(width: float, height: float, about: str, *children: object, class_: str = "") -> Markup:
    """A drawing that can be reached with the keyboard; arrow keys go from line to line."""
    return element(
        "svg",
        children,
        class_=f"chart {class_}".strip(),
        viewBox=f"0 0 {width:.0f} {height:.0f}",
        role="group",
        aria_roledescription="chart",
        aria_label=f"{about} Arrow keys go from one mechanism to the next; the table below has the same numbers.",
        tabindex="0",
    )


def section(name: str, heading: str, intro: str, figures: Sequence[Figure], caveats: Sequence[str]) -> Markup:
    """All figures of one kind; where there are several, the page's script shows the one that is chosen."""
    if not figures:
        return Markup("")
    chooser: Markup | None = None
    if len(figures) > 1:
        options = [element("option", figure.title, value=figure.key) for figure in figures]
        chooser = element(
            "label", "Work ", element("select", options, data_chooses=name, autocomplete="off"), class_="chooser"
        )
    return element(
        "section",
        element("h3", heading),
        element("p", intro),
        element("div", chooser, [_figure(name, figure) for figure in figures], class_="drawn"),
        element("aside", element("strong", "Beware"), element("ul", [element("li", c) for c in caveats]),
                class_="caveat", aria_label=f"Beware: {heading}"),
        id=name,
        class_="charts",
    )  # fmt: skip


def _figure(name: str, figure: Figure) -> Markup:
    head = element("tr", [element("th", title, scope="col") for title in figure.head])
    body = [
        element("tr", element("th", row[0], scope="row"), [element("td", value) for value in row[1:]])
        for row in figure.rows
    ]
    numbers = element(
        "details",
        element("summary", "The same as a table"),
        element(
            "div",
            element("table", element("caption", figure.title, class_="hidden"), element("thead", head),
                    element("tbody", body)),
            class_="scroll", tabindex="0", role="region", aria_label=f"Numbers of the chart: {figure.title}",
        ),
    )  # fmt: skip
    remarks = element("ul", [element("li", remark) for remark in figure.remarks], class_="remarks")
    return element(
        "figure",
        element("figcaption", figure.title),
        element("div", figure.drawing, class_="wide"),
        remarks if figure.remarks else None,
        numbers,
        data_of=name,
        data_key=figure.key,
    )
