"""The demo page's style sheet; colours and marks are those of every page of the lab."""

from __future__ import annotations

from importlib.resources import files

from nearcall_lab.report.look import FAMILIES, classes, css_class, mark, palette

__all__ = ["FAMILIES", "css_class", "mark", "style"]


def style() -> str:
    """The style sheet with the palette filled in."""
    sheet = (files(__package__) / "page.css").read_text(encoding="utf-8")
    return sheet.replace("LIGHT", palette(dark=False)).replace("DARK", palette(dark=True)) + classes()
