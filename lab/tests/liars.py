"""Adapters that misbehave, for the tests: the lab must find each of them out."""

from __future__ import annotations

import os
import time
from typing import Any

from nearcall_lab.adapters import mp_connection
from nearcall_lab.contract import Mechanism, Ready, Session, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Order, fill

_WAYS = (
    "honest",
    "wrong-content",
    "wrong-length",
    "stale",
    "never-asks",
    "crashes-at-start",
    "dies-while-serving",
    "raises",
    "never-ready",
)
MECHANISMS = tuple(Mechanism(way, way, "rpc", way) for way in _WAYS)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    if spec.mechanism.variant == "crashes-at-start":
        raise RuntimeError("no luck today")
    if spec.mechanism.variant == "never-ready":
        time.sleep(60)
    if spec.mechanism.variant == "dies-while-serving":

        class Deadly:
            calls = 0

            def count(self) -> None:
                os._exit(7)

        object.__setattr__(spec, "served", Deadly())
    mp_connection.serve(spec, ready, stop)


def connect(spec: Spec) -> Session:
    session = mp_connection.connect(spec)
    way = spec.mechanism.variant
    true_echo = session.call("echo")
    first: list[bytes] = []

    def echo(data: bytes) -> Any:
        if way == "never-asks":
            return data
        if way == "raises":
            raise ValueError("cannot do\nthat")
        reply = true_echo(data)
        if way == "wrong-content":
            return reply[:-1] + b"!"
        if way == "wrong-length":
            return reply[:-1]
        if way == "stale":
            first.append(reply)
            return first[0]
        return reply

    def quote(order: Order) -> Any:
        return fill(order) if way == "never-asks" else session.call("quote")(order)

    return SimpleSession({"echo": echo, "quote": quote}, session.close, session.open)
