"""A service for web pages. `python calculator.py`, and open the page (see README.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Annotated

import nearcall

Whole = Annotated[int, nearcall.field(type="int32")]
"""A number that JavaScript has: it would see an ``int`` of 64 bits as text."""


@nearcall.service(name="example.v1.Calculator")
class Calculator:
    @nearcall.no_side_effects
    def add(self, a: Whole, b: Whole = 0) -> Whole:
        return a + b

    def divide(self, a: float, b: float) -> float:
        if b == 0:
            raise nearcall.InvalidArgument("cannot divide by zero")
        return a / b

    def countdown(self, n: Whole) -> Iterator[Whole]:
        yield from range(n, 0, -1)


if __name__ == "__main__":
    page = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8000"
    nearcall.serve(Calculator(), "http://127.0.0.1:7003", allow_origins=[page])
