"""What a plugin may use of its host: the manifest asks, the host's policy and its user answer, and a gate enforces the
answer.

A plugin never gets a service itself but a gate: an object of the same class, for this plugin only, that the host can
close at any time. A service that the manifest does not ask for is never handed over.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Protocol, cast

from ...errors import PermissionDenied
from ...service.service import plan_of
from ...types.declared import declared
from ...types.special import attribute
from ..manifests.manifest import SYSTEM, Manifest, Permission
from .calls import Calls

__all__ = ["Answer", "Ask", "Gate", "GateMaker", "Policy", "check_policy", "interface_of"]

Answer = Literal["grant", "deny", "ask"]
"""A host's policy about one permission."""
Policy = Mapping[str, Answer]


class Ask(Protocol):
    """Asks the user whether a plugin may have a permission. It is called in a thread of the plugin's start."""

    def __call__(self, manifest: Manifest, permission: Permission, /) -> bool: ...  # noqa: D102


def check_policy(policy: Policy, services: Mapping[str, object]) -> dict[str, Answer]:
    """The policy with an answer for each permission. Unless the host says otherwise, services are granted to plugins
    that ask for them, and the user is asked about permissions that concern the system, but not about ``storage``, which
    has a limit.

    Raises:
        TypeError: an object in ``services`` is no service.
        ValueError: the policy names an unknown permission, or a value is no answer.
    """
    for name, service in services.items():
        plan_of(type(service))
        if name in SYSTEM:
            raise ValueError(f"services: '{name}' is a permission that concerns the system; name the service otherwise")
    whole: dict[str, Answer] = {**dict.fromkeys(services, "grant"), **dict.fromkeys(SYSTEM, "ask"), "storage": "grant"}
    for name, answer in policy.items():
        if name not in whole:
            raise ValueError(f"policy: there is no permission '{name}'; there are {', '.join(whole)}")
        if answer not in ("grant", "deny", "ask"):
            raise ValueError(f"policy: '{name}' must be 'grant', 'deny' or 'ask', not {answer!r}")
    return {**whole, **policy}


class Gate:
    """Lets the calls of one plugin through to one service, for as long as the permission lasts.

    Args:
        plugin: The plugin's id, for messages.
        permission: The permission's name.
        calls: The calls of the plugin that are under way.
    """

    def __init__(self, plugin: str, permission: str, calls: Calls) -> None:
        self._plugin = plugin
        self._permission = permission
        self._calls = calls
        self.closed: str | None = None
        """Why calls are refused; ``None`` if they are not."""

    def check(self) -> None:
        """Raises an error if the permission was revoked.

        Raises:
            PermissionDenied: it was revoked.
        """
        if self.closed is not None:
            details = {"permission": self._permission, "plugin": self._plugin}
            raise PermissionDenied(f"the permission '{self._permission}' {self.closed}", details=details)

    def enter(self) -> int:
        """Begins a call, and returns its number.

        Raises:
            PermissionDenied: the permission was revoked.
            ResourceExhausted: too many calls of the plugin are under way.
        """
        self.check()
        return self._calls.enter()

    def leave(self, number: int) -> None:
        """Ends a call."""
        self._calls.leave(number)


class GateMaker:
    """Makes objects that pass calls on to one service, each through a gate of its own.

    Args:
        service: The service.
    """

    def __init__(self, service: object) -> None:
        self._service = service
        plan_of(type(service))
        self.interface = interface_of(service)
        names = [attribute(type(service), method.name) for method in plan_of(self.interface).methods]
        body: dict[str, Any] = {name: _gated(getattr(type(service), name), name) for name in names}
        for name in {"close", "aclose"} - set(names):
            body[name] = None  # the end of a gate must not end the service
        body["__init__"] = _remember
        body["__del__"] = _nothing
        body["__doc__"] = None
        self._cls = type(self.interface.__name__, (self.interface,), body)

    def make(self, gate: Gate) -> object:
        """The service behind a gate."""
        return cast("Any", self._cls)(gate, self._service)


def interface_of(service: object) -> type:
    """The class by which a service is declared: the last one that was decorated."""
    return next(cls for cls in type(service).__mro__ if cls in declared)


def _remember(self: Any, gate: Gate, service: object) -> None:
    self._nearcall_gate, self._nearcall_service = gate, service


def _nothing(_self: object) -> None:
    """A gate's finalizer: that of the service must not run for its gates."""


def _gated(function: Any, name: str) -> Callable[..., Any]:
    """A method with the signature of a service's method, which passes calls on if the gate allows."""
    if inspect.iscoroutinefunction(function):

        async def once_async(self: Any, *args: Any, **kwargs: Any) -> Any:
            gate: Gate = self._nearcall_gate
            number = gate.enter()
            try:
                return await getattr(self._nearcall_service, name)(*args, **kwargs)
            finally:
                gate.leave(number)

        return functools.wraps(function)(once_async)

    def once(self: Any, *args: Any, **kwargs: Any) -> Any:
        gate: Gate = self._nearcall_gate
        number = gate.enter()
        try:
            result = getattr(self._nearcall_service, name)(*args, **kwargs)
            if hasattr(result, "__anext__"):
                items = _async_items(gate, number, result)
            elif hasattr(result, "__next__"):
                items = _items(gate, number, result)
            elif inspect.isawaitable(result):
                items = _awaited(gate, number, result)
            else:
                return result
            number = -1  # the iterator or awaitable that is returned ends the call
            return items
        finally:
            gate.leave(number)

    return functools.wraps(function)(once)


def _items(gate: Gate, number: int, items: Iterator[Any]) -> Iterator[Any]:
    try:
        for item in items:
            gate.check()
            yield item
    finally:
        gate.leave(number)
        if hasattr(items, "close"):
            cast("Any", items).close()


async def _async_items(gate: Gate, number: int, items: Any) -> Any:
    try:
        async for item in items:
            gate.check()
            yield item
    finally:
        gate.leave(number)
        if hasattr(items, "aclose"):
            await items.aclose()


async def _awaited(gate: Gate, number: int, result: Any) -> Any:
    try:
        return await result
    finally:
        gate.leave(number)
