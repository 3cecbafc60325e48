"""pynng Req0/Rep0 over ipc, one pair of sockets per method."""

from __future__ import annotations

import os
import threading
from typing import Any

import msgspec

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

MECHANISMS = (
    Mechanism(
        "pynng",
        "pynng Req0/Rep0",
        "messaging",
        requires=("pynng",),
        distribution="pynng",
        settings="ipc, one socket pair per method; one-way by Push0/Pull0",
        typed="msgspec msgpack",
        transport="UDS",
        operations=("echo", "quote", "send"),
        empty_messages=False,  # its recv raises RuntimeError
    ),
)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import pynng

    decode = msgspec.msgpack.Decoder(Order).decode
    encode = msgspec.msgpack.Encoder().encode
    served = spec.served
    base = f"ipc://{os.path.join(spec.directory, 'nng')}"

    def loop(socket: Any, typed: bool) -> None:
        try:
            while True:
                data = socket.recv()
                served.count()
                socket.send(encode(fill(decode(data))) if typed else data)
        except pynng.Closed:
            return

    def pull(socket: Any) -> None:
        try:
            while True:
                spec.receive(socket.recv())
        except pynng.Closed:
            return

    inbox = pynng.Pull0(listen=f"{base}-send")
    threading.Thread(target=pull, args=(inbox,), daemon=True).start()
    stop.on(inbox.close)
    echo, quote = pynng.Rep0(listen=f"{base}-echo"), pynng.Rep0(listen=f"{base}-quote")
    threading.Thread(target=loop, args=(quote, True), daemon=True).start()
    stop.on(echo.close)
    stop.on(quote.close)
    ready(base)
    loop(echo, False)


def connect(spec: Spec) -> SimpleSession:
    import pynng

    decode = msgspec.msgpack.Decoder(Fill).decode
    encode = msgspec.msgpack.Encoder().encode
    echo_socket, quote_socket, outbox = pynng.Req0(), pynng.Req0(), pynng.Push0()

    def open_() -> None:
        for socket, method in ((echo_socket, "echo"), (quote_socket, "quote"), (outbox, "send")):
            socket.dial(f"{spec.address}-{method}", block=True)

    def echo(data: bytes) -> bytes:
        echo_socket.send(data)
        reply: bytes = echo_socket.recv()
        return reply

    def quote(order: Order) -> Fill:
        quote_socket.send(encode(order))
        return decode(quote_socket.recv())

    def close() -> None:
        echo_socket.close()
        quote_socket.close()
        outbox.close()

    return SimpleSession({"echo": echo, "quote": quote, "send": outbox.send}, close, open_)
