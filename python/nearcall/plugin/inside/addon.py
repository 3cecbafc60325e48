"""The functions that a plugin calls: to use services of the host that it was granted, and to offer its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

from ...errors import PermissionDenied
from ...service.service import plan_of
from .registry import registry
from .runtime import taking_service

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["Granted", "granted", "offer", "on_stop", "storage", "use"]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[[], object])


class Granted:
    """A service of the host, as the plugin sees it: once it is granted, the attributes of this object are the service's
    methods.

    Args:
        permission: The name under which the manifest asks for it.
        service: Its class.
    """

    def __init__(self, permission: str, service: type) -> None:
        # No service method can have these names: they begin with an underscore.
        self._nearcall_permission = permission
        self._nearcall_target: Any = None
        self._nearcall_reason = (
            "cannot be used yet, as the host has not connected: use it in the entry function, or in a handler"
        )
        self._nearcall_taking = _taker(self, permission, service)

    def __getattr__(self, name: str) -> Any:
        if self._nearcall_target is None:
            permission = self._nearcall_permission
            details = {"permission": permission}
            raise PermissionDenied(f"the permission '{permission}' {self._nearcall_reason}", details=details)
        return getattr(self._nearcall_target, name)

    def __repr__(self) -> str:
        state = "missing" if self._nearcall_target is None else "granted"
        return f"<{state} permission {self._nearcall_permission}>"


def _taker(granted: Granted, permission: str, service: type) -> object:
    """The object by which the host hands the service over."""
    interface = taking_service(permission, service)

    def take(self: Any, service: Any) -> None:
        granted._nearcall_target = service

    take.__annotations__ = {}  # so that the interface's annotations are used
    return type(interface.__name__, (interface,), {"take": take})()


def use(permission: str, service: Callable[..., T]) -> T:
    """A service of the host, for a plugin to call. Write it at the top of a module::

        speech = nearcall.plugin.use("speech", Speech)

    The entry function and handlers may call it. Without the permission every call raises
    :class:`~nearcall.PermissionDenied`, which says why; so does every call after the host has revoked the permission.

    Args:
        permission: The name under which the manifest asks for it.
        service: The service's class or interface.

    Raises:
        TypeError: the class is no service.
        ValueError: another class is used with this permission already.
        RuntimeError: the plugin is imported already, and this permission is new.
    """
    cls = cast("type", service)
    plan_of(cls)
    if permission in registry.used:
        known, found = registry.used[permission]
        if known is not cls:
            raise ValueError(f"the permission '{permission}' is used with {known.__name__} already")
    else:
        registry.check_open(f"plugin.use('{permission}', {cls.__name__})")
        found = Granted(permission, cls)
        registry.used[permission] = cls, found
    return cast("T", found)


def granted(service: object) -> bool:
    """Whether the host has granted a service that :func:`use` returned. It may have been revoked since.

    Raises:
        TypeError: ``service`` is not from :func:`use`.
    """
    if not isinstance(service, Granted):
        raise TypeError(f"{service!r} is not from nearcall.plugin.use")
    return service._nearcall_target is not None


def offer(service: object) -> None:
    """Lets the host call an object of a service class. Call it while the plugin is imported.

    Raises:
        TypeError: the object's class is no service.
        RuntimeError: the plugin is imported already.
    """
    if isinstance(service, type):
        raise TypeError(f"plugin.offer() takes an object, not the class: write plugin.offer({service.__name__}())")
    plan_of(type(service))
    registry.check_open(f"plugin.offer({type(service).__name__})")
    registry.offered.append(service)


def storage() -> Path:
    """The directory in which this plugin may keep files, also from one start to the next. The host's option ``disk``
    limits their total size: a plugin that keeps more is stopped.

    Raises:
        PermissionDenied: there is no directory: ``plugin.toml`` does not ask for ``storage``, or the host does not
            grant it.
    """
    if not registry.storage:
        why = registry.no_storage or "there is no host"
        raise PermissionDenied(f"the permission 'storage' is missing: {why}", details={"permission": "storage"})
    from pathlib import Path  # importing it takes as long as a plugin's own modules, and few plugins need it

    return Path(registry.storage)


def on_stop(function: F) -> F:
    """Registers a function without arguments that is called when the host stops the plugin. It has the host's
    ``grace``, in seconds, to end.
    """
    registry.at_end.append(function)
    return function
