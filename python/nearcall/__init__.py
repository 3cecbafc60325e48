"""Typed RPC for Python on a Rust core: one service over shared memory, Unix sockets and TCP.

::

    import nearcall

    @nearcall.service
    class Calculator:
        def add(self, a: int, b: int) -> int:
            return a + b

    nearcall.serve(Calculator(), "shm://calc")             # in one process

    with nearcall.connect("shm://calc", Calculator) as calc:   # in another
        calc.add(1, 2)
"""

from . import _core, aio
from ._core import VERSION as __version__
from .client import Client, connect
from .deadline import timeout
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
    describe_error,
    make_error,
)
from .server import Server, serve
from .service import idempotent, oneway, service
from .status import StatusCode

_core.install(make_error, describe_error)

__all__ = [
    "Aborted",
    "AlreadyExists",
    "Cancelled",
    "Client",
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
    "Server",
    "StatusCode",
    "Unauthenticated",
    "Unavailable",
    "Unimplemented",
    "Unknown",
    "__version__",
    "aio",
    "connect",
    "idempotent",
    "oneway",
    "serve",
    "service",
    "timeout",
]
