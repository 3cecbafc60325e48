"""Two processes: one serves a class, the other calls it as if it were here.

    python examples/calculator.py serve     # in one terminal
    python examples/calculator.py           # in another

It prints::

    1 + 2 = 3
    2 + 5 = 7
    counting: 3 2 1
    total: 4950
    scaled: [2.5, 5.0, 7.5]
"""

import sys
from collections.abc import Iterable, Iterator

import nearcall

URL = "shm://example-calculator"


@nearcall.service
class Calculator:
    """The four modes of a call, told apart by their annotations."""

    def add(self, a: int, b: int = 5) -> int:
        return a + b

    def countdown(self, n: int) -> Iterator[int]:
        yield from range(n, 0, -1)

    def total(self, xs: Iterable[int]) -> int:
        return sum(xs)

    def scale(self, xs: Iterable[float], by: float) -> Iterator[float]:
        for x in xs:
            yield x * by


def main() -> None:
    with nearcall.connect(URL, Calculator) as calc:
        print("1 + 2 =", calc.add(1, 2))
        print("2 + 5 =", calc.add(a=2))
        print("counting:", *calc.countdown(3))
        print("total:", calc.total(range(100)))
        print("scaled:", list(calc.scale([1.0, 2.0, 3.0], by=2.5)))


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Calculator(), URL)
    else:
        main()
