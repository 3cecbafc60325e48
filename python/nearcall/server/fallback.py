"""What answers calls of methods that a server does not know: the option ``fallback``."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, TypeAlias, cast

from ..call.context import context
from ..options.checked import with_option
from ..options.schemes import speaks_protobuf
from ..service.encoded import EncodedMethod, encoded_class
from .instances import Served, look_at

__all__ = ["Fallback", "fallback_of"]

Fallback: TypeAlias = (
    "Callable[[str, Iterator[bytes]], Iterator[bytes]] | Callable[[str, AsyncIterator[bytes]], AsyncIterator[bytes]]"
)
"""Takes the path of a method, such as ``/shop.v1.Shop/Find``, and a call's messages; gives those of the answer."""

_SERVICE, _METHOD = "nearcall.Unknown", "Method"
"""The service and the method that the core gives calls to unknown paths."""


def fallback_of(urls: Sequence[str], fallback: Fallback) -> Served:
    """The service that the core gives calls of gRPC to unknown paths.

    Raises:
        TypeError: the option is no function.
        ValueError: none of the URLs is for gRPC or HTTP.
    """
    if not callable(cast(object, fallback)):
        raise with_option(TypeError(f"fallback must be a function of path and messages, not {fallback!r}"), "fallback")
    if not any(map(speaks_protobuf, urls)):
        raise with_option(ValueError("fallback is for grpc:// and http:// URLs, and there is none"), "fallback")

    def answer(messages: Any) -> Any:
        path = dict(context()._call.metadata)[":path"]
        return fallback(path.decode(errors="replace"), messages)

    shape = EncodedMethod(_METHOD, True, True, inspect.isasyncgenfunction(fallback))
    return look_at(encoded_class(_SERVICE, [shape], {_METHOD: answer})())
