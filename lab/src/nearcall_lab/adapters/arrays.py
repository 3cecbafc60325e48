"""NumPy arrays and pandas data frames as payloads: each mechanism in the way that its users would take.

The bytes that the lab gives are looked at as an array, or as the block of a frame, which copies nothing, and what comes
back is looked at as bytes. Whatever turns an array into a message, and back, is a part of the call, on both sides. Two
rows do only that.
"""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Client, Connection, Listener
from typing import Any, Literal
from xmlrpc.client import Binary, ServerProxy
from xmlrpc.server import SimpleXMLRPCRequestHandler, SimpleXMLRPCServer

import numpy as np

from nearcall_lab.adapters import http_rpc
from nearcall_lab.adapters.ports import free_port
from nearcall_lab.contract import Family, Mechanism, Ready, SimpleSession, Spec, Stop, Transport

Payload = Literal["array", "frame"]
_WORDS = {"array": "NumPy array", "frame": "data frame"}
_COLUMNS = 5
"""Of a frame: doubles, each column in one piece, where the size is a multiple of 40 bytes; else there is one column."""
_PICKLE = "pickle, protocol 5, on both sides"
_SERVICE = "Arrays"


def _row(
    payload: Payload, way: str, label: str, family: Family, transport: Transport, settings: str, **more: Any
) -> Mechanism:
    requires: tuple[str, ...] = (*more.pop("requires", ()), *(("pandas",) if payload == "frame" else ()))
    return Mechanism(
        *(f"{payload}-{way}", f"{_WORDS[payload]}: {label}", family, f"{payload}:{way}", requires),
        settings=settings,
        transport=transport,
        operations=("echo",),
        empty_messages=False,
        **more,
    )


def _rows(payload: Payload) -> tuple[Mechanism, ...]:
    columns = "a dict of columns, each an array without an encoding; a frame is made of them again"
    plain = "NDArray as the annotation; no encoding" if payload == "array" else columns
    buffers = (
        "pyzmq's recipe: dtype and shape as JSON, then the buffer without a copy" if payload == "array" else _PICKLE
    )
    of_nearcall: dict[str, Any] = {"requires": ("nearcall",), "distribution": "nearcall"}
    return (
        _row(payload, "nearcall-shm", "nearcall shm", "nearcall", "shared memory", plain, **of_nearcall),
        _row(payload, "nearcall-tcp", "nearcall tcp", "nearcall", "TCP", plain, **of_nearcall),
        _row(payload, "multiprocessing", "multiprocessing", "messaging", "UDS", "send and recv, which pickle"),
        _row(
            payload, "grpcio", "grpcio", "rpc", "TCP", f"{_PICKLE}, as the serializers of the method; 10 threads",
            requires=("grpc",), distribution="grpcio",
        ),
        _row(payload, "pyzmq", "pyzmq", "messaging", "TCP", buffers, requires=("zmq",), distribution="pyzmq"),
        _row(
            payload, "xmlrpc", "XML-RPC", "http", "TCP", f"{_PICKLE}, in a Binary; HTTP/1.1: connections are kept",
            tuned=True, why="As the row of XML-RPC with connections that stay open: the class makes one for each call.",
        ),
        _row(
            payload, "pickle", "pickle and nothing else", "floor", "none",
            "there and back, encoded and decoded twice, without a way in between", same_process=True, in_caller=True,
        ),
    )  # fmt: skip


MECHANISMS = (*_rows("array"), *_rows("frame"))


_LIBRARIES = {
    "nearcall-shm": "nearcall",
    "nearcall-tcp": "nearcall",
    "multiprocessing": "mp_connection",
    "pickle": "noop",
}


def library_of(mechanism: Mechanism) -> str:
    """The adapter whose library this is: that one's facts are its own."""
    way = mechanism.variant.partition(":")[2]
    return _LIBRARIES.get(way, way)


def _payload(spec: Spec) -> tuple[Payload, str]:
    payload, _, way = spec.mechanism.variant.partition(":")
    return ("array" if payload == "array" else "frame"), way


def _looked_at(data: bytes) -> Any:
    """The bytes as an array, of doubles where their number allows it."""
    return np.frombuffer(data, np.float64 if len(data) % 8 == 0 else np.uint8)


def _make(payload: Payload) -> Callable[[bytes], Any]:
    """Bytes to what is sent. Frames are made once for each of the lab's payloads: a user has one already."""
    if payload == "array":
        return _looked_at
    import pandas

    made: dict[int, tuple[bytes, Any]] = {}

    def frame(data: bytes) -> Any:
        if id(data) not in made:
            array = _looked_at(data)
            columns = _COLUMNS if len(data) % (8 * _COLUMNS) == 0 else 1
            names = [f"c{number}" for number in range(columns)]
            made[id(data)] = data, pandas.DataFrame(array.reshape(columns, -1).T, columns=names)
        return made[id(data)][1]

    return frame


def _bytes_of(reply: Any) -> memoryview:
    """What came back as bytes, without a copy where its columns, or the array, lie in one piece."""
    array = reply if isinstance(reply, np.ndarray) else reply.to_numpy().T
    view: memoryview = np.ascontiguousarray(array).data
    return view.cast("B")


_dumps = functools.partial(pickle.dumps, protocol=5)


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    payload, way = _payload(spec)
    servers = {
        "multiprocessing": _serve_pipes,
        "grpcio": _serve_grpc,
        "pyzmq": _serve_zmq,
        "xmlrpc": _serve_xml,
    }
    if way in servers:
        servers[way](spec, ready, stop, payload)
    else:
        _serve_nearcall(spec, ready, stop, payload)


def connect(spec: Spec) -> SimpleSession:
    payload, way = _payload(spec)
    makers: dict[str, Callable[[Spec, Payload], tuple[Callable[[Any], Any], Callable[[], object]]]] = {
        "multiprocessing": _pipe,
        "grpcio": _grpc,
        "pyzmq": _zmq,
        "xmlrpc": _xml,
        "pickle": _alone,
    }
    make = _make(payload)
    close: Callable[[], object] = lambda: None  # noqa: E731

    def open_() -> None:
        nonlocal close
        call, close = makers.get(way, _nearcall)(spec, payload)
        session.provide(echo=lambda data: _bytes_of(call(make(data))))

    session = SimpleSession({}, lambda: close(), open_)
    return session


def _alone(spec: Spec, payload: Payload) -> tuple[Callable[[Any], Any], Callable[[], object]]:
    loads = pickle.loads

    def call(value: Any) -> Any:
        spec.served.count()
        return loads(_dumps(loads(_dumps(value))))

    return call, lambda: None


def _nearcall_service(spec: Spec, payload: Payload) -> Any:
    import nearcall

    count_call = spec.served.count
    if payload == "array":

        class Arrays:
            def echo(self, data: np.ndarray) -> np.ndarray:
                count_call()
                return data

        return nearcall.service(Arrays, name=_SERVICE)

    class Frames:
        def echo(self, data: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
            count_call()
            return _columns(_frame(data))

    return nearcall.service(Frames, name=_SERVICE)


def _columns(frame: Any) -> dict[str, Any]:
    return {name: frame[name].to_numpy() for name in frame.columns}


def _frame(columns: dict[str, Any]) -> Any:
    import pandas

    return pandas.DataFrame(columns, copy=False)


def _options(spec: Spec) -> dict[str, Any]:
    return {"max_message_size": max(spec.max_message, 64 << 20)}


def _serve_nearcall(spec: Spec, ready: Ready, stop: Stop, payload: Payload) -> None:
    import nearcall

    shared = spec.mechanism.transport == "shared memory"
    url = f"shm://{spec.token}" if shared else f"tcp://{spec.host}:{free_port(spec.host)}"
    with nearcall.Server(_nearcall_service(spec, payload)(), url, **_options(spec)):
        ready(url)
        stop.wait()


def _nearcall(spec: Spec, payload: Payload) -> tuple[Callable[[Any], Any], Callable[[], object]]:
    import nearcall

    stack = contextlib.ExitStack()
    echo = stack.enter_context(nearcall.connect(spec.address, _nearcall_service(spec, payload), **_options(spec))).echo
    call = echo if payload == "array" else lambda frame: _frame(echo(_columns(frame)))
    return call, stack.close


def _serve_pipes(spec: Spec, ready: Ready, stop: Stop, payload: Payload) -> None:
    address = os.path.join(spec.directory, "mp.sock")

    def handle(connection: Connection[Any, Any]) -> None:
        with connection:
            try:
                while True:
                    value = connection.recv()
                    spec.served.count()
                    connection.send(value)
            except (EOFError, ConnectionResetError):
                return

    with Listener(address, "AF_UNIX") as listener:
        stop.on(lambda: Client(address, "AF_UNIX").close())
        ready(address)
        while True:
            connection = listener.accept()
            if stop.is_set():
                return
            threading.Thread(target=handle, args=(connection,), daemon=True).start()


def _pipe(spec: Spec, payload: Payload) -> tuple[Callable[[Any], Any], Callable[[], object]]:
    connection: Connection[Any, Any] = Client(spec.address, "AF_UNIX")

    def call(value: Any) -> Any:
        connection.send(value)
        return connection.recv()

    return call, connection.close


def _grpc_limits(spec: Spec) -> list[tuple[str, Any]]:
    size = max(spec.max_message, 4 << 20)
    return [("grpc.max_send_message_length", size), ("grpc.max_receive_message_length", size)]


def _serve_grpc(spec: Spec, ready: Ready, stop: Stop, payload: Payload) -> None:
    import grpc

    def echo(value: Any, context: Any) -> Any:
        spec.served.count()
        return value

    method = grpc.unary_unary_rpc_method_handler(echo, request_deserializer=pickle.loads, response_serializer=_dumps)
    server = grpc.server(ThreadPoolExecutor(max_workers=10), options=_grpc_limits(spec))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, {"Echo": method}),))
    address = f"{spec.host}:{server.add_insecure_port(f'{spec.host}:0')}"
    server.start()
    ready(address)
    stop.wait()
    server.stop(grace=0).wait(1)


def _grpc(spec: Spec, payload: Payload) -> tuple[Callable[[Any], Any], Callable[[], object]]:
    import grpc

    own = ("grpc.use_local_subchannel_pool", 1)
    channel = grpc.insecure_channel(spec.address, options=[*_grpc_limits(spec), own])
    echo = channel.unary_unary(f"/{_SERVICE}/Echo", request_serializer=_dumps, response_deserializer=pickle.loads)
    grpc.channel_ready_future(channel).result(timeout=10)
    return echo, channel.close


def _zmq_parts(payload: Payload) -> tuple[Callable[[Any, Any], None], Callable[[Any], Any]]:
    """How a value is sent over a socket, and received."""
    if payload == "frame":
        return (lambda socket, value: socket.send(_dumps(value))), (lambda socket: pickle.loads(socket.recv()))

    def send(socket: Any, array: Any) -> None:
        import zmq

        socket.send_json({"dtype": str(array.dtype), "shape": array.shape}, zmq.SNDMORE)
        socket.send(array, copy=False)

    def receive(socket: Any) -> Any:
        about = socket.recv_json()
        return np.frombuffer(socket.recv(copy=False), about["dtype"]).reshape(about["shape"])

    return send, receive


def _serve_zmq(spec: Spec, ready: Ready, stop: Stop, payload: Payload) -> None:
    import zmq

    socket = zmq.Context().socket(zmq.REP)
    address = f"tcp://{spec.host}:{socket.bind_to_random_port(f'tcp://{spec.host}')}"
    send, receive = _zmq_parts(payload)
    ready(address)  # it ends with its process: a context would wait for its peers
    while True:
        value = receive(socket)
        spec.served.count()
        send(socket, value)


def _zmq(spec: Spec, payload: Payload) -> tuple[Callable[[Any], Any], Callable[[], object]]:
    import zmq

    context = zmq.Context()
    socket = context.socket(zmq.REQ)
    socket.connect(spec.address)
    send, receive = _zmq_parts(payload)

    def call(value: Any) -> Any:
        send(socket, value)
        return receive(socket)

    def close() -> None:
        socket.close(linger=0)
        context.term()

    return call, close


def _serve_xml(spec: Spec, ready: Ready, stop: Stop, payload: Payload) -> None:
    def echoed(data: Any) -> Any:
        return Binary(_dumps(pickle.loads(data.data)))

    http_rpc.serve(spec, ready, stop, SimpleXMLRPCServer, SimpleXMLRPCRequestHandler, echoed)


def _xml(spec: Spec, payload: Payload) -> tuple[Callable[[Any], Any], Callable[[], object]]:
    proxy: Any = ServerProxy(spec.address)
    proxy.connect()

    def call(value: Any) -> Any:
        return pickle.loads(proxy.echo(Binary(_dumps(value))).data)

    return call, proxy("close")
