"""Services whose messages are bytes that other code encodes: no types are known here, and no codec is needed.

Servicers and stubs that protoc has generated are such services (:mod:`nearcall.grpcio`). Each method takes one message,
or a stream of them, and returns one, or a stream of them. The method's name is also its name in gRPC's paths.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from inspect import Parameter
from typing import Any, NamedTuple

from ..types.declared import DESCRIBED_PLAN
from ..types.schema import SchemaBuilder
from .plan import MethodPlan, ServicePlan
from .signature import ReadMethod, method_plan

__all__ = ["EncodedMethod", "encoded_class"]

_IDENTIFIER = re.compile(r"[A-Za-z]\w*", re.ASCII)


class EncodedMethod(NamedTuple):
    """A method, by its shape."""

    name: str
    """``"GetFeature"``"""
    streams_in: bool
    streams_out: bool
    is_async: bool = False
    """The handler is a coroutine function or an asynchronous generator; clients ignore this."""


def encoded_class(name: str, methods: Sequence[EncodedMethod], handlers: Mapping[str, Callable[..., Any]] = {}) -> type:
    """A service class of such methods, for servers and clients.

    Args:
        name: The service's name; dots divide it from its package.
        methods: Its methods.
        handlers: The handler of each method, by its name. It takes the message as ``bytes``, or an iterator of them.

    Raises:
        ValueError: the service or a method has a name that cannot be served; the message says which.
    """
    for part in name.split("."):
        if not part.isidentifier() or part.startswith("_"):
            raise ValueError(
                f"'{name}' is no name of a service that can be served: '{part}' does not begin as names do"
            )
    for method in methods:
        if not _IDENTIFIER.fullmatch(method.name):
            raise ValueError(f"{name}: '{method.name}' is no name of a method that can be served")
    builder = SchemaBuilder()
    plan = ServicePlan(
        name=name, methods=tuple(_plan(name, method, builder) for method in methods), types=builder.types, encoded=True
    )
    own = {method: staticmethod(handler) for method, handler in handlers.items()}
    return type(name.rpartition(".")[2], (), {DESCRIBED_PLAN: lambda: plan, **own})


def _plan(service: str, method: EncodedMethod, builder: SchemaBuilder) -> MethodPlan:
    stream: Any = AsyncIterator[bytes] if method.is_async else Iterator[bytes]
    name, annotation = ("requests", stream) if method.streams_in else ("request", bytes)
    read = ReadMethod(
        service=service,
        name=method.name,
        parameters=(Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, annotation=annotation),),
        returns=stream if method.streams_out else bytes,
        is_async=method.is_async,
        oneway=False,
        idempotent=False,
        no_side_effects=False,
        doc=None,
    )
    return method_plan(read, builder)
