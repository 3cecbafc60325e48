"""The service by which a directory is reached."""

from __future__ import annotations

from collections.abc import AsyncIterator

from ..service.service import idempotent, service
from .entries import Entry, Found

__all__ = ["Directory"]


@service(name="nearcall.Directory", errors=())
class Directory:
    """What a directory serves. Its class is for both sides."""

    def register(self, entry: Entry, exclusive: bool = False) -> AsyncIterator[Entry]:
        """Enters a server, until the stream ends: so nothing is left of one that has died.

        Args:
            entry: The server. If its URL names all of its machine's addresses, as ``tcp://0.0.0.0:7000`` does, the one
                that the caller is seen at takes their place.
            exclusive: Nobody else may have the name, at another URL.

        Returns:
            A stream that gives the entry as others see it, once, and then lasts.

        Raises:
            AlreadyExists: another server has the name, and one of the two wants it for itself.
            InvalidArgument: the entry is too long, or others cannot use its URL.
            PermissionDenied: the caller may not register this.
            ResourceExhausted: the directory is full.
        """
        raise NotImplementedError

    @idempotent
    def lookup(self, name: str = "", metadata: dict[str, str] = {}) -> Found:  # noqa: B006 - not changed
        """The servers of a name, or of any name if it is empty, that have this metadata besides other."""
        raise NotImplementedError
