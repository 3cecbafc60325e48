"""Typed RPC for Python on a Rust core: one service over shared memory, Unix sockets, TCP and TLS, gRPC and HTTP.

A class with type hints is a service. One process serves it, and others call it as if it were their own::

    import nearcall

    @nearcall.service
    class Calculator:
        def add(self, a: int, b: int) -> int:
            return a + b

    nearcall.serve(Calculator(), "shm://calc")                 # in one process

    with nearcall.connect("shm://calc", Calculator) as calc:   # in another
        print(calc.add(1, 2))

The guide, in ``docs/guide``, explains all of it with examples. This is what there is, by what it is for:

- **Declare a service:** `service`; methods are marked with `oneway`, `idempotent` and `no_side_effects`; `depends`
  fills a parameter in at the server, `field` pins a number for gRPC.
- **Serve it:** `serve` until Ctrl-C, with `workers=` in several processes; `Server` beside other work.
- **Call it:** `connect`, or a `Channel` for several services; `nearcall.aio` for event loops; `spawn` for a service in
  a child process. `start` sends a call without waiting for its reply.
- **Around a call:** `timeout`, `metadata`, `compression`, `context`, `Session`, `Retry`, `TLS`, `nearcall.auth`,
  interceptors.
- **What fails:** every error is an `RpcError`, such as `NotFound` or `Unavailable`; `StatusCode` has their codes.
- **More than values:** `Topic` for what many listen to; `empty` and `buffer` for memory that is not copied; `release`
  for objects that were passed.
- **Other systems:** `nearcall.grpcio` for what was written for grpcio, `nearcall.health` for probes, `nearcall.observe`
  for Prometheus, OpenTelemetry and logs, `nearcall.introspection` for what `nearcall top` shows.
- **Plugins and tests:** `nearcall.plugin`, `nearcall.sandbox`, `nearcall.testing`.
"""

from typing import TYPE_CHECKING, Any

from . import _core
from .call.buffers import buffer, empty
from .call.compression import compression, current_compression
from .call.context import Context, context
from .call.deadline import current_deadline, timeout
from .call.interceptors import CallInfo, ClientCall, ClientInterceptor, Proceed, ServerCall, ServerInterceptor
from .call.metadata import Metadata, current_metadata, metadata
from .call.session import ServerConnection, Session
from .client.channel import Channel, connect
from .client.client import Client
from .client.options import ChannelOptions
from .client.retry import Retry
from .client.start import StartedCall, start
from .codec.statuses import describe_error, make_error
from .errors import (
    Aborted,
    AlreadyExists,
    Cancelled,
    DataLoss,
    DeadlineExceeded,
    FailedPrecondition,
    Internal,
    InvalidArgument,
    NotFound,
    OutOfRange,
    PermissionDenied,
    ResourceExhausted,
    RpcError,
    Unauthenticated,
    Unavailable,
    Unimplemented,
    Unknown,
)
from .options.tls import TLS
from .references.reference import release
from .service.depends import depends
from .service.service import idempotent, no_side_effects, oneway, service
from .status import StatusCode
from .types.numbers import field

__version__ = _core.VERSION

_core.install(make_error, describe_error)
_core.set_call_variables(current_deadline, current_metadata, current_compression)

if TYPE_CHECKING:
    from . import aio, auth, grpcio, health, introspection, observe, plugin
    from .client.child import Child, spawn
    from .server.serve import serve
    from .server.server import Server
    from .server.topic import Subscription, Topic
    from .server.workers import WorkerFailed, Workers
else:  # hidden from type checkers, to which it would mean that the module has every attribute there is
    # asyncio takes longer to import than all the rest, clients need no servers, and many programs none of these.
    _modules = {"aio", "auth", "grpcio", "health", "introspection", "observe", "plugin"}
    _homes = {
        "Child": "client.child",
        "Server": "server.server",
        "Subscription": "server.topic",
        "Topic": "server.topic",
        "WorkerFailed": "server.workers",
        "Workers": "server.workers",
        "serve": "server.serve",
        "spawn": "client.child",
    }

    def __getattr__(name: str) -> Any:
        if name in _modules or name in _homes:
            from importlib import import_module

            if name in _modules:
                return import_module(f".{name}", __name__)
            value = globals()[name] = getattr(import_module(f".{_homes[name]}", __name__), name)
            return value
        raise AttributeError(f"module 'nearcall' has no attribute '{name}'")

    def __dir__() -> list[str]:
        return sorted({*globals(), *__all__})


__all__ = [
    "TLS",
    "Aborted",
    "AlreadyExists",
    "CallInfo",
    "Cancelled",
    "Channel",
    "ChannelOptions",
    "Child",
    "Client",
    "ClientCall",
    "ClientInterceptor",
    "Context",
    "DataLoss",
    "DeadlineExceeded",
    "FailedPrecondition",
    "Internal",
    "InvalidArgument",
    "Metadata",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "Proceed",
    "ResourceExhausted",
    "Retry",
    "RpcError",
    "Server",
    "ServerCall",
    "ServerConnection",
    "ServerInterceptor",
    "Session",
    "StartedCall",
    "StatusCode",
    "Subscription",
    "Topic",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "WorkerFailed",
    "Workers",
    "__version__",
    "aio",
    "auth",
    "buffer",
    "compression",
    "connect",
    "context",
    "depends",
    "empty",
    "field",
    "grpcio",
    "health",
    "idempotent",
    "introspection",
    "metadata",
    "no_side_effects",
    "observe",
    "oneway",
    "plugin",
    "release",
    "serve",
    "service",
    "spawn",
    "start",
    "timeout",
]
