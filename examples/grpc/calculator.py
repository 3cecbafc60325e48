"""One object, served to two kinds of clients: nearcall's over shared memory, gRPC's over a port.

    python examples/grpc/calculator.py serve     # in one terminal
    python examples/grpc/calculator.py           # in another

With a URL it calls the server there, which may be in any language.
README.md in this folder has the rest, step by step.
"""

import sys
import time
from collections.abc import Iterable, Iterator
from itertools import accumulate

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

    def countdown(self, n: int, pause: float = 0.0) -> Iterator[int]:
        """Numbers down to 1, with so many seconds before each."""
        for number in range(n, 0, -1):
            time.sleep(pause)
            yield number

    def total(self, xs: Iterable[int]) -> int:
        return sum(xs)

    def totals(self, xs: Iterable[int]) -> Iterator[int]:
        """The total so far, after each."""
        yield from accumulate(xs)

    def hello(self) -> str:
        """Who calls, as the metadata says."""
        context = nearcall.context()
        context.add_trailing_metadata({"served-by": "nearcall"})
        caller = context.metadata.get("caller", "stranger")
        return f"hello, {caller!s}"


def main() -> None:
    for url in URLS:
        with nearcall.connect(url, Calculator) as calc:
            print(url.partition(":")[0], calc.add(1, 2), calc.add(a=2), list(calc.countdown(3)), calc.total(range(100)))


def call(url: str) -> None:
    """Everything that a client can do, at a server that may have been started just now."""
    with nearcall.connect(url, Calculator, wait_for_ready=True, timeout=10) as calc:
        print("1 + 2 =", calc.add(1, 2))
        print("2 + 5 =", calc.add(2))
        print("counting:", *calc.countdown(3))
        print("total:", calc.total(range(100)))
        print("totals:", *calc.totals([1, 2, 3]))
        with nearcall.metadata({"caller": "nearcall"}) as metadata:
            print(calc.hello())
        print("served by", metadata.trailing["served-by"])
        try:
            calc.divide(1, 0)
        except nearcall.InvalidArgument as error:
            print(error.code.name, error.message)
        try:
            with nearcall.timeout(0.2):
                list(calc.countdown(1000, pause=1))
        except nearcall.DeadlineExceeded as error:
            print(error.code.name)
        numbers = calc.countdown(1_000_000)
        print(next(numbers), next(numbers), "and no more")
        del numbers  # nobody wants the others: the server stops


if __name__ == "__main__":
    match sys.argv[1:]:
        case []:
            main()
        case ["serve"]:
            nearcall.serve(Calculator(), *URLS)
        case urls:
            for url in urls:
                call(url)
