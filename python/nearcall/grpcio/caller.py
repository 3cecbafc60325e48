"""What a servicer is told of who called, in threads and in event loops."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from .outcome import Outcome

__all__ = ["CallerOf"]


class CallerOf:
    """That part of a context; the call stands in ``_outcome``."""

    _outcome: Outcome

    def peer(self) -> str:
        """Who called: ``ipv4:127.0.0.1:4711``."""
        return self._outcome.peer

    def peer_identities(self) -> Iterable[bytes] | None:
        """The names in the client's certificate."""
        key = self.peer_identity_key()
        return None if key is None else self._outcome.identities()[key]

    def peer_identity_key(self) -> str | None:
        """Where in the certificate they stand."""
        return self._outcome.identity_key()

    def auth_context(self) -> Mapping[str, Any]:
        """What is known of the client from its certificate."""
        return self._outcome.identities()
