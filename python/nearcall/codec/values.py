"""Codecs of users: two functions, from a value to bytes and back."""

from __future__ import annotations

from typing import Any, Protocol

__all__ = ["ValueCodec"]


class ValueCodec(Protocol):
    """A codec of your own. Clients ask for it with ``codec=``, servers offer it with ``codecs=``, at nearcall's URLs.

    Any number of threads call its functions at once. What they raise fails the call, on either side.
    """

    @property
    def name(self) -> str:
        """The name on which both sides agree."""
        ...

    def encode(self, value: Any, /) -> bytes:
        """The bytes of a value.

        Args:
            value: A result, an item of a stream, or the arguments of a call as a dict by name.
        """
        ...

    def decode(self, data: bytes, type: Any, /) -> Any:
        """The value of some bytes, which may come from a peer that means harm.

        Args:
            data: The bytes.
            type: The type that the value must have, as ``msgspec.convert`` takes it. That of arguments is a
                ``msgspec.Struct`` with a field for each.
        """
        ...
