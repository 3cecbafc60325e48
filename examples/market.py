"""Server push: one price for all who watch, and nobody of them costs a thread.

    python examples/market.py serve
    python examples/market.py

It prints::

    three begin with [100, 100, 100]
    all of them see [101, 102, 103] [101, 102, 103] [101, 102, 103]
    a newcomer begins with 103
"""

import sys
from collections.abc import Iterator
from itertools import islice

import nearcall

URL = "shm://example-market"


@nearcall.service
class Market:
    """One topic for all clients; the last price greets newcomers."""

    def __init__(self) -> None:
        self._prices = nearcall.Topic[int](keep_last=True)

    def watch(self) -> Iterator[int]:
        return self._prices.subscribe()  # and the handler is through

    def trade(self, price: int) -> int:
        return self._prices.publish(price)


def main() -> None:
    with nearcall.connect(URL, Market) as market:
        market.trade(100)
        screens = [market.watch() for _ in range(3)]
        print("three begin with", [next(screen) for screen in screens])
        for price in (101, 102, 103):
            market.trade(price)
        print("all of them see", *(list(islice(screen, 3)) for screen in screens))
        print("a newcomer begins with", next(market.watch()))


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Market(), URL)
    else:
        main()
