"""Runs a program as it is, with its calls recorded, and makes its profile.

The program runs in a process of its own, started by Python as ever: its arguments, ``__main__``, exit status, signals
and exit handlers are those that it has without a profiler. What is different is in its environment.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from .importing import environment
from .model import Profile
from .reading import read
from .recorder import clock
from .summary import summarize

__all__ = ["NEARCALL", "Options", "command_of", "run"]

NEARCALL = {
    "nearcall.client.channel": "nearcall.profile.nearcall_calls",
    "nearcall.aio.channel": "nearcall.profile.nearcall_calls",
}
"""The adapter for nearcall's own clients: the modules to watch, and the adapter's module."""

_SIGNALS = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGWINCH,
)
_FROM_TERMINAL = 0x80
"""``SI_KERNEL``: the terminal has sent it, and to the program as well."""


class Options(NamedTuple):
    """How to record."""

    one_in: int = 1
    """Record one call in so many, at random; 1: each."""
    most: int = 250_000
    """Records that each process keeps; of more calls a random choice. Each takes 96 bytes on the disk."""
    adapters: Mapping[str, str] = NEARCALL
    """Modules to watch, and the modules of their adapters; see :mod:`.importing`."""


def command_of(words: Sequence[str]) -> list[str]:
    """The command for what a user writes: ``script.py ...``, ``-m module ...`` or ``-c code`` is run by this Python,
    and everything else by its name.
    """
    if words[0] in ("-m", "-c") or words[0].endswith((".py", ".pyz", ".pyw")) or Path(words[0]).is_dir():
        return [sys.executable, *words]
    return list(words)


def run(words: Sequence[str], options: Options | None = None) -> Profile:
    """Runs a program until its end, and returns its profile. It has this process's standard streams, and gets the
    signals that this process gets meanwhile.

    Args:
        words: What to run: see :func:`command_of`.
        options: How to record.

    Raises:
        OSError: the program cannot be started.
    """
    options = options or Options()
    with tempfile.TemporaryDirectory(prefix="nearcall-profile-") as folder:
        known = environment(os.environ, folder, options.adapters, options.one_in, options.most)
        started, begun = time.time(), clock()
        status = _run(command_of(words), known)
        ended = clock()
        # Many records, and no circles of them: to look for some again and again would take as long as all else.
        gc.disable()
        try:
            return summarize(
                read(Path(folder)), command=list(words), started=started, begun=begun, ended=ended, status=status
            )
        finally:
            gc.enable()


def _run(command: Sequence[str], known: Mapping[str, str]) -> int:
    """Runs a command; returns its status, or minus the signal that has ended it."""
    watched = {*_SIGNALS, signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    # Python ignores these two, which the program would inherit.
    usual = [number for number in (signal.SIGPIPE, signal.SIGXFSZ) if signal.getsignal(number) is signal.SIG_IGN]
    handler = signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    try:
        pid = os.posix_spawnp(command[0], list(command), known, setsigmask=before, setsigdef=usual)
        while True:
            found, status = os.waitpid(pid, os.WNOHANG)
            if found:
                return os.waitstatus_to_exitcode(status)
            told = signal.sigwaitinfo(watched)
            if told.si_signo != signal.SIGCHLD and told.si_code != _FROM_TERMINAL:
                os.kill(pid, told.si_signo)
    finally:
        signal.signal(signal.SIGCHLD, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
