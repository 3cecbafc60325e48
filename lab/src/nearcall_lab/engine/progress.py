"""Showing how far a run is: a bar in a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, TextColumn
from rich.progress import Progress as Bar

_LINE_EVERY_S = 10.0

B = TypeVar("B", bound="LaunchBar")


@dataclass(frozen=True)
class Progress:
    """How far a run is. Sent between launches only, never while something is being timed."""

    done: int
    total: int
    seconds_left: float
    mechanism: str
    work: str
    remark: str = ""
    """Something the user should see at once: a launch that failed."""
    repeated: int = 0
    """Launches so far that had to be made again because the machine was disturbed."""
    repeated_for: str = ""
    """How it was disturbed during the last of them."""


Tell = Callable[[Progress], None]


def clock_text(seconds: float) -> str:
    """For example ``2:05`` or ``1:02:05``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class LaunchBar:
    """A context manager: a bar of launches in a terminal. It draws only when `draw` is called, so that drawing never
    competes with a measurement.
    """

    def __init__(self, console: Console, *leading: ProgressColumn, **fields: Any) -> None:
        self._console = console
        self._bar = Bar(
            *leading,
            BarColumn(bar_width=24),
            TextColumn("{task.completed}/{task.total} launches"),
            TextColumn("{task.fields[left]}"),
            TextColumn("[dim]{task.fields[what]}"),
            console=console,
            auto_refresh=False,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("run", total=None, left="", what="", **fields)

    def __enter__(self: B) -> B:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.stop()

    def draw(self, done: int, total: int, left: str, what: str, **fields: Any) -> None:
        """Shows that `done` of `total` launches are made, the time that is left, and what is being done now."""
        self._bar.update(self._task, completed=done, total=total, left=left, what=what, **fields)
        self._bar.refresh()


class LiveProgress(LaunchBar):
    """Shows each `Progress`: in a terminal by the bar, elsewhere by a line now and then."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._last_line = -_LINE_EVERY_S
        self._repeated: tuple[int, str] = (0, "")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        number, reason = self._repeated
        if number:  # one line for all: what each of them was repeated for is on record
            launches = "launch was" if number == 1 else "launches were"
            line = f"{number} {launches} made again because the machine was disturbed; the last for: {reason}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)

    def __call__(self, progress: Progress) -> None:
        left = f"about {clock_text(progress.seconds_left)} left"
        what = f"{progress.mechanism}: {progress.work}"
        self._repeated = progress.repeated, progress.repeated_for
        if progress.remark:
            self._console.print(f"{what}: {progress.remark}", markup=False, highlight=False, soft_wrap=True)
        if self._console.is_terminal:
            self.draw(progress.done, progress.total, left, what)
            return
        now = time.monotonic()
        if now - self._last_line >= _LINE_EVERY_S:
            self._last_line = now
            line = f"{progress.done}/{progress.total} launches, {left}; {what}"
            self._console.print(line, markup=False, highlight=False, soft_wrap=True)
