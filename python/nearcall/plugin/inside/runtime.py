"""The service by which host and plugin talk about the plugin's life, besides extension points and services."""

from __future__ import annotations

import functools
from typing import Any, Protocol

import msgspec

from ...service.service import service

__all__ = ["ABOUT_VERSION", "About", "Greeting", "Runtime", "taking_service"]

ABOUT_VERSION = 1
"""The version of this protocol. Both sides must have the same."""


class About(msgspec.Struct, frozen=True):
    """What a plugin's process says of itself. The host believes none of it that it can check."""

    version: int
    python: str
    handlers: dict[str, int]
    """The extension points that it has handlers of, with their priorities."""
    offers: list[str]
    """The services that it lets the host call, by name."""
    uses: list[str]
    """The permissions whose services it would like to be handed."""
    layers: list[dict[str, str]]
    """The sandbox's layers: name, state and detail of each."""


class Greeting(msgspec.Struct, frozen=True):
    """What the host says when it has handed over what it grants."""

    host: str
    api: str
    refused: dict[str, str]
    """Permissions that the plugin does not have, and why."""


@service(name="nearcall.plugin.Runtime")
class Runtime(Protocol):
    """The life of a plugin's process, in the order of the calls."""

    def about(self) -> About:
        """What it has."""
        ...

    def start(self, greeting: Greeting) -> None:
        """Calls its entry function."""
        ...

    def running(self) -> int:
        """How many of its handlers run just now: also an answer to whether it answers."""
        ...

    def stop(self) -> None:
        """Lets it do what it wants to do at its end."""
        ...


@functools.cache
def taking_service(permission: str, taken: type) -> type[Any]:
    """The service by which a plugin is handed a service of the host: it has one method, ``take``.

    Args:
        permission: The permission's name.
        taken: The class of the service that is handed over.
    """

    def take(self: Any, service: Any) -> None: ...

    take.__annotations__ = {"service": taken, "return": None}
    take.__qualname__ = "take"
    cls = type("Taking", (), {"take": take, "__module__": __name__})
    return service(name=f"nearcall.permission.{permission}")(cls)
