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

The guide, in ``docs/guide``, explains everything with examples. The names of this package, by their purpose:

- **Declare a service:** `service`; methods are marked with `oneway`, `idempotent` and `no_side_effects`; `depends`
  fills a parameter in at the server, `field` pins a number for gRPC; `register_type` and `CarriedType` are for classes
  that travel as another type.
- **Serve it:** `serve` until Ctrl-C, with `workers=` in several processes; `Server` beside other work.
- **Call it:** `connect`, or a `Channel` for several services; `nearcall.aio` for event loops; `spawn` for a service in
  a child process. `start` sends a call without waiting for its reply; `as_completed` waits for the first of several.
  `Stream` is what a method that yields gives its caller.
- **Around a call:** `timeout`, `metadata`, `compression`, `context`, `Session`, `Retry`, `TLS`, `NATS`,
  `nearcall.auth`, interceptors.
- **What fails:** every error is an `RpcError`, such as `NotFound` or `Unavailable`; `StatusCode` has their codes.
- **More than values:** `Topic` for what many listen to; `empty` and `buffer` for memory that is not copied; `release`
  for objects that were passed.
- **Other systems:** `nearcall.grpcio` for what was written for grpcio, `nearcall.health` for probes, `nearcall.observe`
  for Prometheus, OpenTelemetry and logs, `nearcall.introspection` for what `nearcall top` shows; `ProtobufAny` for
  messages of any type, `ValueCodec` for an encoding of your own.
- **Find servers by name:** `nearcall.directory`, and `Registration` for servers.
- **Messages by type:** `nearcall.route` sends them to whom a table says.
- **Plugins and tests:** `nearcall.plugin`, `nearcall.sandbox`, `nearcall.testing`.
"""

from . import _core
from .call.variables import current_compression, current_deadline, current_metadata, current_request

TYPE_CHECKING = False  # type checkers take it for typing's, which takes longer to import than everything here
if TYPE_CHECKING:
    from collections.abc import Callable

    from . import aio, auth, directory, grpcio, health, introspection, observe, plugin, route
    from .call.buffers import buffer, empty
    from .call.compression import compression
    from .call.context import Context, context
    from .call.deadline import timeout
    from .call.interceptors import CallInfo, ClientCall, ClientInterceptor, Proceed, ServerCall, ServerInterceptor
    from .call.metadata import metadata
    from .call.session import ServerConnection, Session
    from .client.channel import Channel, connect
    from .client.child import Child, spawn
    from .client.client import Client
    from .client.hedge import Hedge
    from .client.options import ChannelOptions
    from .client.retry import Retry
    from .client.start import StartedCall, as_completed, start
    from .codec.protobuf.packing import ProtobufAny
    from .codec.values import ValueCodec
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
    from .metadata_pairs import Metadata
    from .options.nats import NATS
    from .options.tls import TLS
    from .references.reference import release
    from .server.registration import Registration
    from .server.serve import serve
    from .server.server import Server
    from .server.subscription import Subscription
    from .server.topic import Topic
    from .server.workers import WorkerFailed, Workers
    from .service.depends import depends
    from .service.service import idempotent, no_side_effects, oneway, service
    from .status import StatusCode
    from .types.carried import CarriedType
    from .types.numbers import field
    from .types.registered import register_type
    from .types.streams import Stream
else:
    from . import service
    from .lazy import lazily

    # The subpackage of services has the name of the decorator. Deleted here, the name is found in the table below.
    del service

    __getattr__, __dir__ = lazily(
        __name__,
        {
            "call.buffers": ["buffer", "empty"],
            "call.compression": ["compression"],
            "call.context": ["Context", "context"],
            "call.deadline": ["timeout"],
            "call.interceptors": [
                "CallInfo",
                "ClientCall",
                "ClientInterceptor",
                "Proceed",
                "ServerCall",
                "ServerInterceptor",
            ],
            "call.metadata": ["metadata"],
            "call.session": ["ServerConnection", "Session"],
            "client.channel": ["Channel", "connect"],
            "client.child": ["Child", "spawn"],
            "client.client": ["Client"],
            "client.hedge": ["Hedge"],
            "client.options": ["ChannelOptions"],
            "client.retry": ["Retry"],
            "client.start": ["StartedCall", "as_completed", "start"],
            "codec.protobuf.packing": ["ProtobufAny"],
            "codec.values": ["ValueCodec"],
            "errors": [
                "Aborted",
                "AlreadyExists",
                "Cancelled",
                "DataLoss",
                "DeadlineExceeded",
                "FailedPrecondition",
                "Internal",
                "InvalidArgument",
                "NotFound",
                "OutOfRange",
                "PermissionDenied",
                "ResourceExhausted",
                "RpcError",
                "Unauthenticated",
                "Unavailable",
                "Unimplemented",
                "Unknown",
            ],
            "metadata_pairs": ["Metadata"],
            "options.nats": ["NATS"],
            "options.tls": ["TLS"],
            "references.reference": ["release"],
            "server.registration": ["Registration"],
            "server.serve": ["serve"],
            "server.server": ["Server"],
            "server.subscription": ["Subscription"],
            "server.topic": ["Topic"],
            "server.workers": ["WorkerFailed", "Workers"],
            "service.depends": ["depends"],
            "service.service": ["idempotent", "no_side_effects", "oneway", "service"],
            "status": ["StatusCode"],
            "types.carried": ["CarriedType"],
            "types.numbers": ["field"],
            "types.registered": ["register_type"],
            "types.streams": ["Stream"],
        },
        modules=["aio", "auth", "directory", "grpcio", "health", "introspection", "observe", "plugin", "route"],
    )

__version__ = _core.VERSION


def _errors() -> (
    "tuple[Callable[..., Exception], Callable[[BaseException], tuple[int, str, bytes]], Callable[..., Exception]]"
):
    """What makes exceptions, and statuses of them; the core calls this with the first status or exception."""
    from .codec.explain import explain_no_stream
    from .codec.statuses import describe_error, make_error

    return make_error, describe_error, explain_no_stream


_core.install(_errors)
_core.set_call_variables(current_deadline, current_metadata, current_compression, current_request)

__all__ = [
    "NATS",
    "TLS",
    "Aborted",
    "AlreadyExists",
    "CallInfo",
    "Cancelled",
    "CarriedType",
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
    "Hedge",
    "Internal",
    "InvalidArgument",
    "Metadata",
    "NotFound",
    "OutOfRange",
    "PermissionDenied",
    "Proceed",
    "ProtobufAny",
    "Registration",
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
    "Stream",
    "Subscription",
    "Topic",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "ValueCodec",
    "WorkerFailed",
    "Workers",
    "__version__",
    "aio",
    "as_completed",
    "auth",
    "buffer",
    "compression",
    "connect",
    "context",
    "depends",
    "directory",
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
    "register_type",
    "release",
    "route",
    "serve",
    "service",
    "spawn",
    "start",
    "timeout",
]
