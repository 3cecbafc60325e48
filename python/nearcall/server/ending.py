"""The end of a server's threads, and of the event loop that they use."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..loops.handlers import LoopThread

__all__ = ["end_loop", "join_workers"]


def join_workers(threads: Iterable[threading.Thread], seconds: float) -> list[threading.Thread]:
    """Waits for threads that end, each for so long. Returns those that go on: a handler that does not return cannot be
    ended. Its thread is a daemon, and does not hold up the process's end.
    """
    threads = list(threads)
    for thread in threads:
        # A thread that is only being started cannot be joined yet; it will find nothing left to do.
        if thread is not threading.current_thread() and thread.is_alive():
            thread.join(seconds)
    return [thread for thread in threads if thread.is_alive()]


def end_loop(loop: LoopThread, cut_off: Sequence[threading.Thread], ended: Callable[[], object]) -> None:
    """Ends the event loop of a server that has stopped, with the last handler that was cut off: the end of its client's
    object is awaited there.

    Args:
        loop: The loop.
        cut_off: Threads whose handlers have not returned.
        ended: Called then.
    """
    loop.leave()

    def end() -> None:
        for thread in cut_off:
            thread.join()
        loop.stop()
        ended()

    if not cut_off:
        end()
        return
    try:
        threading.Thread(target=end, name="nearcall-end", daemon=True).start()
    except RuntimeError:  # no more threads, or the interpreter ends
        loop.stop()
        ended()
