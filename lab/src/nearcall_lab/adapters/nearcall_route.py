"""nearcall's router through its public API: messages that go by their type, to a node that a table names."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from nearcall_lab.adapters.broker import absent as no_server
from nearcall_lab.adapters.broker import nats_server
from nearcall_lab.adapters.ports import free_port
from nearcall_lab.contract import LOOPBACK, Mechanism, Ready, SimpleSession, Spec, Stop, Transport
from nearcall_lab.workloads import Fill, Order, fill

_TRANSPORTS: dict[str, Transport] = {"shm": "shared memory", "unix": "UDS", "tcp": "TCP", "nats": "TCP", "rmr": "TCP"}
_BETWEEN = {"nats": "; a nats-server on the receiver's CPUs between the two", "rmr": "; RMR's wire, SI95"}
_ECHO, _QUOTE, _FILL, _SEND = 1_000, 1_001, 1_002, 1_003
"""Types of messages."""
_HEALTH = 100
"""Every node answers it."""
_SUBJECT = "/receiver"
_PATIENCE_S = 30.0
_LIMIT_S = 5.0
"""Of a call: a receiver that has died does not end it."""

MECHANISMS = tuple(
    Mechanism(
        f"nearcall-route-{scheme}",
        f"nearcall.route {scheme}",
        "nearcall",
        scheme,
        ("nearcall",),
        "nearcall",
        "one node on each side and a table with an entry for each type; a sender waits while the queue is full; "
        f"a call waits {_LIMIT_S:g} s at most{_BETWEEN.get(scheme, '')}",
        "dataclass by nearcall's msgpack, bound to a message type",
        transport=transport,
        operations=("echo", "quote", "send"),
        concurrent_calls=True,
    )
    for scheme, transport in _TRANSPORTS.items()
)


def absent(mechanism: Mechanism) -> str:
    """Why it cannot run here."""
    return no_server() if mechanism.variant == "nats" else ""


@contextlib.contextmanager
def _place(spec: Spec, stop: Stop) -> Iterator[str]:
    """Where the receiver listens, as long as there is such a place."""
    if spec.mechanism.variant == "nats":
        with nats_server(spec, stop) as broker:
            yield f"{broker}{_SUBJECT}"
    else:
        yield _url(spec, "receiver")


def _target(spec: Spec) -> str:
    """The receiver's URL."""
    return f"{spec.address}{_SUBJECT}" if spec.mechanism.variant == "nats" else spec.address


def _url(spec: Spec, name: str) -> str:
    scheme = spec.mechanism.variant
    if scheme == "nats":
        return f"{spec.address}/{name}"
    if scheme == "unix":
        return f"unix://{os.path.join(spec.directory, name)}.sock"
    if scheme in ("tcp", "rmr"):
        return f"{scheme}://{spec.host}:{free_port(spec.host)}"
    return f"shm://{spec.token}-{name}"


def _options(spec: Spec) -> dict[str, Any]:
    plain = {"allow_plaintext": True} if spec.host != LOOPBACK and spec.mechanism.transport == "TCP" else {}
    return {"max_message_size": max(spec.max_message, 64 << 20), **plain}


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    with _place(spec, stop) as url:
        node = _receiver(spec, url)
        with node:
            ready(node.urls[0].removesuffix(_SUBJECT))
            stop.wait()


def _receiver(spec: Spec, url: str) -> Any:
    from nearcall import route

    receive, count_call = spec.receive, spec.served.count
    node = route.Node(url, **_options(spec))
    route.message(_QUOTE)(Order)
    route.message(_FILL)(Fill)

    @node.on(_SEND)  # type: ignore[untyped-decorator]
    def send(message: Any) -> None:
        receive(message.payload)

    @node.on(_ECHO)  # type: ignore[untyped-decorator]
    def echo(message: Any) -> None:
        count_call()
        message.reply(message.payload)

    @node.on(Order)  # type: ignore[untyped-decorator]
    def quote(message: Any) -> None:
        count_call()
        message.reply(fill(message.value), type=_FILL)

    return node


def connect(spec: Spec) -> SimpleSession:
    from nearcall import route

    node = route.Node(_url(spec, f"sender-{os.urandom(4).hex()}"), **_options(spec))
    route.message(_QUOTE)(Order)
    route.message(_FILL)(Fill)
    node.on(Fill)(lambda message: None)  # a node reads as objects what it has a handler for; replies go to the caller
    receiver = _target(spec)
    entries = [f"rte | {each} | {receiver}" for each in (_ECHO, _QUOTE, _SEND)]
    send, call = node.send, node.call

    def open_() -> None:
        node.start()
        node.install("\n".join(("newrt | start | lab", *entries, f"newrt | end | {len(entries)}", "")))
        node.ready(_PATIENCE_S)

    def flush() -> None:
        """A message to the same node is answered after those before it."""
        call(_HEALTH, timeout=_PATIENCE_S, to=receiver)

    return SimpleSession(
        {
            "echo": lambda data: call(_ECHO, data, timeout=_LIMIT_S).payload,
            "quote": lambda order: call(order, timeout=_LIMIT_S).value,
            "send": lambda data: send(_SEND, data),
        },
        node.close,
        open_,
        on_flush=flush,
        count_dropped=lambda: sum(each.dropped for each in node.status().endpoints),
    )
