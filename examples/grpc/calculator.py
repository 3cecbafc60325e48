"""One object, served to two kinds of clients: nearcall's over shared memory, gRPC's over a port.

    python examples/grpc/calculator.py serve     # in one terminal
    python examples/grpc/calculator.py           # in another

README.md in this folder has the rest, step by step.
"""

import sys
from collections.abc import Iterable, Iterator

import nearcall

URLS = ("shm://example-grpc", "grpc://127.0.0.1:7002")


@nearcall.service(name="example.v1.Calculator")
class Calculator:
    def add(self, a: int, b: int = 5) -> int:
        return a + b

    def divide(self, a: float, b: float) -> float:
        if b == 0:
            raise nearcall.InvalidArgument("b is zero")
        return a / b

    def countdown(self, n: int) -> Iterator[int]:
        yield from range(n, 0, -1)

    def total(self, xs: Iterable[int]) -> int:
        return sum(xs)


def main() -> None:
    for url in URLS:
        with nearcall.connect(url, Calculator) as calc:
            print(url.partition(":")[0], calc.add(1, 2), calc.add(a=2), list(calc.countdown(3)), calc.total(range(100)))


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Calculator(), *URLS)
    else:
        main()
