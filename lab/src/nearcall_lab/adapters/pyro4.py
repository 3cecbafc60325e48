"""Pyro4 over a Unix socket and over TCP, with the marshal serializer: the fastest that carries bytes as they are."""

from __future__ import annotations

from nearcall_lab.adapters import pyro
from nearcall_lab.contract import Ready, SimpleSession, Spec, Stop

MECHANISMS = pyro.mechanisms("Pyro4", "ONEWAY_THREADED off")


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import Pyro4

    Pyro4.config.SERIALIZERS_ACCEPTED = {"marshal"}
    Pyro4.config.ONEWAY_THREADED = False
    Pyro4.config.THREADPOOL_SIZE = pyro.THREADS
    pyro.serve(spec, ready, stop, Pyro4)


def connect(spec: Spec) -> SimpleSession:
    import Pyro4

    return pyro.connect(spec, Pyro4)
