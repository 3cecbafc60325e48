"""The same warehouse with nearcall.

    python after.py serve
    python after.py

It prints::

    pens: 10, paper: 4
    the basket has 1 line
    low: 2 paper left
    the basket has 2 lines
    refused: only 7 pens
    3 pens, 2 paper
    after checkout: 7 pens
"""

import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

import nearcall

URL = "tcp://127.0.0.1:7102"  # or shm://warehouse, on one machine


@dataclass
class Line:
    item: str
    count: int


class OutOfStock(Exception):
    def __init__(self, item: str, left: int) -> None:
        super().__init__(f"only {left} {item}")
        self.item = item
        self.left = left


@nearcall.service(errors=[OutOfStock])
class Basket(Protocol):
    """What a shopper sees of one: the annotation of a method's result."""

    def add(self, line: Line) -> int: ...
    def lines(self) -> Iterator[Line]: ...


@nearcall.service(errors=[OutOfStock])
class Warehouse:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._stock = {"pens": 10, "paper": 4}
        self._watchers: list[Callable[[str, int], None]] = []

    def stock(self, item: str) -> int:
        return self._stock[item]

    def basket(self) -> Basket:
        return BasketOf(self)  # arrives as a reference, and goes when the shopper does

    def watch(self, low: Callable[[str, int], None]) -> None:
        self._watchers.append(low)

    def _reserve(self, line: Line) -> None:
        with self._lock:
            left = self._stock[line.item]
            if line.count > left:
                raise OutOfStock(line.item, left)
            self._stock[line.item] = left = left - line.count
        if left < 3:
            for low in self._watchers:
                low(line.item, left)


class BasketOf(Basket):
    def __init__(self, warehouse: Warehouse) -> None:
        self._warehouse = warehouse
        self._lines: list[Line] = []

    def add(self, line: Line) -> int:
        self._warehouse._reserve(line)
        self._lines.append(line)
        return len(self._lines)

    def lines(self) -> Iterator[Line]:
        yield from self._lines


def shop() -> None:
    with nearcall.connect(URL, Warehouse) as warehouse:
        warehouse.watch(lambda item, left: print(f"low: {left} {item} left"))
        calls = [nearcall.start(warehouse.stock, item) for item in ("pens", "paper")]
        print("pens: {}, paper: {}".format(*(call.result() for call in calls)))
        basket = warehouse.basket()
        print("the basket has", basket.add(Line("pens", 3)), "line")
        print("the basket has", basket.add(Line("paper", 2)), "lines")
        try:
            warehouse.basket().add(Line("pens", 99))
        except OutOfStock as error:
            print(f"refused: only {error.left} {error.item}")
        print(", ".join(f"{line.count} {line.item}" for line in basket.lines()))
        print("after checkout:", warehouse.stock("pens"), "pens")


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Warehouse(), URL)
    else:
        shop()
