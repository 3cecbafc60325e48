"""What a servicer's context tells of the caller, in threads and in event loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .outcome import Outcome

__all__ = ["CallerOf"]


class CallerOf:
    """The part of a context about the caller. The call is in ``_outcome``."""

    _outcome: Outcome

    def peer(self) -> str:
        """The caller's address: ``ipv4:127.0.0.1:4711``."""
        return self._outcome.peer

    def peer_identities(self) -> Iterable[bytes] | None:
        """The names in the client's certificate."""
        key = self.peer_identity_key()
        return None if key is None else self._outcome.identities()[key]

    def peer_identity_key(self) -> str | None:
        """The property of the certificate that has these names."""
        return self._outcome.identity_key()

    def auth_context(self) -> Mapping[str, Any]:
        """The properties of the client's certificate."""
        return self._outcome.identities()
