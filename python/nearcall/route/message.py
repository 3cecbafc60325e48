"""Messages, as handlers get them, and the Python types of their payloads."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from .. import _core
from ..errors import InvalidArgument, RpcError
from ..options.common import DEFAULT_MAX_VALUES
from ..service.service import plan_of, service
from ..types.hints import type_name

__all__ = [
    "AnyBuffer",
    "Message",
    "bound_codec",
    "check_number",
    "codec_of",
    "message",
    "number_of",
    "prepared",
    "reply_of",
]

T_co = TypeVar("T_co", covariant=True)
C = TypeVar("C", bound=type)

AnyBuffer = Any
"""``bytes``, or whatever else has a C-contiguous buffer."""

_NUMBER = "__nearcall_message__"


def message(number: int) -> Callable[[C], C]:
    """Binds a number of message types to a Python type: its objects can be sent as payloads, and a message of that
    number has one as its ``value``::

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
        codec_of(cls)
        setattr(cls, _NUMBER, number)
        # A class that is defined anew, as in a notebook, takes the place of the one before.
        _bound.setdefault(number, {})[f"{cls.__module__}.{cls.__qualname__}"] = cls
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
_bound: dict[int, dict[str, type]] = {}
"""The classes that have each number, by their names."""


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

        def explain(error: BaseException) -> BaseException:
            if not isinstance(error, RpcError):
                return error
            # The class stands for the result of a method, which nobody has written.
            found = error.message.removeprefix(f"{cls.__name__}.value(): the result ")
            return InvalidArgument(
                f"the payload {found}" if found != error.message else f"the payload is no {type_name(cls)}: {found}"
            )

        try:
            codec = _codecs[cls] = _core.RouteCodec(_core.Method(plan, max_values=DEFAULT_MAX_VALUES), explain)
        except TypeError as error:
            raise TypeError(f"{type_name(cls)} cannot be the payload of a message: {error}") from None
    return codec


def bound_codec(number: int) -> _core.RouteCodec:
    """Decodes payloads of messages of this type, for which no handler says more.

    Raises:
        TypeError: no class has the number, or several have it.
    """
    classes = list(_bound.get(number, {}).values())
    if not classes:
        raise TypeError(f"no Python type is bound to messages of type {number}: use @route.message({number})")
    if len(classes) > 1:
        names = ", ".join(map(type_name, classes))
        raise TypeError(
            f"messages of type {number} may be {names}: name the class that is meant, with @node.on(TheClass)"
        )
    return codec_of(classes[0])


def reply_of(message: _core.RouteMessage[Any], payload: AnyBuffer, type: int | None) -> tuple[int | object, AnyBuffer]:
    """The type and the payload of a reply, as they are sent.

    Args:
        message: What is replied to. The reply has its type if no other is given, and the payload has none.
        payload: A buffer, or an object of a class with a message type.
        type: The type, if it is given.
    """
    if type is None and number_of(payload.__class__) is not None:
        return payload, b""
    return message.type if type is None else type, payload


def prepared(type: object, payload: AnyBuffer) -> tuple[int, AnyBuffer]:
    """The number of a message's type, and its payload as a buffer.

    Args:
        type: The number, or an object of a class with a message type, which is the payload then.
        payload: A buffer, or such an object.

    Raises:
        InvalidArgument: the object is not what its class declares.
        TypeError: there is no type, or another one than that of the payload.
        ValueError: the number is too large.
    """
    value = payload if isinstance(type, int) else type
    cls = value.__class__
    number = number_of(cls)
    if number is not None:
        if isinstance(type, int) and type != number:
            raise TypeError(f"a {cls.__name__} is of type {number}, and is sent as one of type {type}")
        return number, codec_of(cls).encode(value)
    if isinstance(type, int):
        return check_number("message type", type), payload
    raise TypeError(
        f"a {cls.__name__} has no message type: decorate its class with @route.message(number), or give the type "
        "first, and bytes"
    )


if TYPE_CHECKING:

    class Message(_core.RouteMessage[T_co]):
        """A message that has arrived. ``Message[Measurement]`` is one whose payload is such an object."""

        def reply(self, payload: AnyBuffer = b"", *, type: int | None = None, timeout: float | None = None) -> None:
            """Sends a message back to the sender, with the same transaction number. That needs no table.

            Args:
                payload: Bytes, a buffer, or an object of a class with a message type.
                type: The reply's type; if it is not given, that of the object's class, or of this message.
                timeout: Seconds to wait for room; ``None``: 1. A receiver that cannot be reached, or has taken nothing
                    since a reply had no room, is not waited for.

            Raises:
                FailedPrecondition: the sender takes no replies.
                InvalidArgument: its address is none at which a node can be.
                ResourceExhausted: there is no room.
            """
else:
    Message = _core.RouteMessage
