"""What the adapters on top of grpcio share: messages made at run time, method handlers, and a client's stubs."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from nearcall_lab.contract import Spec

SERVICE = "nearcall_lab.Lab"
NEEDS = ("grpc", "google.protobuf")
PROTOCOL = "gRPC"
"""Of the mechanisms that have this service with these messages: see `lab.proto` in `nearcall_lab.programs`."""
TYPED = "Protobuf message, built at run time"


@dataclass(frozen=True)
class Kinds:
    """Message classes."""

    order: Any
    fill: Any
    wait: Any
    named: Any
    number: Any


def classes() -> Kinds:
    """The message classes, from a description made here instead of generated code."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    text, whole, real, truth = kinds.TYPE_STRING, kinds.TYPE_INT64, kinds.TYPE_DOUBLE, kinds.TYPE_BOOL
    shapes = {
        "Order": [("symbol", text), ("quantity", whole), ("price", real), ("urgent", truth)],
        "Fill": [("symbol", text), ("cost", real), ("lots", whole), ("accepted", truth)],
        "Wait": [("seconds", real)],
        "Named": [("id", kinds.TYPE_INT32), ("name", text)],
        "Number": [("value", whole)],
    }
    file = descriptor_pb2.FileDescriptorProto(name="nearcall_lab.proto", package="nearcall_lab", syntax="proto3")
    for name, fields in shapes.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, start=1):
            message.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return Kinds(
        *(message_factory.GetMessageClass(pool.FindMessageTypeByName(f"nearcall_lab.{name}")) for name in shapes)
    )


OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)
"""Channel option. Without it the channels of a process share one connection, and so would sessions."""


def limits(spec: Spec) -> list[tuple[str, Any]]:
    """The message limit is 4 MB by default and must be raised on both sides."""
    size = max(spec.max_message, 4 << 20)
    return [("grpc.max_send_message_length", size), ("grpc.max_receive_message_length", size)]


def handlers(grpc: Any, kinds: Kinds, echo: Any, quote: Any, wait: Any, count: Any, send: Any) -> dict[str, Any]:
    """Method handlers for functions or coroutines alike."""
    unary = grpc.unary_unary_rpc_method_handler
    return {
        "Echo": unary(echo),
        "Quote": unary(
            quote, request_deserializer=kinds.order.FromString, response_serializer=kinds.fill.SerializeToString
        ),
        "Wait": unary(
            wait, request_deserializer=kinds.wait.FromString, response_serializer=kinds.named.SerializeToString
        ),
        "Count": grpc.unary_stream_rpc_method_handler(
            count, request_deserializer=kinds.number.FromString, response_serializer=kinds.number.SerializeToString
        ),
        "Send": grpc.stream_unary_rpc_method_handler(send),
    }


@dataclass(frozen=True)
class Methods:
    """A channel's callables."""

    echo: Any
    quote: Any
    wait: Any
    count: Any
    send: Any


def methods(channel: Any, kinds: Kinds) -> Methods:
    """For a channel of either API."""
    path = f"/{SERVICE}"
    return Methods(
        channel.unary_unary(f"{path}/Echo"),
        channel.unary_unary(f"{path}/Quote", kinds.order.SerializeToString, kinds.fill.FromString),
        channel.unary_unary(f"{path}/Wait", kinds.wait.SerializeToString, kinds.named.FromString),
        channel.unary_stream(f"{path}/Count", kinds.number.SerializeToString, kinds.number.FromString),
        channel.stream_unary(f"{path}/Send"),
    )


class Outbox:
    """One-way messages of the synchronous API: a client stream that is fed from a queue, as its examples do it."""

    def __init__(self, method: Any) -> None:
        self._method = method
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._call: Any = None

    def put(self, data: bytes) -> None:
        """Sends one message; the first one begins the stream."""
        if self._call is None:
            self._call = self._method.future(self._messages())
        self._queue.put(data)

    def _messages(self) -> Iterator[bytes]:
        while (data := self._queue.get()) is not None:
            yield data

    def flush(self) -> None:
        """Ends the stream and waits for the server's word that it has taken all."""
        if self._call is not None:
            self._queue.put(None)
            self._call.result(timeout=60)
            self._call = None
