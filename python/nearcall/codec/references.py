"""References in a message: where a service class is declared, an extension stands for an object that stays where it is.

What an object's number means is known to the connection alone. So the codec asks the :class:`Passage` of the
connection whose message it works on; the core says which that is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Final

import msgspec

from .. import _core
from ..errors import FailedPrecondition
from ..types.declared import service_class
from .senders import Sender

__all__ = ["REFERENCE", "Incoming", "Passage", "Received", "ReferenceSender", "current"]

REFERENCE: Final = 8
"""msgpack extension: a reference; the data is one byte, 0 if the sender of the message gives it and 1 if it is the
receiver's own, and 8 bytes of its number, the lowest first."""


class Received(ABC):
    """A reference that was read, before it is known of what class it is to be."""

    @abstractmethod
    def as_a(self, cls: type, *, for_loop: bool) -> object:
        """The object: the receiver's own, or one that calls the sender's.

        Args:
            cls: The service class that is declared in its place.
            for_loop: Whether its methods are to be awaited.

        Raises:
            TypeError, ValueError: it is none of those.
        """


class Passage(ABC):
    """Takes the references of one connection into its messages and out of them."""

    @abstractmethod
    def check(self, value: object, cls: type) -> None:
        """Makes sure that a value can be sent where a service class is declared.

        Raises:
            MisfitError: it cannot; says what it lacks.
        """

    @abstractmethod
    def put(self, references: _core.References, value: object, cls: type) -> bytes:
        """The data that stands for a value that was checked. From now on the receiver may call it.

        Raises:
            ResourceExhausted: too many references were given already.
        """

    @abstractmethod
    def take(self, references: _core.References, data: memoryview) -> Received:
        """What the data of a message stands for.

        Raises:
            ValueError: it is malformed.
            InvalidArgument: it stands for an object of the receiver's that there is not.
        """


def current() -> tuple[_core.References, Passage]:
    """Those of the connection whose message the calling thread works on.

    Raises:
        FailedPrecondition: nothing of it may hold references.
    """
    references = _core.current_references()
    if references is None:
        raise FailedPrecondition("references cannot be passed here: they belong to a connection")
    return references, references.held


class ReferenceSender(Sender):
    """A service class: the object stays here, and a reference to it is sent."""

    deep = True

    def __init__(self, cls: type) -> None:
        self._cls = cls

    def look(self, value: Any) -> bool:
        """See :class:`~nearcall.codec.senders.Sender`."""
        current()[1].check(value, self._cls)
        return True

    def rewrite(self, value: Any) -> Any:
        """See :class:`~nearcall.codec.senders.Sender`."""
        references, passage = current()
        return msgspec.msgpack.Ext(REFERENCE, passage.put(references, value, self._cls))


class Incoming:
    """The references of one message that is being decoded.

    They are read before it is known what is declared in their place; a decoder asks for that afterwards. What was read
    and is asked for nowhere goes with this object.
    """

    __slots__ = ("_for_loop", "_open", "_passage", "_references")

    def __init__(self, *, for_loop: bool) -> None:
        self._for_loop = for_loop
        self._references, self._passage = current()
        self._open = 0

    def take(self, data: memoryview) -> Received:
        """A reference that was found."""
        received = self._passage.take(self._references, data)
        self._open += 1
        return received

    def resolve(self, annotation: Any, received: Received) -> object:
        """The object for a reference, in whose place an annotation stands."""
        cls = service_class(annotation)
        if cls is None:
            raise ValueError("got a reference to an object")
        self._open -= 1
        return received.as_a(cls, for_loop=self._for_loop)

    def finish(self, decode: Callable[[Any], Any], body: Any) -> Any:
        """Decodes a message, and makes sure that references are only where they are declared."""
        value = decode(body)
        if self._open:
            raise ValueError("a reference is where no service class is declared")
        return value
