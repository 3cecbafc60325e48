"""``Server.health``: what a server says of its health."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from .. import _core
from ..errors import InvalidArgument
from ..types.hints import short_repr

__all__ = ["HEALTH", "ServerHealth"]

HEALTH = "grpc.health.v1.Health"
"""The service that tells it (:mod:`nearcall.health`)."""


class ServerHealth:
    """What a server says of its health, as :attr:`nearcall.Server.health`.

    From the start each service serves, and so does the server as a whole, whose name is empty. When the server begins
    to stop, none of it serves any more. The names are independent of each other.

    Args:
        services: The names of its services.
    """

    def __init__(self, services: Sequence[str]) -> None:
        self._states = _core.Health(["", *services])

    def set(self, service: str, serving: bool) -> None:
        """Says from now on whether a service is to be given calls. Calls are answered all the same.

        Args:
            service: Its name; that of the server as a whole is empty. It may be one that is not served, such as
                ``"ready"``, which a probe asks for.
            serving: Whether it is.

        Raises:
            InvalidArgument: the name is no text, or ``serving`` no bool.
        """
        if not isinstance(cast(object, service), str) or not isinstance(cast(object, serving), bool):
            shown = f"{short_repr(service)} and {short_repr(serving)}"
            raise InvalidArgument(f"health.set() takes the name of a service and a bool, not {shown}")
        self._states.set(service, serving)
