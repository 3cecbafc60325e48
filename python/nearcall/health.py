"""gRPC's health service: should clients call a server, or one of its services?

Every server answers it at its gRPC URLs, for Kubernetes, load balancers and ``grpc_health_probe``. The core answers by
itself, without a Python thread or the interpreter, even while all handlers are busy. Interceptors are not around it,
because probes have no tokens to show; it only tells which names serve.

Its class is for both sides, so that any gRPC server can be asked::

    with nearcall.connect("grpc://127.0.0.1:50051", nearcall.health.Health) as health:
        print(health.check(nearcall.health.HealthCheckRequest("shop.v1.Shop")).status)

By the project's own description: https://github.com/grpc/grpc/blob/master/doc/health-checking.md
"""

from __future__ import annotations

import enum
from collections.abc import Iterator

import msgspec

from . import _core
from .service.service import service

__all__ = [
    "Health",
    "HealthCheckRequest",
    "HealthCheckResponse",
    "HealthListRequest",
    "HealthListResponse",
    "ServingStatus",
    "health_of",
]

NAME = "grpc.health.v1.Health"


class ServingStatus(enum.IntEnum):
    """What is said of a service."""

    UNKNOWN = 0
    SERVING = 1
    NOT_SERVING = 2
    SERVICE_UNKNOWN = 3
    """Only in :meth:`Health.watch`: the server has no such service now."""


class HealthCheckRequest(msgspec.Struct, frozen=True):
    """Of what the status is asked."""

    service: str = ""
    """``"shop.v1.Shop"``; the server as a whole if it is empty."""


class HealthCheckResponse(msgspec.Struct, frozen=True):
    """The status."""

    status: ServingStatus


class HealthListRequest(msgspec.Struct, frozen=True):
    """Nothing more is asked."""


class HealthListResponse(msgspec.Struct, frozen=True):
    """The status of everything that the server says something of."""

    statuses: dict[str, HealthCheckResponse]
    """The statuses, by the names of the services."""


@service(name=NAME)
class Health:
    """Whether a server, or one of its services, is to be given calls."""

    def check(self, request: HealthCheckRequest) -> HealthCheckResponse:
        """The status now.

        Raises:
            NotFound: the server has no such service.
        """
        raise NotImplementedError

    def watch(self, request: HealthCheckRequest) -> Iterator[HealthCheckResponse]:
        """The status now, and again whenever it is another one. A service that is not there may come."""
        raise NotImplementedError

    def list(self, request: HealthListRequest) -> HealthListResponse:
        """Every status."""
        raise NotImplementedError


def health_of(states: _core.Health) -> Health:
    """The health service for a server; the core has its methods."""
    # Instance attributes and no subclass, whose annotations would be examined when a server starts.
    health = Health()
    vars(health).update(zip(("check", "watch", "list"), states.methods(), strict=True))
    return health
