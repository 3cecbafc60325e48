"""What an object of one kind of ``with`` statement says in the other kind. Type checkers refuse it by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

__all__ = ["for_loops", "for_threads", "stream_in_thread", "wrong_with"]


def wrong_with(advice: str) -> Callable[..., NoReturn]:
    """A method for ``__enter__`` and ``__exit__``, or their asynchronous like, that raises :class:`TypeError`."""

    def refuse(*_: object) -> NoReturn:
        raise TypeError(advice)

    return refuse


def for_threads(kind: str, threads: str, loops: str) -> str:
    """What to write in place of an ``async with``: how such an object is used in threads, and its like in loops."""
    return f"this {kind} is for threads: write '{threads}', or '{loops}' in an event loop"


def for_loops(kind: str, threads: str, loops: str) -> str:
    """What to write in place of a ``with``."""
    return f"this {kind} is for an event loop: write '{loops}', or '{threads}' in a thread"


stream_in_thread = wrong_with("this stream is for an event loop: write 'async with', and 'async for'")
