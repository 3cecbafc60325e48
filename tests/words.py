"""Words of memory that another process looks at meanwhile: read and written whole."""

from __future__ import annotations

import mmap
from typing import Literal, TypeAlias

Word: TypeAlias = Literal["Q", "I"]
"""8 bytes long, or 4."""


def load(memory: mmap.mmap, at: int, form: Word = "Q") -> int:
    """The word at an offset."""
    with memoryview(memory) as view, view[at : at + (8 if form == "Q" else 4)] as place, place.cast(form) as words:
        return int(words[0])


def store(memory: mmap.mmap, at: int, value: int, form: Word = "Q") -> None:
    """Sets that word. ``struct.pack_into`` clears it first, and the other process may see that."""
    with memoryview(memory) as view, view[at : at + (8 if form == "Q" else 4)] as place, place.cast(form) as words:
        words[0] = value
