"""Plans: everything about a service that is worked out once, so that no call has to.

A plan is made from a class when it is declared a service (:mod:`nearcall.service.service`), or from a server's
description (:mod:`nearcall.service.dynamic`). The compiled core reads a plan's attributes when a method is registered
and keeps what it found there; nothing here runs during a call except the callables that a plan holds.

Plans are Structs rather than dataclasses because defining a dataclass takes twenty times as long, at every import.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal, NamedTuple

import msgspec

from ..codec.protocol import ArgumentsCoding, MethodTypes, Parts, ValueCoding
from ..errors import RpcError
from ..types.functions import full_name
from .depends import Dependency

__all__ = [
    "BIDI_STREAM",
    "CLIENT_STREAM",
    "KINDS",
    "ONEWAY",
    "SERVER_STREAM",
    "UNARY",
    "ArgumentsPlan",
    "MethodPlan",
    "Parameter",
    "ServicePlan",
    "Slot",
    "ValuePlan",
]

# The kinds of method.
UNARY: Final = "unary"
SERVER_STREAM: Final = "server_stream"
CLIENT_STREAM: Final = "client_stream"
BIDI_STREAM: Final = "bidi_stream"
ONEWAY: Final = "oneway"
KINDS: Final = frozenset({UNARY, ONEWAY, SERVER_STREAM, CLIENT_STREAM, BIDI_STREAM})


class ValuePlan(msgspec.Struct, frozen=True, eq=False):
    """What a call needs to know of one value: a result, or one item of a stream."""

    coding: ValueCoding
    """Encodes and decodes it."""
    accepts: tuple[type, ...]
    """A value whose exact type is among these needs no check."""
    check: Callable[[Any], None] | None
    """Called with any other value; raises :class:`~nearcall.errors.RpcError` if it does not fit. ``None``: all fit."""
    type_name: str
    """The type as written, for messages."""
    schema: Any
    """The shape of the type as plain data (see :mod:`nearcall.types.schema`)."""


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
    required: bool
    schema: Any


class ArgumentsPlan(msgspec.Struct, frozen=True, eq=False):
    """What a call needs to know of a method's arguments, its streaming parameter left out."""

    coding: ArgumentsCoding
    """Encodes and decodes them."""
    names: tuple[str, ...]
    positional: int
    """How many of the parameters may be given by position; the rest are keyword-only."""
    accepts: tuple[tuple[type, ...], ...]
    """Per parameter: exact types that need no check."""
    check_at: Callable[[int, Any], None]
    """Checks a value for the parameter of that index; raises :class:`~nearcall.errors.InvalidArgument`."""
    bind: Callable[[tuple[Any, ...], dict[str, Any]], tuple[Any, ...] | dict[str, Any]]
    """Applies Python's rules for calling: gives a full tuple if every parameter was given, else a dict by name."""
    encode_named: Callable[[tuple[Any, ...] | dict[str, Any]], Parts] | None
    """Checks what ``bind`` returned, and encodes it by name. ``None``: the codec's ``encode`` takes it as it is."""
    parameters: tuple[Parameter, ...]


class MethodPlan(msgspec.Struct, frozen=True, eq=False, dict=True):
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
    """The place of the streaming parameter among all parameters, or -1."""
    reply: ValuePlan
    """The result, or the items of the stream from the server."""
    handler_is_async: bool
    """The handler is a coroutine function or an asynchronous generator, and gets its stream as an async iterator."""
    split: Callable[[tuple[Any, ...], dict[str, Any]], tuple[tuple[Any, ...] | dict[str, Any], Any]]
    """Like ``arguments.bind`` for a method with a streaming parameter: the other arguments, and the stream."""
    adapt: Callable[[Callable[..., Any]], Callable[..., Any]]
    """Turns a handler into a function that takes every parameter by position, in order, the stream in its place."""
    signature: str
    """The signature as one would write it: ``add(a: int, b: int = ...) -> int``."""
    always_named: bool = False
    """Always send the arguments by name, through ``encode_named``: the server declares the method differently."""
    idempotent: bool = False
    """Calling twice does what calling once does, so the call may be repeated after a broken connection."""
    no_side_effects: bool = False
    """A call changes nothing: the method is idempotent, and over HTTP it may be called by GET."""
    doc: str | None = None
    takes: tuple[type, ...] = ()
    """The service classes whose objects travel to the handler as references: in arguments and in the stream to it."""
    gives: tuple[type, ...] = ()
    """The service classes whose objects come back as references: in the result or in the stream from the handler."""
    types: MethodTypes | None = None
    """The types from which other codecs make their codings; ``None`` if only a server's description is known."""
    path: str | None = None
    """The path by which peers of gRPC and Connect call it, ``/package.Service/Method``, if this is the plan for them.
    """
    dependencies: tuple[tuple[str, Dependency], ...] = ()
    """Parameters of the handler that its server fills in, by name; they are not among ``slots``."""

    @property
    def full_name(self) -> str:
        """``"Calculator.add"``."""
        return full_name(self.service, self.name)

    @property
    def takes_none(self) -> bool:
        """Whether a handler may return ``None``."""
        if self.kind in (SERVER_STREAM, BIDI_STREAM):
            return False
        try:
            if self.reply.check is not None:
                self.reply.check(None)
        except RpcError:
            return False
        return True


class ServicePlan(msgspec.Struct, frozen=True, eq=False):
    """A service: its name and its methods, in the order written."""

    name: str
    methods: tuple[MethodPlan, ...]
    doc: str | None = None
    types: dict[str, Any] = {}
    """The named types that the methods' schemas refer to."""
    errors: tuple[type[Exception], ...] = ()
    """Exception classes of the application that the caller catches as these classes."""
    instance: Literal["server", "session"] = "server"
    """Which object answers: one object for all clients, or one for each client, which the server makes."""
    plain: bool = False
    """Made from a description: values are plain data, and no class here declares their fields."""
    encoded: bool = False
    """Every message is bytes that other code encodes (:mod:`nearcall.service.encoded`), the same in all codecs."""
