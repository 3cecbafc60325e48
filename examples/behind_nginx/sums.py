"""A service that nginx stands in front of. See README.md."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import nearcall

Whole = Annotated[int, nearcall.field(type="int32")]
"""A number that JSON writes as a number: an ``int`` of 64 bits would be text."""


@nearcall.service
class Calculator:
    def add(self, a: Whole, b: Whole) -> Whole:
        return a + b

    def divide(self, a: float, b: float) -> float:
        if b == 0:
            raise nearcall.InvalidArgument("cannot divide by zero")
        return a / b

    def countdown(self, n: Whole) -> Iterator[Whole]:
        yield from range(n, 0, -1)
