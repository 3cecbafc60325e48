"""grpc-framework with each of its codecs, on uvloop, as its study ran it. It needs an environment of its own."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from nearcall_lab.adapters import grpc_messages as messages
from nearcall_lab.adapters.ports import accepting, free_port
from nearcall_lab.contract import Mechanism, Operation, Ready, Spec, Stop
from nearcall_lab.workloads import named

_CODECS = {"protobuf": "Protobuf", "json": "JSON", "orjson": "ORJSON", "dataclass": "dataclass"}
MECHANISMS = tuple(
    Mechanism(
        f"grpc-framework-{codec}",
        f"grpc-framework, {title}",
        "rpc",
        codec,
        ("grpc", "grpc_framework", "uvloop", *(("orjson",) if codec == "orjson" else ())),
        "grpc-framework",
        f"TCP, {title} codec, one worker, uvloop, its log off; grpc.aio client on uvloop",
        f"{title} by the framework",
        transport="TCP",
        operations=("wait",),
        style="asyncio",
        concurrent_calls=True,
        loop="uvloop",
        environment="grpc-framework",
    )
    for codec, title in _CODECS.items()
)
_METHOD = "/lab.Lab/wait"


@dataclass
class Pause:
    """The argument of ``wait``, as the framework's dataclass codec wants it."""

    seconds: float


@dataclass
class Answer:
    """The reply of ``wait``."""

    id: int
    name: str


def codec_of(name: str) -> dict[str, Any]:
    """The framework's configuration for ``protobuf``, ``json``, ``orjson`` or ``dataclass``."""
    from grpc_framework.core.serialization import codec_impls as codecs
    from grpc_framework.core.serialization import converter_impls as converters

    class Plain(converters.JsonConverter):  # type: ignore[misc]
        """Values as the codec made them. The framework's own JSON converter would decode and encode a second time."""

        def to_model(self, transport_obj: Any, model_type: Any) -> Any:
            return transport_obj

        def from_model(self, model: Any) -> Any:
            return model

    class Parsed(converters.ProtobufConverter):  # type: ignore[misc]
        """The codec has parsed the message already."""

        def to_model(self, transport_obj: Any, model_type: Any) -> Any:
            return transport_obj

    return {
        "protobuf": {"codec": codecs.ProtobufCodec, "converter": Parsed},
        "json": {"codec": codecs.JSONCodec, "converter": Plain},
        "orjson": {"codec": codecs.ORJSONCodec, "converter": Plain},
        "dataclass": {"codec": codecs.DataclassesCodec, "converter": converters.DataclassesConverter},
    }[name]


def serve(spec: Spec, ready: Ready, stop: Stop) -> None:
    import uvloop
    from grpc_framework import GRPCFramework, GRPCFrameworkConfig, Service

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    logging.disable(logging.INFO)
    kinds = messages.classes()
    count_call = spec.served.count
    codec = spec.mechanism.variant
    port = free_port(spec.host)
    config = GRPCFrameworkConfig(package="lab", host=spec.host, port=port, workers=1, **codec_of(codec))
    app = GRPCFramework(config=config)
    service = Service("Lab")

    async def work(seconds: float) -> Any:
        count_call()
        await asyncio.sleep(seconds)
        return named(seconds)

    # The framework reads the annotations, so that each codec needs a handler of its own.
    async def wait_protobuf(pause):  # type: ignore[no-untyped-def]
        reply = await work(pause.seconds)
        return kinds.named(id=reply.id, name=reply.name)

    async def wait_json(pause):  # type: ignore[no-untyped-def]
        return vars(await work(pause["seconds"]))

    async def wait_dataclass(pause):  # type: ignore[no-untyped-def]
        return Answer(**vars(await work(pause.seconds)))

    handlers = {
        "protobuf": (wait_protobuf, kinds.wait, kinds.named),
        "json": (wait_json, dict, dict),
        "orjson": (wait_json, dict, dict),
        "dataclass": (wait_dataclass, Pause, Answer),
    }
    handler, argument, reply = handlers[codec]
    handler.__annotations__ = {"pause": argument, "return": reply}
    handler.__name__ = "wait"
    service.unary_unary(handler)
    app.add_service(service)

    @app.on_startup  # type: ignore[untyped-decorator]
    async def announce(_: Any) -> None:
        announcing.append(asyncio.create_task(_when_listening(spec.host, port, ready)))

    announcing: list[asyncio.Task[None]] = []
    stop.on(lambda: os.kill(os.getpid(), signal.SIGTERM))
    app.run()


async def _when_listening(host: str, port: int, ready: Ready) -> None:
    await accepting(host, port)
    ready(f"{host}:{port}")


class _Session:
    """A channel of grpc.aio; the framework's own client is a pool of them."""

    def __init__(self, spec: Spec) -> None:
        import grpc

        kinds = messages.classes()
        if spec.mechanism.variant == "protobuf":
            self._encode: Callable[[float], bytes] = lambda seconds: kinds.wait(seconds=seconds).SerializeToString()
            decode: Callable[[bytes], Any] = kinds.named.FromString
        else:
            self._encode = lambda seconds: json.dumps({"seconds": seconds}).encode()

            def decode(data: bytes) -> Any:
                return Answer(**json.loads(data))

        self._channel = grpc.aio.insecure_channel(spec.address)
        self._wait = self._channel.unary_unary(_METHOD, response_deserializer=decode)

    async def open(self) -> None:
        await asyncio.wait_for(self._channel.channel_ready(), 10)

    def call(self, operation: Operation) -> Callable[[Any], Awaitable[Any]]:
        encode, remote = self._encode, self._wait

        async def wait(seconds: float) -> Any:
            return await remote(encode(seconds))

        return wait

    def stream(self, items: int) -> AsyncIterator[int]:
        raise NotImplementedError("not part of this row")

    async def flush(self) -> None:
        return None

    def dropped(self) -> int:
        return 0

    async def close(self) -> None:
        await self._channel.close()


def connect(spec: Spec) -> _Session:
    return _Session(spec)
