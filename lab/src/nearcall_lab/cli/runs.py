"""What several commands share: where runs are stored, and carrying out a run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from types import FrameType

from rich.console import Console

from nearcall_lab.cli.command import UserError
from nearcall_lab.engine.progress import LiveProgress, Progress, clock_text
from nearcall_lab.engine.run import Engine, expected_seconds
from nearcall_lab.results.model import CellResult, HostInfo
from nearcall_lab.results.store import INFO, Recorded, Run, StoreError, read
from nearcall_lab.scenario.load import Planned
from nearcall_lab.stats import counted

RUNS = Path("out/runs")
AGAIN = Path("out/again")
"""Folder of runs that only check another run, or the lab: none of them counts as "the last run"."""


def new_directory(name: str, folder: Path = RUNS) -> Path:
    """The directory of a run for which none was given: named after its scenario and the local time, to the second."""
    base = folder / f"{Path(name).stem}-{datetime.now():%Y%m%d-%H%M%S}"
    found, number = base, 2
    while found.exists():
        found, number = base.with_name(f"{base.name}-{number}"), number + 1
    return found


def recorded_runs(folder: Path = RUNS) -> list[Path]:
    """Directories of runs in a folder, the latest last."""
    found = folder.glob(f"*/{INFO}") if folder.is_dir() else []
    return [path.parent for path in sorted(found, key=lambda path: path.stat().st_mtime)]


def latest(folder: Path = RUNS) -> Path:
    """The run that was written last. Raises `UserError` if there is none."""
    found = recorded_runs(folder)
    if not found:
        raise UserError(f"there is no run in {folder} yet: nearcall-lab run quick makes one, or name its directory")
    return found[-1]


@contextmanager
def terminated_like_interrupted() -> Iterator[None]:
    """A run that gets SIGTERM, or whose terminal is closed, ends cleanly as after Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    kinds = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(kind, interrupt) for kind in kinds]
    try:
        yield
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def announce(console: Console, run: Run, planned: Sequence[Planned]) -> None:
    """Print what is to be run, how long it will take and where it is stored."""
    info, able = run.info, [p for p in planned if not p.problem]
    about = expected_seconds([p.cell for p in able], info.launches, info.cells_per_launch)
    if info.limit_s:
        about = min(about, info.limit_s)
    cells, mechanisms = counted(len(able), "cell"), counted(len({p.cell.mechanism for p in able}), "mechanism")
    console.print(
        f"{info.title}: {cells} of {mechanisms}, {counted(info.launches, 'launch')} each, about {clock_text(about)}; "
        f"{info.placement}\n"
        f"into {run.directory}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )


def carry_out(
    run: Run, planned: Sequence[Planned], console: Console, show: Callable[[Sequence[CellResult]], None] | None = None
) -> Recorded:
    """Make the run's launches and show how far it is; returns what is recorded then. Raises `StoreError`.

    `show` is given all results so far, between launches.
    """
    from nearcall_lab.engine.observe import observe
    from nearcall_lab.hosts.hosts import Hosts

    def keep(info: HostInfo) -> None:
        run.info.hosts = [*(host for host in run.info.hosts if host.url != info.url), info]

    with run, terminated_like_interrupted(), LiveProgress(console) as progress, Hosts(planned, keep) as hosts:
        engine: Engine

        def tell(so_far: Progress) -> None:
            progress(so_far)
            if show is not None:
                show(engine.results)

        engine = Engine(run, planned, hosts.fresh_processes, tell, observe)
        engine.go()
    return read(run.directory)


def find_cell(prefix: str, places: Sequence[Path]) -> tuple[Recorded, str]:
    """The latest of these runs with a cell whose digest begins with `prefix`, and the digest.

    Raises `UserError`, or `StoreError` where the only run there is cannot be read.
    """
    if not prefix or not set(prefix) <= set("0123456789abcdef"):
        raise UserError(f"a cell's digest is made of the digits 0 to 9 and a to f, not {prefix!r}")
    unreadable = []
    for place in reversed(places):
        try:
            recorded = read(place)
        except StoreError as error:
            if len(places) == 1:
                raise
            unreadable.append(str(error))
            continue
        found = [cell.digest for cell in recorded.cells if cell.digest.startswith(prefix)]
        if len(found) > 1:
            raise UserError(f"{prefix} is the beginning of {len(found)} cells of {place}; give more of the digest")
        if found:
            return recorded, found[0]
    searched = ", ".join(str(place) for place in places[-3:]) or str(RUNS)
    also = f" ({unreadable[0]})" if unreadable else ""
    raise UserError(f"no cell {prefix} in {searched}{also}; nearcall-lab report shows the digests of a run")
