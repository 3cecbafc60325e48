"""The server under attack, which SIGTERM ends as any other. Its arguments are ``{options} URL``."""

from __future__ import annotations

import ctypes
import inspect
import json
import logging
import os
import signal
import sys
from typing import Any

import nearcall
from nearcall.server.limits import DEFAULT_MAX_CONCURRENCY

from ..e2e.process import serve_encrypted
from .lateness import record_aside
from .naps import record_naps
from .services import TOKEN, served_at

MAX_MEMORY = 176 << 20
"""Beside the longest rings there is room for one call of the longest messages; a server takes no less."""
HANDSHAKE_TIMEOUT = 1.0
GRACE = 1.0
_PR_SET_PDEATHSIG = 1
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8
_AT_ONCE = 128 << 10


def knows_max_memory() -> bool:
    return "max_memory" in inspect.signature(nearcall.Server.__init__).parameters


def _give_back_what_is_free() -> None:
    """Lets glibc have one arena, and give free memory in it back to the system from 128 KiB on, always. By itself it
    has one for each thread, and what is free in one serves no other: calls that ask for 96 MiB took up to 385. And once
    the first long block is freed, it keeps up to 64 MiB in each. Both would be taken for what the server keeps.

    Who sets ``MALLOC_ARENA_MAX`` gets that many arenas; 0 stands for glibc's choice.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other libraries of C have no such thing
    if mallopt is not None:
        if "MALLOC_ARENA_MAX" not in os.environ:
            mallopt(_M_ARENA_MAX, 1)
        mallopt(_M_TRIM_THRESHOLD, _AT_ONCE)
        mallopt(_M_MMAP_THRESHOLD, _AT_ONCE)


def main() -> None:
    _give_back_what_is_free()
    # It does not outlive the test, however that ends.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    logging.basicConfig(level=logging.INFO)
    serve_encrypted()
    options = {"handshake_timeout": HANDSHAKE_TIMEOUT, **json.loads(sys.argv[1])}
    if knows_max_memory():
        options.setdefault("max_memory", MAX_MEMORY)
    if clocks := options.pop("clocks", None):
        record_aside(clocks["interpreter"])
        record_naps(clocks["handlers"], options.get("max_concurrency", DEFAULT_MAX_CONCURRENCY))
    if options.pop("token", False):
        options["interceptors"] = [nearcall.auth.token(TOKEN)]

    def tell(server: Any) -> None:
        print(json.dumps(server.urls), flush=True)

    nearcall.serve(served_at(sys.argv[2])(), sys.argv[2], grace=GRACE, on_ready=tell, **options)
