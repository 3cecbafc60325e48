"""Plans: everything about a service that is worked out once, so that a call does not have to.

A plan is made from a class when it is declared a service (:mod:`nearcall.service.service`), or from a server's
description (:mod:`nearcall.service.dynamic`). The compiled core reads a plan's attributes when a method is registered
and keeps what it found there; nothing here runs during a call except the callables that a plan holds.

Plans are Structs rather than dataclasses because defining a dataclass takes twenty times as long, at every import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import msgspec

from ..codec.hashed import HashedKeys
from ..codec.protocol import MethodTypes
from ..errors import RpcError

__all__ = [
    "BIDI_STREAM",
    "BUFFER_FORMS",
    "BYTEARRAY",
    "BYTES",
    "CLIENT_STREAM",
    "CODED",
    "MEMORYVIEW",
    "NOTHING",
    "ONEWAY",
    "PARTS",
    "SERVER_STREAM",
    "UNARY",
    "ArgumentsPlan",
    "MethodPlan",
    "Parameter",
    "ServicePlan",
    "Slot",
    "ValuePlan",
]

# The forms in which a value crosses.
NOTHING: Final = "nothing"
"""No payload; the value is ``None``."""
BYTES: Final = "bytes"
"""The payload is the buffer itself; it arrives as ``bytes``."""
BYTEARRAY: Final = "bytearray"
"""The payload is the buffer itself; it arrives as a ``bytearray``."""
MEMORYVIEW: Final = "memoryview"
"""The payload is the buffer itself; it arrives as a ``memoryview``, without a copy where the transport can."""
CODED: Final = "coded"
"""The payload is msgpack."""
PARTS: Final = "parts"
"""The payload is msgpack plus raw buffers that travel beside it."""

BUFFER_FORMS: Final = frozenset({BYTES, BYTEARRAY, MEMORYVIEW})

# The kinds of method.
UNARY: Final = "unary"
SERVER_STREAM: Final = "server_stream"
CLIENT_STREAM: Final = "client_stream"
BIDI_STREAM: Final = "bidi_stream"
ONEWAY: Final = "oneway"

Parts: TypeAlias = "tuple[bytes, list[memoryview]]"
"""An encoded value: the msgpack, and the raw buffers it refers to by index."""


class ValuePlan(msgspec.Struct, frozen=True, eq=False):
    """How one value crosses: a result, or one item of a stream."""

    form: str
    """``"nothing"``, ``"bytes"``, ``"bytearray"``, ``"memoryview"``, ``"coded"`` or ``"parts"``."""
    encode: Callable[[Any], Any] | None
    """Form ``coded``: value to bytes. Form ``parts``: value to (bytes, list of memoryview). Otherwise ``None``."""
    decode: Callable[..., Any] | None
    """Form ``coded``: from the body. Form ``parts``: from the body and a list of memoryview. Otherwise ``None``."""
    accepts: tuple[type, ...]
    """A value whose exact type is among these needs no check."""
    check: Callable[[Any], None] | None
    """Called with any other value; raises :class:`~nearcall.errors.RpcError` if it does not fit. ``None``: all fit."""
    type_name: str
    """The type as written, for messages."""
    schema: Any
    """The shape of the type as plain data (see :mod:`nearcall.types.schema`)."""
    encode_error: Callable[[BaseException], RpcError]
    """Turns what ``encode`` raised into the error to report."""
    decode_error: Callable[[BaseException], RpcError]
    """Turns what ``decode`` raised into the error to report."""
    hashed: HashedKeys | None = None
    """What to look at before ``decode``, so that no keys collide; ``None`` if they cannot."""
    references: bool = False
    """Whether values may hold references: then the core says whose they are while ``encode`` or ``decode`` runs."""
    decoder: Callable[[bool], Callable[..., Any]] | None = None
    """Makes ``decode`` anew: where references are, whether (``True``) the methods of what arrives are to be awaited."""

    def in_loop(self, for_loop: bool) -> ValuePlan:
        """The same for a receiver that awaits, or does not await, the methods of the objects that arrive."""
        if self.decoder is None:
            return self
        return msgspec.structs.replace(self, decode=self.decoder(for_loop))


class Slot(NamedTuple):
    """One parameter, as far as calling is concerned."""

    name: str
    by_position: bool
    by_name: bool
    required: bool


class Parameter(msgspec.Struct, frozen=True, eq=False):
    """One parameter, for descriptions and messages."""

    name: str
    type_name: str
    form: str
    """``"coded"``, ``"parts"`` or one of the buffer forms."""
    required: bool
    schema: Any


class ArgumentsPlan(msgspec.Struct, frozen=True, eq=False):
    """How the arguments of a method cross, its streaming parameter left out.

    The *coded group* is the parameters whose form is ``"coded"``, in order. ``encode`` and ``decode`` deal with
    exactly that tuple; the buffers of the other parameters are the core's to carry.
    """

    names: tuple[str, ...]
    forms: tuple[str, ...]
    """Per parameter: ``"coded"``, ``"bytes"``, ``"bytearray"`` or ``"memoryview"``."""
    positional: int
    """So many of the parameters may be given by position; the rest are keyword-only."""
    parts: bool
    """``encode`` and ``decode`` have the form ``parts``."""
    encode: Callable[[tuple[Any, ...]], Any]
    decode: Callable[..., tuple[Any, ...]]
    accepts: tuple[tuple[type, ...], ...]
    """Per parameter: exact types that need no check."""
    check_at: Callable[[int, Any], None]
    """Checks a value for the parameter of that index; raises :class:`~nearcall.errors.InvalidArgument`."""
    bind: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...] | dict[str, Any]]
    """Python's rules for calling: a full tuple if every parameter was given, else what was given, by name."""
    encode_named: Callable[[tuple[Any, ...] | dict[str, Any]], Parts]
    """Checks what ``bind`` returned, and encodes it as a msgpack map by name, buffers included."""
    decode_named: Callable[..., tuple[Any, ...]]
    """From the map and its buffers to the full tuple; what was not sent takes the signature's default."""
    encode_error: Callable[[BaseException, Any], RpcError]
    """Turns what ``encode`` or ``encode_named`` raised into the error to report; takes what was to be encoded, too."""
    decode_error: Callable[[BaseException], RpcError]
    """Turns what ``decode`` or ``decode_named`` raised into the error to report."""
    parameters: tuple[Parameter, ...]
    hashed: HashedKeys | None = None
    """As in a :class:`ValuePlan`, for all arguments."""
    references: bool = False
    """Whether arguments may hold references: then the core says whose they are while something here runs."""
    remake: Callable[[Sequence[str], bool], ArgumentsPlan] | None = None
    """Makes the plan anew, for a caller that declares the parameters in another order, and for a handler that is (or
    is not) asynchronous. Takes the caller's names in order; those that are not known here take any value."""


class MethodPlan(msgspec.Struct, frozen=True, eq=False):
    """One method of a service."""

    service: str
    name: str
    kind: str
    """``"unary"``, ``"server_stream"``, ``"client_stream"``, ``"bidi_stream"`` or ``"oneway"``."""
    arguments: ArgumentsPlan
    request_item: ValuePlan | None
    """The items of the stream from the client, if there is one."""
    slots: tuple[Slot, ...]
    """All parameters in order, the streaming one among them."""
    stream_position: int
    """Where among all parameters the streaming one stands, or -1."""
    reply: ValuePlan
    """The result, or the items of the stream from the server."""
    handler_is_async: bool
    """The handler is a coroutine function or an asynchronous generator, and gets its stream as an async iterator."""
    split: Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...] | dict[str, Any], Any]]
    """Like ``arguments.bind`` for a method with a streaming parameter: the other arguments, and the stream."""
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]]
    """From a handler to one that takes every parameter by position, in order, the stream in its place."""
    signature: str
    """The signature as one would write it: ``add(a: int, b: int = ...) -> int``."""
    always_named: bool = False
    """Always send the arguments by name, through ``encode_named``: the server declares the method differently."""
    idempotent: bool = False
    no_side_effects: bool = False
    """Calling twice does what calling once does, so the call may be repeated after a broken connection."""
    doc: str | None = None
    takes: tuple[type, ...] = ()
    """The service classes whose objects travel to the handler as references: in arguments and in the stream to it."""
    gives: tuple[type, ...] = ()
    """The service classes whose objects come back as references: in the result or in the stream from the handler."""
    types: MethodTypes | None = None
    """What other codecs are made from; ``None`` if only a server's description is known."""
    path: str | None = None
    """Where gRPC's peers call it, ``/package.Service/Method``, if this is the plan for them."""

    @property
    def full_name(self) -> str:
        """``"Calculator.add"``."""
        return f"{self.service}.{self.name}"


class ServicePlan(msgspec.Struct, frozen=True, eq=False):
    """A service: its name and its methods, in the order written."""

    name: str
    methods: tuple[MethodPlan, ...]
    doc: str | None = None
    types: dict[str, Any] = {}
    """The named types that the methods' schemas refer to."""
    errors: tuple[type[Exception], ...] = ()
    """Exception classes of the application that arrive at the caller as themselves."""
    instance: Literal["server", "session"] = "server"
    """Who answers: one object for all clients, or one for each, which the server makes."""
    plain: bool = False
    """Made from a description: values are plain data, whose fields nobody has declared here."""
