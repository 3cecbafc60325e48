"""Programs of gevent: while one greenlet waits for a call, the others of its thread run.

nearcall never imports gevent. It looks whether the program has patched itself when it connects.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, Final

from .. import _core

__all__ = ["MOST_WAITING", "look_for_greenlets", "need_threads"]

MOST_WAITING: Final = 1000
"""Greenlets of one thread that wait for calls at once, each with a thread of the system beside it; more wait for their
turn.
"""
_IDLE: Final = 10.0
"""Seconds after which a thread ends for which no greenlet has work."""


def look_for_greenlets() -> None:
    """From now on, calls leave other greenlets running, if gevent has patched this program."""
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and getattr(monkey, "saved", None):
        _core.use_greenlets(_runner)


def need_threads(what: str) -> None:
    """Makes sure that what starts a thread in this program does not start a greenlet: handlers would stop all others.

    Args:
        what: What starts threads, for the message.

    Raises:
        RuntimeError: gevent has patched the program's threads.
    """
    monkey = sys.modules.get("gevent.monkey")
    if monkey is not None and monkey.is_module_patched("threading"):
        raise RuntimeError(
            f"{what} runs in threads, and gevent has made greenlets of this program's: patch it with "
            "gevent.monkey.patch_all(thread=False), or use another process"
        )


def _runner() -> Callable[[Callable[[], None]], object] | None:
    """What runs a wait of the calling greenlet in another thread, while the other greenlets of this one run; ``None``
    if there can be none.
    """
    hub: Any = import_module("gevent._hub_local").get_hub_if_exists()
    if hub is None or import_module("greenlet").getcurrent() is hub:
        return None  # in a thread without greenlets, or in a callback of the hub's, which cannot wait in another way
    if _core.current_call() is not None:
        return None  # a handler's thread receives for its server while it waits, which no other can do for it
    pool: Any = hub.__dict__.get("nearcall_waits")
    if pool is None:
        # Not the hub's own pool: that has few threads, which look up names for sockets.
        make: Any = import_module("gevent.threadpool").ThreadPool
        pool = hub.__dict__.setdefault("nearcall_waits", make(MOST_WAITING, hub, _IDLE))
    apply: Callable[[Callable[[], None]], object] = pool.apply
    return apply
