"""What adapters for XML-RPC and JSON-RPC share: the second is built on the standard library's server for the first."""

from __future__ import annotations

import time
from collections.abc import Callable
from socketserver import ThreadingMixIn
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Named, Order, fill, named

_QUEUE = 128
"""Connections that may wait to be accepted: with the 5 of the default, clients that connect together wait a second."""


def mechanisms(
    name: str,
    label: str,
    server: str,
    why: str,
    *,
    typed: str,
    more: str = "",
    requires: tuple[str, ...] = (),
    distribution: str = "",
) -> tuple[Mechanism, ...]:
    """The rows of one of them: with a connection for each call, which is the default, and with connections that stay
    open; ``why`` says who recommends these.
    """
    rows = (
        (name, label, "HTTP/1.0: a connection for each call", ""),
        (f"{name}-tuned", f"{label}, tuned", "HTTP/1.1: connections are kept; TCP_NODELAY", why),
    )
    return tuple(
        Mechanism(
            *(row, title, "http"),
            requires=requires,
            distribution=distribution,
            typed=typed,
            settings=f"{server} with ThreadingMixIn, {how}, a queue of {_QUEUE} connections, request log off{more}",
            transport="TCP",
            operations=("echo", "quote", "wait"),
            tuned=bool(reason),
            why=reason,
        )
        for row, title, how, reason in rows
    )


def serve(
    spec: Spec,
    ready: Ready,
    stop: Stop,
    server_class: Any,
    handler_class: Any,
    echoed: Callable[[Any], Any],
    **options: Any,
) -> None:
    """Serves with these classes of the library's, or those derived from them; ``echoed`` reads and writes bytes."""
    kept = {"protocol_version": "HTTP/1.1", "disable_nagle_algorithm": True} if spec.mechanism.tuned else {}
    handler = type("Handler", (handler_class,), kept)
    threaded: Any = type(
        "Threaded", (ThreadingMixIn, server_class), {"daemon_threads": True, "request_queue_size": _QUEUE}
    )
    server = threaded((spec.host, 0), requestHandler=handler, logRequests=False, **options)
    count_call = spec.served.count

    def echo(data: Any) -> Any:
        count_call()
        return echoed(data)

    def quote(order: dict[str, Any]) -> dict[str, Any]:
        count_call()
        return vars(fill(Order(**order)))

    def wait(seconds: float) -> dict[str, Any]:
        count_call()
        time.sleep(seconds)
        return vars(named(seconds))

    server.register_function(lambda: True, "connect")
    for function in (echo, quote, wait):
        server.register_function(function)
    stop.on(server.shutdown)
    ready(f"http://{spec.host}:{server.server_address[1]}")
    server.serve_forever()


def session(proxy: Any, echo: Callable[[bytes], bytes]) -> SimpleSession:
    """The session of a proxy, which connects with its first call."""

    def quote(order: Order) -> Fill:
        return Fill(**proxy.quote(vars(order)))

    def wait(seconds: float) -> Named:
        return Named(**proxy.wait(seconds))

    return SimpleSession({"echo": echo, "quote": quote, "wait": wait}, proxy("close"), proxy.connect)
