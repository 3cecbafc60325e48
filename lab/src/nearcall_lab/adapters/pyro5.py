"""Pyro5 over a Unix socket and over TCP, with the marshal serializer: the fastest that carries bytes as they are."""

from __future__ import annotations

from nearcall_lab.adapters import pyro
from nearcall_lab.contract import Ready, SimpleSession, Spec, Stop

MECHANISMS = pyro.mechanisms("Pyro5", "a thread per one-way call")


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import Pyro5.api

    Pyro5.api.config.THREADPOOL_SIZE = pyro.THREADS
    pyro.serve(spec, ready, stop, Pyro5.api)


def connect(spec: Spec) -> SimpleSession:
    import Pyro5.api

    return pyro.connect(spec, Pyro5.api)
