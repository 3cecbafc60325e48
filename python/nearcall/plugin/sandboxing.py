"""The seam to :mod:`nearcall.sandbox`: from what a plugin was granted to a policy, and what becomes of a missing layer.

Nothing else of the plugin host knows the sandbox.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .. import sandbox
from ..sandbox.policy import plain

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
        directory: Its own, which it may read.
        paths: What else it imports from.
        granted: The permissions that it has.
        memory: Bytes that it may take; ``None``: no limit.
        cpu_share: Of one processor that it may take; ``None``: no limit.
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
    """The policy as the plugin's process gets it, to confine itself by.

    Args:
        policy: From :func:`policy_for`.
        required: A layer that is missing and has to be there is an error there; otherwise it is told.

    Raises:
        SandboxError, TypeError: there is no such policy.
    """
    return plain(sandbox.Policy(**policy) if required else sandbox.Policy(**policy, required=()))


def explain(policy: dict[str, Any]) -> str:
    """What a plugin with that policy may do, and which layers see to it. What is missing is said to be done without, as
    hosts do unless they say otherwise.

    Raises:
        SandboxError: it cannot be found out which layers there are.
    """
    return sandbox.explain(sandbox.Policy(**policy, required=()))


def required() -> tuple[str, ...]:
    """The layers without which a plugin is not started, where the host says ``sandbox="required"``."""
    return sandbox.Policy().required


def violation(status: int, output: str) -> str | None:
    """What the sandbox has refused or ended a process for, from its exit status and its last lines."""
    return sandbox.violation(status, output)
