"""``nearcall serve --reload``: serves in a child process, and anew when a file has changed. For development."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Callable, Iterable
from pathlib import Path

from . import UsageError, carry_out
from .finding import is_url

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
    import logging

    logging.getLogger("watchfiles").setLevel(logging.ERROR)  # it would tell how it is told to end
    options.reload = False
    options.run = run
    # Ends likewise however it is told to. Who ends the terminal's session ends both. SIGINT is also how the child is
    # told to end: it would ignore it, too, as what a script leaves in the background does.
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.default_int_handler)
    watchfiles.run_process(
        *folders(options.what, options.config),
        target=_serve,
        args=(options,),
        target_type="function",
        watch_filter=watchfiles.PythonFilter(extra_extensions=WATCHED[1:]),
        callback=_tell,
        sigint_timeout=LONGEST,
        ignore_permission_denied=True,
    )


def folders(what: Iterable[str], config: str | None) -> list[Path]:
    """What to watch: the current directory, and where files stand that the command names."""
    files = [item.partition(":")[0] for item in what if not is_url(item)]
    named = [Path(file).absolute().parent for file in (*files, config or "") if file.endswith(WATCHED)]
    return [folder for folder in dict.fromkeys((Path.cwd(), *named)) if folder.is_dir()]


def _serve(options: argparse.Namespace) -> None:
    try:
        status = carry_out(options)
    except KeyboardInterrupt:
        status = 0
    if status:
        print("nearcall: waiting for a file to change", file=sys.stderr, flush=True)
    raise SystemExit(status)


def _tell(changes: Iterable[tuple[object, str]]) -> None:
    names = sorted({os.path.relpath(path) for _, path in changes})
    print(f"nearcall: changed: {', '.join(names)}; serving anew", file=sys.stderr, flush=True)
