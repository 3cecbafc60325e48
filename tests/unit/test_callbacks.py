"""The threads that run what servers call of this process's objects."""

from __future__ import annotations

import threading

from nearcall.client import callbacks


def test_the_end_of_the_process_does_not_stumble_over_a_thread_that_is_being_started() -> None:
    ours = callbacks._Callbacks()  # pyright: ignore[reportPrivateUsage]
    ours._threads.add(threading.Thread(target=print))  # pyright: ignore[reportPrivateUsage]
    ours.stop()
