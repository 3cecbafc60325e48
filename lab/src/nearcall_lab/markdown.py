"""Text from elsewhere as Markdown that means only itself: labels and problems come from adapters and from files."""

from __future__ import annotations

import re
from collections.abc import Sequence

_MEANS_SOMETHING = re.compile(r"([\\`*_\[\]|~])")


def escaped(text: str) -> str:
    """One line in which no character is markup."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = line.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _MEANS_SOMETHING.sub(r"\\\1", line)


def code(text: str) -> str:
    """One line as code; a backtick in it becomes an apostrophe, since it would end the code."""
    return f"`{' '.join(text.replace('`', chr(39)).split())}`"


def table(head: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table of texts that are Markdown already; the first `words` columns to the left, the others to the right."""
    rule = ["---" if at < words else "---:" for at in range(len(head))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))
