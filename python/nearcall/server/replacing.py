"""A rolling restart of workers: one after the other gets a successor, which is ready before it leaves.

The successor is a new process, which imports what it serves anew. If it cannot begin, the workers that are there stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from ..log import ERROR, INFO, WARNING, log
from .worker import SLACK, Task, Worker

__all__ = ["Place", "Replacing"]

LOOK = 0.01
"""Seconds after which a worker that leaves is looked at again, while clients wait that were handed to it."""
PATIENCE = 2.0
"""Seconds that a worker which leaves has to take these clients."""


class Place:
    """A worker's place: the worker that has it now, and how often its predecessors have died."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.worker: Worker | None = None
        self.deaths = 0
        self.not_before = 0.0


class _Leaving:
    """A worker that has a successor."""

    def __init__(self, worker: Worker, grace: float) -> None:
        self.worker = worker
        self.grace = grace
        self.until = time.monotonic() + PATIENCE
        """When it is told at the latest; from then on, when it must have ended."""
        self.told = False

    def tell(self) -> None:
        """Tells it to finish its calls and end, as soon as it has taken the clients that were handed to it."""
        if not self.told and (self.worker.has_taken_all() or time.monotonic() >= self.until):
            self.worker.let_go()
            self.told, self.until = True, time.monotonic() + self.grace + SLACK


class Replacing:
    """The rolling restart of the workers in these places.

    Args:
        places: The places.
        start: Starts a worker for a place, by the task.
    """

    def __init__(self, places: list[Place], start: Callable[[Place, Task], Worker]) -> None:
        self._places = places
        self._start = start
        self._task: Task | None = None
        self._to_do: list[Place] = []
        self._successor: tuple[Place, Worker] | None = None
        self._leaving: list[_Leaving] = []

    def workers(self) -> Iterator[Worker]:
        """The workers that are in no place: a successor that is not ready, and those that leave."""
        if self._successor is not None:
            yield self._successor[1]
        for leaving in self._leaving:
            yield leaving.worker

    @property
    def under_way(self) -> bool:
        """Whether a worker is to be replaced still. Its predecessors may be leaving."""
        return self._successor is not None or bool(self._to_do)

    def begin(self, task: Task) -> None:
        """Begins to replace all workers, anew if they are just being replaced."""
        self._task = task
        self._to_do = list(self._places)

    def until_next(self) -> float | None:
        """When to look again, on the monotonic clock, even if nothing happens."""
        now = time.monotonic()
        times = [each.until if each.told else now + LOOK for each in self._leaving]
        return min(times, default=None)

    def step(self) -> bool:
        """Goes on. ``False`` if a successor could not begin: the others keep their places, and the last task counts."""
        went_well = self._look_at_successor()
        if not went_well:
            self._to_do.clear()
        while self._successor is None and self._to_do:
            place = self._to_do.pop(0)
            if place.worker is None:
                continue  # who comes next there does the new task anyway
            assert self._task is not None
            try:
                self._successor = place, self._start(place, self._task)
            except OSError as error:
                log(
                    ERROR,
                    "cannot start the successor of worker %d: %s; the workers stay as they are",
                    place.number,
                    error,
                )
                self._to_do.clear()
                went_well = False
        self._look_at_leaving()
        return went_well

    def _look_at_successor(self) -> bool:
        if self._successor is None:
            return True
        place, worker = self._successor
        worker.listen()
        if worker.ready:
            self._successor = None
            old, place.worker, place.deaths = place.worker, worker, 0
            if old is not None:
                old.leaving = True
                self._leaving.append(_Leaving(old, worker.grace))
            if not self._to_do:
                log(INFO, "all workers are replaced")
            return True
        if worker.process.exitcode is None:
            return True
        self._successor = None
        told = worker.failure()
        why = told[0] if told else worker.how_it_ended()
        text = "the successor of worker %d could not begin to serve, and the workers stay as they are: %s"
        log(ERROR, text, place.number, why, stack=told[1] if told else None)
        _bury(worker)
        return False

    def _look_at_leaving(self) -> None:
        for leaving in list(self._leaving):
            leaving.tell()
            worker = leaving.worker
            if worker.process.exitcode is None and leaving.told and time.monotonic() >= leaving.until:
                log(WARNING, "worker %d did not end in time: it is killed", worker.number)
                worker.process.kill()
                worker.process.join()
            if worker.process.exitcode is not None:
                self._leaving.remove(leaving)
                _bury(worker)

    def forget(self) -> None:
        """All workers have ended."""
        self._successor = None
        self._leaving.clear()
        self._to_do.clear()


def _bury(worker: Worker) -> None:
    worker.forget()
    worker.process.close()
