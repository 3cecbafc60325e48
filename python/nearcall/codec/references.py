"""References in a message: where a service class is declared, a msgpack extension stands for an object that stays in
its process.

Only the connection knows which object a number stands for. So the codec asks the :class:`Passage` of the connection
whose message it encodes or decodes; the core tells which connection that is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import Any, Final, NoReturn

import msgspec

from .. import _core
from ..errors import FailedPrecondition
from ..types.declared import service_class
from .senders import Sender

__all__ = ["REFERENCE", "Incoming", "Passage", "Received", "ReferenceSender", "Uncounted", "current"]

REFERENCE: Final = 8
"""msgpack extension: a reference; the data is one byte, 0 if the sender of the message gives it and 1 if it is the
receiver's own, and 8 bytes of its number, the lowest first."""


class Received(ABC):
    """A reference that was read, before its declared class is known."""

    @abstractmethod
    def as_a(self, cls: type, *, for_loop: bool) -> object:
        """The object: the receiver's own, or a proxy that calls the sender's.

        Args:
            cls: The service class that is declared in its place.
            for_loop: Whether its methods are to be awaited.

        Raises:
            TypeError, ValueError: the reference cannot stand for an object of this class.
        """


class Passage(ABC):
    """Puts references into the messages of one connection, and takes them out."""

    @abstractmethod
    def check(self, value: object, cls: type) -> None:
        """Makes sure that a value can be sent where a service class is declared.

        Raises:
            MisfitError: it cannot be sent; the message says what it lacks.
        """

    @abstractmethod
    def put(self, references: _core.References, value: object, cls: type) -> bytes:
        """The data of the reference to a value that was checked. From now on the receiver may call the object.

        Raises:
            ResourceExhausted: too many references were given already.
        """

    @abstractmethod
    def take(self, references: _core.References, data: memoryview) -> Received:
        """The reference that the data in a message stands for.

        Raises:
            ValueError: the data is malformed.
            InvalidArgument: the data stands for an object of the receiver's that does not exist.
        """


def current() -> tuple[_core.References, Passage]:
    """The references and the passage of the connection whose message the calling thread encodes or decodes.

    Raises:
        FailedPrecondition: there is no such connection, so no references can be passed.
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

    They are read before their declared class is known; the decoder asks for the object afterwards. A reference that was
    read and not asked for is dropped with this object.
    """

    __slots__ = ("_again", "_for_loop", "_made", "_open", "_passage", "_references", "_taken")

    def __init__(self, *, for_loop: bool) -> None:
        self._for_loop = for_loop
        self._references, self._passage = current()
        self._open = 0
        self._taken: list[Received] = []
        self._made: dict[int, object] = {}
        """The objects for the references in ``_taken``, by their ids."""
        self._again: Iterator[Received] | None = None

    def take(self, data: memoryview) -> Received:
        """Reads a reference that the decoder has found."""
        if self._again is not None:
            return next(self._again)
        received = self._passage.take(self._references, data)
        self._taken.append(received)
        self._open += 1
        return received

    def rewind(self) -> None:
        """Lets the same message be decoded once more: each reference is the same object again."""
        self._again = iter(self._taken)

    def resolve(self, annotation: Any, received: Received) -> object:
        """The object for a reference where an annotation is declared."""
        cls = service_class(annotation)
        if cls is None:
            raise ValueError("got a reference to an object")
        if self._again is not None:
            return self._made[id(received)]
        self._open -= 1
        made = self._made[id(received)] = received.as_a(cls, for_loop=self._for_loop)
        return made

    def finish(self, decode: Callable[[Any], Any], body: Any) -> Any:
        """Decodes a message, and makes sure that references are only where they are declared."""
        value = decode(body)
        if self._open:
            raise ValueError("a reference is where no service class is declared")
        return value


class Uncounted(Incoming):
    """The same for a message that is decoded once more, to find out why it was refused: its references are not counted,
    and what stands for their objects cannot be called.
    """

    __slots__ = ()

    def __init__(self) -> None:
        self._for_loop = False
        self._open = 0
        self._taken = []
        self._made = {}
        self._again = None

    def take(self, data: memoryview) -> Received:
        """See :class:`Incoming`."""
        if self._again is not None:
            return next(self._again)
        received = _Unnamed()
        self._taken.append(received)
        self._open += 1
        return received


class _Unnamed(Received):
    def as_a(self, cls: type, *, for_loop: bool) -> object:
        return _Of(cls)


class _Of:
    """Passes for an object of a class."""

    __slots__ = ("_cls",)

    def __init__(self, cls: type) -> None:
        self._cls = cls

    @property
    def __class__(self) -> Any:
        return self._cls

    @__class__.setter
    def __class__(self, _cls: Any) -> NoReturn:
        raise TypeError("it only passes for an object")
