"""pyzmq REQ/REP over ipc: a two-part message, method name and payload."""

from __future__ import annotations

import os

import msgspec

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Fill, Order, fill

MECHANISMS = (
    Mechanism(
        "pyzmq",
        "pyzmq REQ/REP",
        "messaging",
        requires=("zmq",),
        distribution="pyzmq",
        settings="ipc, one I/O thread, two-part messages",
        typed="msgspec msgpack",
    ),
)

_QUIT = b"quit"


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import zmq

    decode = msgspec.msgpack.Decoder(Order).decode
    encode = msgspec.msgpack.Encoder().encode
    served = spec.served
    address = f"ipc://{os.path.join(spec.directory, 'zmq.sock')}"
    context = zmq.Context()
    socket = context.socket(zmq.REP)
    socket.bind(address)

    def wake() -> None:
        asker = context.socket(zmq.REQ)
        asker.connect(address)
        asker.send_multipart((_QUIT, b""))
        asker.close(linger=500)

    stop.on(wake)
    ready(address)
    while True:
        method, data = socket.recv_multipart()
        if method == _QUIT:
            os._exit(0)  # nothing in here needs tidying; the context would wait for its peers
        served.calls += 1
        socket.send(encode(fill(decode(data))) if method == b"quote" else data)


def connect(spec: Spec) -> SimpleSession:
    import zmq

    decode = msgspec.msgpack.Decoder(Fill).decode
    encode = msgspec.msgpack.Encoder().encode
    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(spec.address)
    send, receive = socket.send_multipart, socket.recv

    def echo(data: bytes) -> bytes:
        send((b"echo", data))
        reply: bytes = receive()
        return reply

    def quote(order: Order) -> Fill:
        send((b"quote", encode(order)))
        return decode(receive())

    def close() -> None:
        socket.close(linger=0)
        context.term()

    return SimpleSession({"echo": echo, "quote": quote}, close)
