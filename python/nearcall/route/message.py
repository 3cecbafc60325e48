"""Messages, as handlers get them, and the Python types of their payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from .. import _core
from ..errors import InvalidArgument, RpcError
from ..options.common import DEFAULT_MAX_VALUES
from ..service.service import plan_of, service
from ..types.hints import type_name

if TYPE_CHECKING:
    from .sending import Sending

__all__ = ["AnyBuffer", "Message", "check_number", "codec_of", "encoded", "message", "number_of"]

T = TypeVar("T")
C = TypeVar("C", bound=type)

AnyBuffer = Any
"""``bytes``, or whatever else has a C-contiguous buffer."""

_NUMBER = "__nearcall_message__"


def message(number: int) -> Callable[[C], C]:
    """Binds a number of message types to a Python type: its objects can be sent as payloads, and handlers of the type
    get them::

        @route.message(1000)
        @dataclass
        class Measurement:
            cell: int
            values: bytes

    Args:
        number: The messages' type.

    Raises:
        TypeError: values of the class cannot be sent; the message says why.
    """
    check_number("message type", number)

    def bind(cls: C) -> C:
        setattr(cls, _NUMBER, number)
        codec_of(cls)
        return cls

    return bind


def check_number(what: str, number: object) -> int:
    """A number of 32 bits.

    Raises:
        TypeError: it is no whole number.
        ValueError: it is too large.
    """
    if not isinstance(number, int) or isinstance(number, bool):
        raise TypeError(f"a {what} is a whole number, not {number!r}")
    if not -(1 << 31) <= number < 1 << 31:
        raise ValueError(f"a {what} has 32 bits: {number} does not fit")
    return number


def number_of(cls: type) -> int | None:
    """The number that is bound to a class; ``None`` if none is. Classes that inherit from it have none."""
    found = vars(cls).get(_NUMBER)
    return found if isinstance(found, int) else None


_codecs: dict[type, _core.RouteCodec] = {}


def codec_of(cls: type) -> _core.RouteCodec:
    """Encodes and decodes payloads of a class.

    Raises:
        TypeError: its values cannot be sent.
    """
    if (codec := _codecs.get(cls)) is None:

        def value(self: object) -> Any: ...

        value.__annotations__ = {"return": cls}
        holder: Any = service(name=cls.__name__)(type(cls.__name__, (), {"value": value, "__module__": cls.__module__}))
        (plan,) = plan_of(holder).methods
        codec = _codecs[cls] = _core.RouteCodec(_core.Method(plan, max_values=DEFAULT_MAX_VALUES))
    return codec


def encoded(value: object) -> bytes:
    """An object of a class with a message type, as a payload.

    Raises:
        InvalidArgument: it is not what its class declares.
    """
    payload: bytes = _fitting(codec_of(value.__class__).encode, value, value.__class__)
    return payload


def _fitting(code: Callable[[Any], Any], value: object, cls: type) -> Any:
    try:
        return code(value)
    except RpcError as error:
        raise InvalidArgument(f"the payload is no {type_name(cls)}: {error.message}") from None


class Message(Generic[T]):
    """A message that has arrived. ``Message[Measurement]`` is one whose payload is such an object."""

    __slots__ = ("_node", "_received", "_value", "_value_type")

    def __init__(self, received: _core.RouteMessage, node: Sending, value_type: type | None = None) -> None:
        self._received = received
        self._node = node
        self._value_type = value_type

    @property
    def type(self) -> int:
        """The message's type, a number."""
        return self._received.type

    @property
    def subscription(self) -> int:
        """Its subscription; -1 if it has none."""
        return self._received.subscription

    @property
    def payload(self) -> bytes:
        """Its payload, as bytes of this process's own."""
        return self._received.payload

    @property
    def view(self) -> memoryview:
        """Its payload where it lies: over shared memory a long one is not copied. Its memory goes back to the sender
        when the last view of it is gone.
        """
        return self._received.view

    @property
    def value(self) -> T:
        """Its payload as an object of the type that is bound to the message's type, or that the handler asks for.

        Raises:
            InvalidArgument: the payload does not fit the type.
            TypeError: no type is known.
        """
        try:
            return self._value
        except AttributeError:
            pass
        if self._value_type is None:
            raise TypeError(f"no Python type is bound to messages of type {self.type}: use @route.message({self.type})")
        self._value: T = _fitting(codec_of(self._value_type).decode, self._received, self._value_type)
        return self._value

    @property
    def transaction(self) -> bytes:
        """The number that a message and the reply to it share; empty if it has none."""
        return self._received.transaction

    @property
    def entity(self) -> str:
        """The managed entity that the message concerns; empty if it names none."""
        return self._received.entity

    @property
    def source(self) -> str:
        """The name of the node that has sent it."""
        return self._received.source

    @property
    def address(self) -> str:
        """Where that node takes replies."""
        return self._received.address

    @property
    def trace(self) -> bytes:
        """Data that travels along for tracing; a reply carries it back."""
        return self._received.trace

    def reply(self, payload: AnyBuffer = b"", *, type: int | None = None, timeout: float | None = None) -> None:
        """Sends a message back to the sender, with the same transaction number. That needs no table.

        Args:
            payload: Bytes, a buffer, or an object of a class with a message type.
            type: The reply's type; that of this message if it is not given.
            timeout: Seconds to wait for room.

        Raises:
            FailedPrecondition: the sender takes no replies.
            ResourceExhausted: there is no room.
        """
        self._node.reply_to(self._received, payload, type, timeout)

    def __len__(self) -> int:
        return len(self._received)

    def __repr__(self) -> str:
        about = f" of subscription {self.subscription}" if self.subscription != -1 else ""
        return f"<message of type {self.type}{about} from {self.source or 'nobody'}, {len(self)} bytes>"
