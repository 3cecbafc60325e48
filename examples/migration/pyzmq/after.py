"""The same collector with nearcall.

    python after.py serve
    python after.py

It prints::

    berlin: mean 10.0 of 1
    berlin: mean 15.0 of 2
    berlin: mean 20.0 of 3
    oslo: mean -2.0 of 2
    refused: no station 'rome'
"""

import sys
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import nearcall

URL = "tcp://127.0.0.1:7108"  # or shm://collector, on one machine


@dataclass
class Mean:
    station: str
    mean: float
    count: int


@nearcall.service
class Collector:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: defaultdict[str, list[float]] = defaultdict(list)
        self._means: defaultdict[str, nearcall.Topic[Mean]] = defaultdict(lambda: nearcall.Topic(keep_last=True))

    @nearcall.oneway
    def measured(self, station: str, value: float) -> None:
        with self._lock:
            self._values[station].append(value)
            self._means[station].publish(self._mean(station))

    def watch(self, station: str) -> Iterator[Mean]:
        with self._lock:
            return self._means[station].subscribe()

    def latest(self, station: str) -> Mean:
        with self._lock:
            return self._mean(station)

    def _mean(self, station: str) -> Mean:
        values = self._values.get(station)
        if not values:
            raise nearcall.NotFound(f"no station {station!r}")
        return Mean(station, sum(values) / len(values), len(values))


def show(mean: Mean) -> None:
    print(f"{mean.station}: mean {mean.mean} of {mean.count}")


def main() -> None:
    with nearcall.connect(URL, Collector) as collector:
        collector.measured("berlin", 10.0)
        screen = collector.watch("berlin")
        show(next(screen))
        for station, value in (("berlin", 20.0), ("oslo", -1.0), ("oslo", -3.0), ("berlin", 30.0)):
            collector.measured(station, value)
        show(next(screen))
        show(next(screen))
        with nearcall.timeout(10):
            show(collector.latest("oslo"))
        try:
            collector.latest("rome")
        except nearcall.NotFound as error:
            print("refused:", error)


if __name__ == "__main__":
    if sys.argv[1:] == ["serve"]:
        nearcall.serve(Collector(), URL)
    else:
        main()
