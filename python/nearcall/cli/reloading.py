"""``nearcall serve --reload``: serves in a child process, and anew when a file has changed. For development."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from . import UsageError, carry_out
from .finding import is_url

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

__all__ = ["serve_anew"]

LONGEST = 10
"""Seconds that calls under way have to end when files have changed; then the process is killed."""
WATCHED = (".py", ".pyi", ".toml")


def serve_anew(options: argparse.Namespace, run: Callable[[argparse.Namespace], None]) -> None:
    """Runs the command again and again in a process of its own: each time with the code of now.

    Args:
        options: Its options.
        run: What runs it once.

    Raises:
        UsageError: what watches files is not installed.
    """
    try:
        import watchfiles
    except ModuleNotFoundError:
        raise UsageError("--reload needs watchfiles: pip install 'nearcall[reload]'") from None
    options.reload = False
    options.run = run
    ended = threading.Event()
    child = _begin(options)

    def end(_number: int, _frame: object) -> None:
        if ended.is_set():
            child.terminate()  # told again: it waits no longer for calls under way
        ended.set()

    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, end)
    found = watchfiles.watch(
        *folders(options.what, options.config),
        watch_filter=watchfiles.PythonFilter(extra_extensions=WATCHED[1:]),
        stop_event=ended,
        ignore_permission_denied=True,
    )
    for changes in found:
        _tell(changes)
        _end(child)
        if not ended.is_set():
            child = _begin(options)
    _end(child)


def _begin(options: argparse.Namespace) -> SpawnProcess:
    child = multiprocessing.get_context("spawn").Process(target=_serve, args=(options,))
    # Ctrl-C reaches all processes of a terminal, and the child is told to end by its parent: twice would be too often.
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the child inherits
    try:
        child.start()
    finally:
        signal.signal(signal.SIGINT, before)
    return child


def _end(child: SpawnProcess) -> None:
    child.terminate()
    child.join(LONGEST)
    if child.is_alive():
        child.kill()
        child.join()


def folders(what: Iterable[str], config: str | None) -> list[Path]:
    """What to watch: the current directory, and where files stand that the command names."""
    files = [item.partition(":")[0] for item in what if not is_url(item)]
    named = [Path(file).absolute().parent for file in (*files, config or "") if file.endswith(WATCHED)]
    return [folder for folder in dict.fromkeys((Path.cwd(), *named)) if folder.is_dir()]


def _serve(options: argparse.Namespace) -> None:
    status = carry_out(options)
    if status:
        print("nearcall: waiting for a file to change", file=sys.stderr, flush=True)
    raise SystemExit(status)


def _tell(changes: Iterable[tuple[object, str]]) -> None:
    names = sorted({os.path.relpath(path) for _, path in changes})
    print(f"nearcall: changed: {', '.join(names)}; serving anew", file=sys.stderr, flush=True)
