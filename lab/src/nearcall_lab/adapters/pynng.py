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
        settings="ipc, one socket pair per method",
        typed="msgspec msgpack",
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
                served.calls += 1
                socket.send(encode(fill(decode(data))) if typed else data)
        except pynng.Closed:
            return

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
    echo_socket, quote_socket = pynng.Req0(dial=f"{spec.address}-echo"), pynng.Req0(dial=f"{spec.address}-quote")

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

    return SimpleSession({"echo": echo, "quote": quote}, close)
