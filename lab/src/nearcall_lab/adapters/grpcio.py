"""grpcio, the synchronous API, over TCP and over a Unix socket."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from nearcall_lab.contract import Mechanism, Ready, SimpleSession, Spec, Stop
from nearcall_lab.workloads import Order, fill

_NEEDS = ("grpc", "google.protobuf")
_SETTINGS = "sync API, 10 threads, insecure; echo as raw bytes, no Protobuf"
_TYPED = "Protobuf message, built at run time"
MECHANISMS = (
    Mechanism("grpcio-tcp", "grpcio, TCP", "rpc", "tcp", _NEEDS, "grpcio", _SETTINGS, _TYPED),
    Mechanism("grpcio-uds", "grpcio, UDS", "rpc", "unix", _NEEDS, "grpcio", _SETTINGS, _TYPED),
)

_ECHO = "/nearcall_lab.Lab/Echo"
_QUOTE = "/nearcall_lab.Lab/Quote"


def _messages() -> tuple[Any, Any]:
    """The classes for ``Order`` and ``Fill``, from a description made here instead of generated code."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    kinds = descriptor_pb2.FieldDescriptorProto
    shapes = {
        "Order": [
            ("symbol", kinds.TYPE_STRING),
            ("quantity", kinds.TYPE_INT64),
            ("price", kinds.TYPE_DOUBLE),
            ("urgent", kinds.TYPE_BOOL),
        ],
        "Fill": [
            ("symbol", kinds.TYPE_STRING),
            ("cost", kinds.TYPE_DOUBLE),
            ("lots", kinds.TYPE_INT64),
            ("accepted", kinds.TYPE_BOOL),
        ],
    }
    file = descriptor_pb2.FileDescriptorProto(name="nearcall_lab.proto", package="nearcall_lab", syntax="proto3")
    for name, fields in shapes.items():
        message = file.message_type.add(name=name)
        for number, (field, kind) in enumerate(fields, start=1):
            message.field.add(name=field, number=number, type=kind, label=kinds.LABEL_OPTIONAL)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)

    def build(name: str) -> Any:
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"nearcall_lab.{name}"))

    return build("Order"), build("Fill")


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import grpc

    order_class, fill_class = _messages()
    served = spec.served

    def echo(data: bytes, context: Any) -> bytes:
        served.calls += 1
        return data

    def quote(request: Any, context: Any) -> Any:
        served.calls += 1
        result = fill(Order(request.symbol, request.quantity, request.price, request.urgent))
        return fill_class(symbol=result.symbol, cost=result.cost, lots=result.lots, accepted=result.accepted)

    methods = {
        "Echo": grpc.unary_unary_rpc_method_handler(echo),
        "Quote": grpc.unary_unary_rpc_method_handler(
            quote, request_deserializer=order_class.FromString, response_serializer=fill_class.SerializeToString
        ),
    }
    server = grpc.server(ThreadPoolExecutor(max_workers=10))
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("nearcall_lab.Lab", methods),))
    if spec.mechanism.variant == "unix":
        address = f"unix:{os.path.join(spec.directory, 'grpc.sock')}"
        server.add_insecure_port(address)
    else:
        address = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    ready(address)
    stop.wait()
    server.stop(grace=0).wait(1)


def connect(spec: Spec) -> SimpleSession:
    import grpc

    order_class, fill_class = _messages()
    channel = grpc.insecure_channel(spec.address)
    grpc.channel_ready_future(channel).result(timeout=10)
    echo = channel.unary_unary(_ECHO)
    quote_rpc = channel.unary_unary(
        _QUOTE, request_serializer=order_class.SerializeToString, response_deserializer=fill_class.FromString
    )

    def quote(order: Order) -> Any:
        return quote_rpc(
            order_class(symbol=order.symbol, quantity=order.quantity, price=order.price, urgent=order.urgent)
        )

    return SimpleSession({"echo": echo, "quote": quote}, channel.close)
