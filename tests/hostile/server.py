"""The server under attack, which SIGTERM ends as any other. Its arguments are ``{options} URL``."""

from __future__ import annotations

import ctypes
import inspect
import json
import logging
import signal
import sys
from typing import Any

import nearcall
from nearcall.server.server import DEFAULT_MAX_CONCURRENCY

from ..e2e.process import serve_encrypted
from .lateness import record_aside
from .naps import record_naps
from .services import TOKEN, served_at

MAX_MEMORY = 96 << 20
HANDSHAKE_TIMEOUT = 1.0
GRACE = 1.0
_PR_SET_PDEATHSIG = 1


def knows_max_memory() -> bool:
    return "max_memory" in inspect.signature(nearcall.Server.__init__).parameters


def main() -> None:
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
