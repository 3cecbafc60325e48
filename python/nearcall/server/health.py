"""``Server.health``: the state that a server tells health checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from ..errors import InvalidArgument
from ..types.hints import short_repr

__all__ = ["HEALTH", "ServerHealth"]

HEALTH = "grpc.health.v1.Health"
"""The service that answers health checks (:mod:`nearcall.health`)."""


LONGEST_NAME = 1000
"""Characters of a service's name."""


class ServerHealth:
    """What a server tells health checks; :attr:`nearcall.Server.health` and :attr:`nearcall.Workers.health`.

    From the start each service serves, and so does the server as a whole, whose name is empty. When the server begins
    to stop, none of it serves any more. The names are independent of each other. All workers of one server say the
    same, whichever of them was told.

    Args:
        change: Sets the state of a name.
    """

    def __init__(self, change: Callable[[str, bool], object]) -> None:
        self._change = change

    def set(self, service: str, serving: bool) -> None:
        """Sets what health checks are told: whether clients should call a service. Calls are answered all the same.

        Args:
            service: Its name; that of the server as a whole is empty. It may be one that is not served, such as
                ``"ready"``, which a probe asks for.
            serving: Whether it is.

        Raises:
            InvalidArgument: the name is no text, or longer than 1000 characters, or ``serving`` no bool.
        """
        if not isinstance(cast(object, service), str) or not isinstance(cast(object, serving), bool):
            shown = f"{short_repr(service)} and {short_repr(serving)}"
            raise InvalidArgument(f"health.set() takes the name of a service and a bool, not {shown}")
        if len(service) > LONGEST_NAME:
            raise InvalidArgument(f"health.set() takes a name of at most {LONGEST_NAME} characters, not {len(service)}")
        self._change(service, serving)
