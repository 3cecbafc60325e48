"""What a codec is: a way from the types of a service's methods to functions between their values and bytes.

msgpack is the codec of nearcall's own transports, and written into the plans of all methods
(:mod:`nearcall.service.plan`). Another one makes further plans of the same methods, which differ in nothing but the
functions that a :class:`Coding` holds (:mod:`nearcall.service.coded`); who is called, and what surrounds the call, does
not know of codecs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..errors import RpcError

__all__ = ["Codec", "Coding", "Explainer", "MethodCoding", "MethodTypes", "ParameterType"]


Explainer: TypeAlias = "Callable[[BaseException, type[RpcError], str], RpcError]"
"""Takes what was raised, the class of the error to report, and what it is of: ``"Calculator.add(): the result"``."""


class ParameterType(NamedTuple):
    """A parameter of a method."""

    name: str
    annotation: Any
    required: bool
    default: Any
    """What an absent argument stands for; ``...`` if the interface leaves that to the handler."""
    fallback: Any = ...
    """What the handler says then; ``...`` if it is not known here."""


class MethodTypes(NamedTuple):
    """The types of a method, as its class declares them."""

    name: str
    parameters: tuple[ParameterType, ...]
    """All but the streaming one."""
    stream: ParameterType | None
    """The stream from the client; the annotation is that of its items."""
    result: Any
    """The annotation of the result, or of the items of the stream from the server."""
    streams_out: bool
    oneway: bool
    doc: str | None
    no_side_effects: bool = False


class Coding(NamedTuple):
    """How one value, or all arguments of a call, become bytes and back."""

    form: str
    """One of the forms of :mod:`nearcall.service.plan`."""
    encode: Any
    """From the value, or from the tuple or dict of arguments, to bytes. A function, or a codec of the core."""
    decode: Any
    """And back."""
    encode_error: Explainer
    """Turns what ``encode`` raised into the error to report."""
    decode_error: Explainer
    """Turns what ``decode`` raised into the error to report."""


class MethodCoding(NamedTuple):
    """How a method's values cross in one codec."""

    path: str
    """Where gRPC's peers call it: ``/package.Service/Method``."""
    arguments: Coding
    item: Coding | None
    """The items of the stream from the client."""
    reply: Coding
    """The result, or the items of the stream from the server."""


class Codec(Protocol):
    """Makes the codings of a service's methods."""

    name: str
    """``"protobuf"``"""

    def service(self, name: str, methods: Sequence[MethodTypes]) -> Mapping[str, MethodCoding]:
        """The coding of each method, by its name.

        Args:
            name: The service's name; dots divide it from its package.
            methods: The types of its methods, in order.

        Raises:
            TypeError: something has no counterpart; one line that names the method and the parameter.
        """
        ...
