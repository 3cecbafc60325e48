"""Signals that tell a process to end: ``SIGTERM``, Ctrl-C, and ``SIGHUP`` where it does not mean to reload."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from typing import Any

__all__ = ["Terminal", "Terminated", "Told", "raise_when_told"]


class Terminated(BaseException):
    """``SIGTERM`` arrived. The signal's handler raises it, as Ctrl-C does, and stops nothing itself: it may have
    interrupted code that holds a lock which stopping needs.
    """


class Terminal:
    """The terminal that the process was started from, if there is one."""

    def __init__(self) -> None:
        self._had_one = _has_terminal()
        self.ignored = signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
        """Whether the process was started by ``nohup``, or likewise: it outlives the terminal."""

    def hung_up(self) -> bool:
        """Whether ``SIGHUP`` came because the terminal is gone. Otherwise somebody has sent it."""
        return self._had_one and not _has_terminal()


def _has_terminal() -> bool:
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
        return True
    return False


class Told:
    """The signals that have arrived since :func:`raise_when_told`."""

    def __init__(self) -> None:
        self.to_end = False
        """A signal has arrived. What its handler raised may be lost: Python swallows exceptions in finalizers."""
        self._raises = True
        self._is_ending = False
        self._before: dict[int, Any] = {}

    def watch(self) -> None:
        """Installs the handlers of the signals. In the main thread only."""
        for number in (signal.SIGTERM, signal.SIGHUP):
            # Who has said what becomes of SIGHUP keeps that: nohup, too.
            if number == signal.SIGTERM or signal.getsignal(number) == signal.SIG_DFL:
                self._before[number] = signal.signal(number, self._on_signal)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, self._on_signal)

    def restore(self) -> None:
        """Puts the earlier handlers back."""
        for number, before in self._before.items():
            signal.signal(number, before)

    def begin_to_end(self) -> None:
        """The end has begun: from now on one more signal raises, to hasten it, and no further one. ``SIGHUP`` does not:
        a terminal that hangs up sends it, and so may its shell.
        """
        self._raises = self._is_ending = True

    def _on_signal(self, number: int, frame: object) -> None:
        self.to_end = True
        if number == signal.SIGHUP and self._is_ending:
            return
        # A second signal must not interrupt what the first has begun. Whoever presses Ctrl-C again may do so because
        # what the first one raised is lost.
        if self._raises or (number == signal.SIGINT and not self._is_ending):
            self._raises = False
            raise KeyboardInterrupt if number == signal.SIGINT else Terminated


def raise_when_told() -> Told:
    """Lets ``SIGTERM`` raise in the main thread, as Ctrl-C does. The result knows whether one of them has arrived."""
    told = Told()
    if threading.current_thread() is threading.main_thread():
        told.watch()
    return told
