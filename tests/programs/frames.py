"""A service of data frames: uploaded whole or in parts, and asked for in parts, with progress, or given up.

Written from the pages of docs/ alone: guide/large-data, guide/streams, guide/objects, guide/deadlines, guide/failures.
Its frames are polars', because that is the library of the three that has types of its own. Run by test_frames.py, and
by hand:

    python frames.py serve shm://frames tcp://127.0.0.1:7500
    python frames.py demo shm://frames
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from dataclasses import dataclass
from datetime import date, timedelta

import polars as pl

import nearcall


@dataclass
class Shape:
    rows: int
    columns: list[str]


@dataclass
class Where:
    """Rows whose column is in a range, from `least` to before `end`."""

    column: str
    least: float
    end: float


@dataclass
class Report:
    title: str
    rows: pl.DataFrame
    of: Shape


@dataclass
class State:
    """What a query that has ended has sent, and whether it was given up."""

    parts: int
    given_up: bool


class NoColumn(Exception):
    def __init__(self, column: str, columns: list[str]) -> None:
        super().__init__(f"there is no column {column}")
        self.columns = columns


Progress = Callable[[int, int], None]


@nearcall.service(errors=[NoColumn])
class Frames:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._frames: dict[str, pl.DataFrame] = {}
        self.ended: nearcall.Topic[State] = nearcall.Topic(keep_last=True)

    def put(self, name: str, frame: pl.DataFrame) -> Shape:
        """Keeps it. Over shared memory its columns of numbers are not copied here: a view keeps their memory."""
        with self._lock:
            self._frames[name] = frame
        return shape_of(frame)

    def upload(self, name: str, parts: Iterable[pl.DataFrame]) -> Shape:
        """The same for a frame that is longer than a message. All of it is kept, or nothing."""
        return self.put(name, pl.concat(parts))

    def get(self, name: str) -> pl.DataFrame:
        with self._lock:
            if name not in self._frames:
                raise nearcall.NotFound(f"there is no frame {name}", details=sorted(self._frames))
            return self._frames[name]

    def query(
        self, name: str, where: list[Where], part: int = 10_000, progress: Progress | None = None
    ) -> Generator[pl.DataFrame, None, None]:
        """The rows that fit, in parts, each made when there is room for it."""
        frame = self.get(name)
        for condition in where:
            if condition.column not in frame.columns:
                raise NoColumn(condition.column, frame.columns)
        sent, through = 0, False
        try:
            for begin in range(0, frame.height, part):
                rows = frame[begin : begin + part]
                for condition in where:
                    column = pl.col(condition.column)
                    rows = rows.filter((column >= condition.least) & (column < condition.end))
                if progress is not None:
                    progress(min(begin + part, frame.height), frame.height)
                if rows.height:
                    yield rows
                    sent += 1
            through = True
        finally:
            self.ended.publish(State(sent, given_up=not through))

    def report(self, name: str, by: str, of: str, progress: Progress | None = None) -> Report:
        """Sums by group; ends early when nobody waits for it."""
        frame = self.get(name)
        for column in (by, of):
            if column not in frame.columns:
                raise NoColumn(column, frame.columns)
        groups = sorted(frame[by].drop_nulls().unique().to_list())
        sums: list[float] = []
        try:
            for group in groups:
                if nearcall.context().cancelled:
                    raise nearcall.Cancelled("nobody waits for it")
                sums.append(float(frame.filter(pl.col(by) == group)[of].sum()))
                if progress is not None:
                    progress(len(sums), len(groups))
        finally:
            self.ended.publish(State(len(sums), given_up=len(sums) < len(groups)))
        return Report(f"{of} by {by}", pl.DataFrame({by: groups, of: sums}), shape_of(frame))

    def watch(self) -> Iterable[State]:
        """The last query that has ended, and each that ends from now on."""
        return self.ended.subscribe()


def shape_of(frame: pl.DataFrame) -> Shape:
    return Shape(frame.height, frame.columns)


def sales(rows: int, first: int = 0) -> pl.DataFrame:
    """What a shop has sold: text, days, counts, prices, and some days nobody knows of."""
    numbers = range(first, first + rows)
    return pl.DataFrame(
        {
            "shop": [f"shop {n % 7}" for n in numbers],
            "day": [None if n % 11 == 0 else date(2026, 1, 1) + timedelta(days=n % 300) for n in numbers],
            "count": [n % 5 for n in numbers],
            "price": [n / 8 for n in numbers],
        }
    )


def demo(url: str) -> None:
    with nearcall.connect(url, Frames, timeout=30) as frames:
        shape = frames.upload("sales", (sales(10_000, first) for first in range(0, 50_000, 10_000)))
        print(shape.rows, "rows of", ", ".join(shape.columns))
        seen: list[int] = []
        parts = list(frames.query("sales", [Where("price", 1000, 2000)], 5_000, lambda done, _: seen.append(done)))
        print(sum(part.height for part in parts), "rows in", len(parts), "parts,", len(seen), "steps")
        with closing(frames.query("sales", [], part=100)) as some:
            print(next(some)["shop"][0], "and no more")
        report = frames.report("sales", "shop", "count")
        print(f"{report.title}:", *(f"{shop} {count:g}" for shop, count in report.rows.rows()), sep="\n  ")
        try:
            frames.report("sales", "shop", "cost")
        except NoColumn as error:
            print(error, "among", *error.columns)


if __name__ == "__main__":
    command, *urls = sys.argv[1:]
    if command == "serve":
        nearcall.serve(Frames(), *urls, on_ready=lambda server: print(*server.urls, flush=True))
    else:
        demo(*urls)
