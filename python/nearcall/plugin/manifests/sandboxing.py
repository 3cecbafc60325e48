"""The seam to :mod:`nearcall.sandbox`: makes a policy of a plugin's permissions, and decides about missing layers.

No other module of the plugin host uses the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ... import sandbox
from ...sandbox.policy import plain

if TYPE_CHECKING:
    from .manifest import Permission

__all__ = ["explain", "plain_policy", "policy_for", "required", "violation"]


_FILE_SIZE = 1 << 30
"""Bytes of one file that a plugin writes."""


def policy_for(
    directory: str,
    paths: Iterable[str],
    granted: Iterable[Permission],
    memory: int | None,
    cpu_share: float | None = None,
) -> dict[str, Any]:
    """The sandbox's policy for a plugin, as data. Whatever was not granted is left out.

    Args:
        directory: The plugin's own directory, which it may read.
        paths: Other directories that it imports from.
        granted: The permissions that it has.
        memory: Bytes that it may take; ``None``: no limit.
        cpu_share: Processors that it may take; ``None``: no limit.
    """
    read, write, execute = [directory, *paths], list[str](), list[str]()
    policy: dict[str, Any] = {"memory": memory, "cpu_share": cpu_share, "file_size": _FILE_SIZE}
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


def plain_policy(policy: dict[str, Any], *, required: bool) -> dict[str, Any]:
    """The policy in the form that the plugin's process gets, to confine itself.

    Args:
        policy: From :func:`policy_for`.
        required: Whether a missing layer that the policy requires is an error in that process; otherwise the process
            only reports it.

    Raises:
        SandboxError, TypeError: the values make no policy.
    """
    return plain(sandbox.Policy(**policy) if required else sandbox.Policy(**policy, required=()))


def explain(policy: dict[str, Any]) -> str:
    """What a plugin with that policy may do, and which layers enforce it. Missing layers are listed as done without,
    which is what hosts do by default.

    Raises:
        SandboxError: the layers cannot be tried out.
    """
    return sandbox.explain(sandbox.Policy(**policy, required=()))


def required() -> tuple[str, ...]:
    """The layers without which a host with ``sandbox="required"`` does not start a plugin."""
    return sandbox.Policy().required


def violation(status: int, output: str) -> str | None:
    """What the sandbox has refused a process, or killed it for, by its exit status and its last lines."""
    return sandbox.violation(status, output)
