"""The seam to :mod:`nearcall.sandbox`: from what a plugin was granted to a policy, and what becomes of a missing layer.

Nothing else of the plugin host knows the sandbox. A build without it says so in the place of its layers.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from typing import Any, cast

from .manifest import Permission

__all__ = ["Missing", "available", "confine", "explain", "policy_for", "violation"]

_WHY = "this build of nearcall has no nearcall.sandbox"


class Missing(RuntimeError):
    """The sandbox, or a layer that is required, is not there."""


def _sandbox() -> Any:
    try:
        return importlib.import_module("nearcall.sandbox")
    except ModuleNotFoundError:
        return None


def policy_for(
    directory: str, paths: Iterable[str], granted: Iterable[Permission], memory: int | None
) -> dict[str, Any]:
    """The sandbox's policy for a plugin, as data. Whatever was not granted is left out.

    Args:
        directory: Its own, which it may read.
        paths: What else it imports from.
        granted: The permissions that it has.
        memory: Bytes that it may take; ``None``: no limit.
    """
    read, write, execute = [directory, *paths], list[str](), list[str]()
    policy: dict[str, Any] = {"memory": memory}
    for permission in granted:
        read += permission.read
        write += permission.write
        execute += permission.run
        if permission.name == "network":
            policy["network"] = permission.ports or "all"
        if permission.name == "programs":
            policy["subprocesses"] = True
            read += permission.run
    return {**policy, "read": tuple(read), "write": tuple(write), "execute": tuple(execute)}


def confine(policy: dict[str, Any], missing: str) -> list[dict[str, str]]:
    """Confines this process for ever; its layers as data.

    Args:
        policy: From :func:`policy_for`.
        missing: ``"refuse"``: a required layer that is missing is an error; ``"tell"``: it is told.

    Raises:
        Missing: the sandbox is not there, or a layer of it, and that is to be refused.
    """
    sandbox = _sandbox()
    if sandbox is None:
        if missing == "refuse":
            raise Missing(_WHY)
        return [{"name": "sandbox", "state": "not_available", "detail": _WHY}]
    given = {
        name: tuple(cast("list[object]", value)) if isinstance(value, list) else value for name, value in policy.items()
    }
    if missing == "tell":
        given["required"] = ()
    try:
        report = sandbox.confine(sandbox.Policy(**given))
    except sandbox.SandboxError as error:
        raise Missing(str(error)) from error
    return _as_data(report)


def available() -> list[dict[str, str]]:
    """The layers that this machine has, as data."""
    sandbox = _sandbox()
    if sandbox is None:
        return [{"name": "sandbox", "state": "not_available", "detail": _WHY}]
    return _as_data(sandbox.available())


def explain(policy: dict[str, Any]) -> str:
    """What a plugin with that policy may do, and which layers see to it."""
    sandbox = _sandbox()
    if sandbox is None:
        return f"It may do whatever its user may: {_WHY}."
    return str(sandbox.explain(sandbox.Policy(**policy)))


def violation(status: int | None, output: str) -> str | None:
    """What the sandbox has refused or ended a process for, from its exit status and its last lines."""
    sandbox = _sandbox()
    found = None if sandbox is None else sandbox.violation(status, output)
    return None if found is None else str(found)


def _as_data(report: Any) -> list[dict[str, str]]:
    return [{"name": each.name, "state": each.state, "detail": each.detail} for each in report.layers]
