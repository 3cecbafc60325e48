"""From text to braille cells: by liblouis if it is there, else by a small table of our own.

A cell is a byte, whose bit 0 is dot 1; as a character it is U+2800 and its value.
"""

from __future__ import annotations

import ctypes
from typing import Any

_TABLES = b"unicode.dis,en-ueb-g2.ctb"
_LETTERS = {
    **dict(zip("abcdefghij", (0x01, 0x03, 0x09, 0x19, 0x11, 0x0B, 0x1B, 0x13, 0x0A, 0x1A), strict=True)),
    "w": 0x3A,
}
for _place, _letter in enumerate("klmnopqrst"):
    _LETTERS[_letter] = _LETTERS["abcdefghij"[_place]] | 0x04
for _place, _letter in enumerate("uvxyz"):
    _LETTERS[_letter] = _LETTERS["abcde"[_place]] | 0x24
_SIGNS = {" ": 0x00, ",": 0x02, ";": 0x06, ":": 0x12, ".": 0x32, "!": 0x16, "?": 0x26, "'": 0x04, "-": 0x24}
_CAPITAL, _NUMBER, _LETTER = 0x20, 0x3C, 0x30
"""What stands before a capital letter, a number, and a letter after a number."""
_UNKNOWN = 0x3F


def by_table(text: str) -> bytes:
    """Uncontracted braille (grade 1) of English texts; what is not known is a full cell."""
    cells = bytearray()
    in_number = False
    for char in text:
        if char.isascii() and char.isdigit():
            if not in_number:
                cells.append(_NUMBER)
            cells.append(_LETTERS["jabcdefghi"[int(char)]])
            in_number = True
            continue
        if in_number and char in "abcdefghij":
            cells.append(_LETTER)
        in_number = in_number and char in ".,"
        if char.isupper():
            cells.append(_CAPITAL)
        small = char.lower()
        cells.append(_LETTERS[small] if small in _LETTERS else _SIGNS.get(char, _UNKNOWN))
    return bytes(cells)


class Translator:
    """Texts to cells."""

    def __init__(self) -> None:
        self._louis: Any = None
        try:
            self._louis = ctypes.CDLL("liblouis.so.20")
        except OSError:
            return
        # Lengths go by reference; characters are 2 or 4 bytes, as the library was built.
        self._kind: Any = {2: ctypes.c_uint16, 4: ctypes.c_uint32}[self._louis.lou_charSize()]

    @property
    def name(self) -> str:
        """Who translates."""
        return "liblouis" if self._louis is not None else "the reader's own table"

    def cells(self, text: str) -> bytes:
        """The cells of a text."""
        if self._louis is None:
            return by_table(text)
        points = [ord(char) if ord(char) < 0x10000 else 0xFFFD for char in text]
        given = (self._kind * len(points))(*points)
        made: Any = (self._kind * (4 * len(points) + 16))()
        length, room = ctypes.c_int(len(given)), ctypes.c_int(len(made))
        done = self._louis.lou_translateString(
            _TABLES, given, ctypes.byref(length), made, ctypes.byref(room), None, None, 0
        )
        if not done or length.value < len(given):
            return by_table(text)
        return bytes(char & 0xFF for char in made[: room.value])


def shown(cells: bytes) -> str:
    """Cells as characters."""
    return "".join(chr(0x2800 + cell) for cell in cells)
