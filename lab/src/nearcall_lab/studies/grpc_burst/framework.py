"""The study's server in grpc-framework: a handler without parameters that waits. Runs in the framework's environment.

``python -m nearcall_lab.studies.grpc_burst.framework CODEC`` prints its address once it accepts connections, and ends
when its standard input does.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from dataclasses import dataclass
from typing import Any

from nearcall_lab.adapters.grpc_framework import codec_of
from nearcall_lab.adapters.ports import accepting, free_port
from nearcall_lab.contract import LOOPBACK
from nearcall_lab.studies.grpc_burst.replica import DELAY_S, message_class


@dataclass
class UserResponse:
    """The reply, in the form that the dataclass codec requires."""

    id: int
    name: str


def serve(codec: str) -> None:
    """Does not return."""
    import uvloop
    from grpc_framework import GRPCFramework, GRPCFrameworkConfig, Service

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    logging.disable(logging.INFO)
    port = free_port(LOOPBACK)
    config = GRPCFrameworkConfig(package="burst", host=LOOPBACK, port=port, workers=1, **codec_of(codec))
    app = GRPCFramework(config=config)
    service = Service("User")
    replies: dict[str, tuple[type, Any]] = {
        "protobuf": (message_class(), lambda kind: kind(id=1, name="name")),
        "json": (dict, lambda kind: {"id": 1, "name": "name"}),
        "orjson": (dict, lambda kind: {"id": 1, "name": "name"}),
        "dataclass": (UserResponse, lambda kind: UserResponse(1, "name")),
    }
    kind, make = replies[codec]

    async def Get():  # type: ignore[no-untyped-def]
        await asyncio.sleep(DELAY_S)
        return make(kind)

    Get.__annotations__ = {"return": kind}  # the framework reads it
    service.unary_unary(Get)
    app.add_service(service)
    tasks: list[asyncio.Task[None]] = []

    @app.on_startup  # type: ignore[untyped-decorator]
    async def announce(_: Any) -> None:
        tasks.append(asyncio.create_task(_say_when_listening(port)))

    app.run()


async def _say_when_listening(port: int) -> None:
    await accepting(LOOPBACK, port)
    print(f"{LOOPBACK}:{port}", flush=True)


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    threading.Thread(target=_end_with_input, daemon=True).start()
    serve(sys.argv[1])
