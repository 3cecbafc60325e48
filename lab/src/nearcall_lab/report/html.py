"""Elements of a page. Every text goes through `escape`, so that text from an adapter is never markup."""

from __future__ import annotations

import unicodedata

from markupsafe import Markup
from markupsafe import escape as _escape

_VOID = frozenset({"br", "meta", "input", "col"})
_DRAWN = frozenset({"line", "circle", "rect", "polyline", "polygon", "path", "use"})


def escape(value: object) -> Markup:
    """A value as text of a page. Control characters, and those that turn the direction of writing, become visible."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    if not text.isprintable():
        text = "".join(
            "\ufffd" if unicodedata.category(c) in ("Cc", "Cf", "Cs") and c not in "\n\t" else c for c in text
        )
    return _escape(text)


def join(*children: object) -> Markup:
    """All children one after the other; None and False are left out, and of a list its items are joined."""
    parts: list[Markup] = []
    for child in children:
        if child is None or child is False:
            continue
        parts.append(join(*child) if isinstance(child, (list, tuple)) else escape(child))
    return Markup("").join(parts)


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """``element("td", text, class_="number", data_value=3)`` is ``<td class="number" data-value="3">…</td>``.

    In the names of attributes an underscore stands for a hyphen; one at the end is dropped. An attribute that is None
    or False is left out, and one that is True has no value. Numbers of a drawing have one digit after the point.
    """
    written = Markup("").join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    content = join(*children)
    if name in _DRAWN and not content:
        return Markup(f"<{name}{written}/>")
    return Markup(f"<{name}{written}>{content}</{name}>")


def _attribute(key: str, value: object) -> Markup:
    if value is None or value is False:
        return Markup("")
    name = key.rstrip("_").replace("_", "-")
    if value is True:
        return Markup(f" {name}")
    if isinstance(value, float):
        value = f"{value:.1f}".removesuffix(".0")
    return Markup(f' {name}="{escape(value)}"')


def paragraph(*children: object, **attributes: object) -> Markup:
    """A ``<p>``."""
    return element("p", *children, **attributes)


def items(lines: list[str] | list[Markup], **attributes: object) -> Markup:
    """An unnumbered list; empty if there are no lines."""
    return element("ul", [element("li", line) for line in lines], **attributes) if lines else Markup("")
