"""What the class of ``google.protobuf.Any`` can do, in modules that ``nearcall stub`` writes."""

from __future__ import annotations

from typing import Final, TypeVar

from .building import codec_by_itself
from .well_known import FULL_NAME, MOST_VALUES

__all__ = ["ProtobufAny"]

_T = TypeVar("_T")
_P = TypeVar("_P", bound="ProtobufAny")
_PREFIX: Final = "type.googleapis.com/"


class ProtobufAny:
    """A message of any type, with the name of its type: the base of a module's class for ``google.protobuf.Any``.

    ``Any.pack(item)`` makes one of a message of the same module, ``packed.unpack(Item)`` has the message.
    """

    type_url: str
    """The type, such as ``"type.googleapis.com/shop.v1.Item"``."""
    value: bytes
    """The message, encoded."""

    @classmethod
    def pack(cls: type[_P], message: object) -> _P:
        """Packs a message.

        Raises:
            TypeError: it is no object of a class that ``nearcall stub`` has written.
        """
        full = vars(type(message)).get(FULL_NAME)
        if full is None:
            raise TypeError(f"{type(message).__name__} is no message of a module that nearcall stub has written")
        packed = cls()
        packed.type_url = f"{_PREFIX}{full}"
        packed.value = codec_by_itself(type(message), "binary").encode(message)
        return packed

    def holds(self, cls: type) -> bool:
        """Whether the message is of this class."""
        return self.type_url.rpartition("/")[2] == vars(cls).get(FULL_NAME)

    def unpack(self, cls: type[_T]) -> _T:
        """The message.

        Raises:
            TypeError: it is of another class, or the class is none that ``nearcall stub`` has written.
            ValueError: the bytes are no such message.
        """
        if not self.holds(cls):
            raise TypeError(
                f"this Any holds a {self.type_url.rpartition('/')[2] or 'message without a type'}, not {cls.__name__}"
            )
        found: _T = codec_by_itself(cls, "binary").decode(self.value, MOST_VALUES)
        return found
