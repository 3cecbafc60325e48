"""A policy in plain English."""

from __future__ import annotations

from collections.abc import Iterator

from .applying import python_paths
from .confining import available
from .policy import Policy, check_policy

__all__ = ["explain"]


def explain(policy: Policy) -> str:
    """What a process may do under the policy, what it may not, and which layers this system has: text for a user.

    Raises:
        SandboxError: the layers cannot be tried out.
        TypeError: ``policy`` is no policy.
    """
    check_policy(policy)
    report = available()
    unasked = set(_not_asked(policy))
    lines = [
        "It may:",
        *(f"  - {line}" for line in _may(policy)),
        "It may not:",
        *(f"  - {line}" for line in _not(policy)),
    ]
    missing = [layer for layer in report.missing() if layer.name not in unasked]
    held = [layer.name for layer in report.layers if layer.state == "provided" and layer.name not in unasked]
    lines += ["This system gives these layers:", f"  {', '.join(held) or 'none'}"]
    if missing:
        lines.append("It does not give these:")
        for layer in missing:
            then = "and so it is not started" if layer.name in policy.required else "and it is started without"
            lines.append(f"  - {layer.name}: {layer.detail}; {then}")
    return "\n".join(lines)


def _may(policy: Policy) -> Iterator[str]:
    for verb, paths in (("read", policy.read), ("read and write", policy.write), ("start", policy.execute)):
        for path in paths:
            yield f"{verb} {path}"
    if policy.python:
        places = len(python_paths(network=policy.network not in ("none", ())))
        yield f"read what Python needs ({places} places: its library, its search path, shared libraries)"
    for name in policy.proc:
        yield f"read /proc/{name}"
    if policy.network == "all":
        yield "use TCP and UDP, in both directions"
    elif isinstance(policy.network, tuple) and policy.network:
        yield f"connect by TCP to port {', '.join(map(str, policy.network))} of any host"
    if policy.unix_sockets:
        yield "use Unix sockets" + (", also abstract ones of others" if policy.abstract_sockets else "")
    if policy.signals:
        yield "signal other processes of this user"
    if policy.subprocesses:
        yield "make processes"
    for limit, unit in (
        (policy.memory, "bytes of memory"),
        (policy.cpu_seconds, "seconds of processor time"),
        (policy.cpu_share, "processors at a time"),
        (policy.tasks, "threads and processes"),
        (policy.open_files, "open descriptors"),
        (policy.file_size, "bytes in one file"),
    ):
        yield f"use {'any number of' if limit is None else f'up to {limit:,}'} {unit}"
    yield f"see these environment variables: {', '.join(policy.environment) or 'none'}"


def _not(policy: Policy) -> Iterator[str]:
    yield "read or write any other file, or change the owner, the mode or the times of any"
    if policy.network in ("none", ()):
        yield "use a network"
    if not policy.unix_sockets:
        yield "connect to Unix sockets, such as those of the desktop"
    if not policy.signals:
        yield "signal other processes"
    yield "look into other processes"
    if not policy.execute:
        yield "start programs"
    if not policy.subprocesses:
        yield "make processes"


def _not_asked(policy: Policy) -> Iterator[str]:
    """Names of the layers that the policy does not ask for."""
    if policy.network == "all":
        yield "tcp"
    if policy.signals:
        yield "signals"
    if policy.abstract_sockets:
        yield "abstract_sockets"
    for limit, name in (
        (policy.memory, "cgroup_memory"),
        (policy.cpu_share, "cgroup_cpu"),
        (policy.tasks, "cgroup_tasks"),
    ):
        if limit is None:
            yield name
