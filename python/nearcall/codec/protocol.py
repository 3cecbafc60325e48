"""What a codec is: it takes the types of a service's methods, and gives functions between their values and bytes.

A method's plan (:mod:`nearcall.service.plan`) says what is called and what may be passed, and holds the codings that a
:class:`Codec` made: how arguments, items and results are encoded. Callers, and the code around a call, know no codec by
name. A URL decides which codec is used there: :class:`~nearcall.codec.msgpack.service.Msgpack` on nearcall's own
transports, Protobuf and JSON over HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast

import msgspec
from msgspec import inspect as shapes

from ..errors import Internal, InvalidArgument, RpcError
from .checks import OuterType
from .hashed import HashedKeys
from .senders import Sender
from .weights import Weights

__all__ = [
    "BUFFER_FORMS",
    "BYTEARRAY",
    "BYTES",
    "CODED",
    "FORMS",
    "MEMORYVIEW",
    "NOTHING",
    "PARTS",
    "ArgumentsCoding",
    "Codec",
    "MethodCoding",
    "MethodTypes",
    "ParameterType",
    "Parts",
    "Roles",
    "ValueCoding",
    "ValueType",
    "buffer_form",
]

# The forms in which a value is sent.
NOTHING: Final = "nothing"
"""No payload; the value is ``None``."""
BYTES: Final = "bytes"
"""The payload is the buffer itself; it arrives as ``bytes``."""
BYTEARRAY: Final = "bytearray"
"""The payload is the buffer itself; it arrives as a ``bytearray``."""
MEMORYVIEW: Final = "memoryview"
"""The payload is the buffer itself; it arrives as a ``memoryview``, without a copy where the transport can."""
CODED: Final = "coded"
"""The payload is the value as the codec encodes it."""
PARTS: Final = "parts"
"""The same, plus raw buffers beside the payload."""

BUFFER_FORMS: Final = frozenset({BYTES, BYTEARRAY, MEMORYVIEW})
FORMS: Final = BUFFER_FORMS | {NOTHING, CODED, PARTS}

_BUFFER_SHAPES: dict[type, str] = {
    shapes.BytesType: BYTES,
    shapes.ByteArrayType: BYTEARRAY,
    shapes.MemoryViewType: MEMORYVIEW,
}

Parts = tuple[bytes, list[memoryview]]
"""An encoded value: the codec's bytes, and the raw buffers that they refer to by index."""


def buffer_form(shape: shapes.Type) -> str | None:
    """The form in which values of a type can be sent as they are; ``None`` if they are no buffers."""
    form, sized = _BUFFER_SHAPES.get(type(shape)), cast(Any, shape)
    # Only a decoder enforces a length limit (Annotated[bytes, Meta(max_length=...)]), so such a type is no bare buffer.
    return form if form is not None and sized.min_length is None and sized.max_length is None else None


class ValueType(NamedTuple):
    """The type of a value, as a class declares it or a server describes it."""

    annotation: Any
    shape: shapes.Type
    """msgspec's description of the type."""
    name: str
    """The type as written, for messages."""
    schema: Any
    """The type as plain data (see :mod:`nearcall.types.schema`)."""
    outer: OuterType
    """The check of values before they are sent."""
    services: tuple[type, ...] = ()
    """The service classes in it, whose objects travel as references."""
    described: bool = False
    """Whether the type is known from a server's description, which says less than a class."""
    sender: Sender | None = None
    """If the type is described: makes sure that nothing in a value is lost; ``None`` if nothing can be lost."""
    written: Any = None
    """The annotation as it is written, if the class declares it."""


class ParameterType(NamedTuple):
    """A parameter of a method."""

    name: str
    type: ValueType
    required: bool
    default: Any
    """The value of an absent argument; ``...`` if the interface leaves that to the handler."""
    fallback: Any = ...
    """The handler's default in that case; ``...`` if it is not known here."""


class MethodTypes(NamedTuple):
    """The types of a method, as its class declares them."""

    name: str
    parameters: tuple[ParameterType, ...]
    """All parameters but the streaming one."""
    stream: ParameterType | None
    """The stream from the client; the type is that of its items."""
    result: ValueType
    """The type of the result, or of the items of the stream from the server."""
    streams_out: bool = False
    oneway: bool = False
    doc: str | None = None
    no_side_effects: bool = False
    in_loop: bool = False
    """The handler awaits methods of the objects that it gets."""


class Roles(NamedTuple):
    """How to speak of a value in errors, and which errors each side raises over it."""

    noun: str
    """``"Calculator.add(): the result"``"""
    sender_error: type[RpcError]
    receiver_error: type[RpcError]

    @classmethod
    def of_stream(cls, method: str, parameter: str) -> Roles:
        """The roles for items of a stream from the client."""
        return cls(f"{method}(): an item of '{parameter}'", InvalidArgument, InvalidArgument)

    @classmethod
    def of_result(cls, method: str, *, items: bool) -> Roles:
        """The roles for a result, or for its items. A wrong result is the server's fault, whichever side notices."""
        return cls(f"{method}(): {'an item of the result' if items else 'the result'}", Internal, Internal)


class ValueCoding(msgspec.Struct, frozen=True, eq=False):
    """How one codec encodes one value: a result, or one item of a stream."""

    form: str
    """``"nothing"``, ``"bytes"``, ``"bytearray"``, ``"memoryview"``, ``"coded"`` or ``"parts"``."""
    encode: Any
    """From the value to bytes, or to :data:`Parts`: a function, or a codec of the core. ``None``: the form needs no
    encoding.
    """
    decode: Any
    """From bytes, or from bytes and a list of memoryview."""
    encode_error: Callable[[BaseException], RpcError]
    """Turns what ``encode`` raised into the error to report."""
    decode_error: Callable[..., RpcError]
    """Turns what ``decode`` raised into the error to report. In msgpack it takes the message as well."""
    encode_again: Callable[..., Any] | None = None
    """Takes what ``encode`` raised, and the value: encodes it in a way that takes longer and can more, or raises.
    ``None``: there is no such way.
    """
    decode_again: Callable[..., Any] | None = None
    """The same for what ``decode`` raised, and what it was given."""
    hashed: HashedKeys | None = None
    """The keys to check before ``decode``, so that none collide; ``None`` if they cannot collide, or ``decode`` checks
    them.
    """
    weights: Weights | None = None
    """What the values take in memory; ``None`` if ``decode`` weighs them."""
    references: bool = False
    """Whether values may hold references: then the core says, while ``encode`` or ``decode`` runs, to which connection
    they belong.
    """
    remake: Callable[[bool], ValueCoding] | None = None
    """Makes the coding anew, if values may hold references; ``True``: methods of the objects that arrive are to be
    awaited.
    """

    def in_loop(self, for_loop: bool) -> ValueCoding:
        """The same for a receiver that awaits, or does not await, the methods of the objects that arrive."""
        return self if self.remake is None else self.remake(for_loop)


class ArgumentsCoding(msgspec.Struct, frozen=True, eq=False):
    """How one codec encodes the arguments of a method, its streaming parameter left out.

    The *coded group* is the parameters whose form is no buffer's, in order. ``encode`` and ``decode`` deal with exactly
    that tuple; the core carries the buffers of the other parameters.
    """

    names: tuple[str, ...]
    """The parameters in the order in which they are sent."""
    forms: tuple[str, ...]
    """Per parameter: ``"coded"``, ``"parts"``, ``"bytes"``, ``"bytearray"`` or ``"memoryview"``. If one has the form
    ``parts``, ``encode`` and ``decode`` have it."""
    encode: Any
    """Encodes the coded group: a function, or a codec of the core."""
    decode: Any
    """Decodes the coded group."""
    encode_error: Callable[[BaseException, Any], RpcError]
    """Turns what ``encode`` or ``encode_named`` raised into the error to report; takes the values that were to be
    encoded, too.
    """
    decode_error: Callable[..., RpcError]
    """Turns what ``decode`` or ``decode_named`` raised into the error to report."""
    encode_again: Callable[..., Any] | None = None
    """As in a :class:`ValueCoding`, for ``encode``."""
    decode_again: Callable[..., Any] | None = None
    """As in a :class:`ValueCoding`, for ``decode``."""
    encode_named: Callable[[dict[str, Any]], Parts] | None = None
    """Encodes the given arguments by name, buffers included. ``None``: ``encode`` takes a dict as well."""
    decode_named: Callable[..., tuple[Any, ...]] | None = None
    """Decodes them to the full tuple; an argument that was not sent takes the signature's default."""
    hashed: HashedKeys | None = None
    """As in a :class:`ValueCoding`, for all arguments."""
    weights: Weights | None = None
    """As in a :class:`ValueCoding`, for all arguments."""
    references: bool = False
    """Whether arguments may hold references: then the core says, while one of these functions runs, to which connection
    they belong.
    """
    remake: Callable[[Sequence[str], bool], ArgumentsCoding] | None = None
    """Makes the coding anew, for a caller that declares the parameters in another order, and for a handler that is (or
    is not) asynchronous. Takes the caller's names in order; parameters that are not known here take any value.
    """


class MethodCoding(NamedTuple):
    """How one codec encodes a method's values."""

    arguments: ArgumentsCoding
    item: ValueCoding | None
    """The items of the stream from the client."""
    reply: ValueCoding
    """The result, or the items of the stream from the server."""
    path: str | None = None
    """The path for peers that call methods by paths: ``/package.Service/Method``. Such a call is always answered."""


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
            TypeError: something has no counterpart; the message is one line that names the method and the parameter.
        """
        ...
