"""Explains to the user what a plugin may do."""

from __future__ import annotations

from collections.abc import Iterator

from ...types.shown import shown
from . import sandboxing
from .manifest import Manifest, Permission

__all__ = ["explain"]


def explain(manifest: Manifest) -> str:
    """What a plugin may do if it is granted all it asks for, and how this machine keeps it from the rest.

    Args:
        manifest: The plugin's manifest.

    Raises:
        SandboxError: the sandbox of this machine cannot be tried out.
    """
    return "\n".join(shown(line) for line in _lines(manifest))


def _lines(manifest: Manifest) -> Iterator[str]:
    yield f"{manifest.name} {manifest.version} ({manifest.id}) by {manifest.author}: {manifest.summary}"
    yield f"It runs {manifest.entry} from {manifest.directory}, for a host with the interface {manifest.api}."
    yield ""
    if not manifest.permissions:
        yield "It asks for nothing: it can answer the host's questions, and no more."
    for permission in manifest.permissions:
        yield f"It asks for {_what(permission)}. It says why: {permission.why}"
    yield ""
    policy = sandboxing.policy_for(str(manifest.directory.resolve()), (), manifest.permissions, 1 << 30)
    yield from sandboxing.explain(policy).splitlines()
    yield ""
    yield "A host starts it without what the system does not give, and tells of that, unless it has sandbox='required':"
    yield f"then it is not started without {', '.join(sandboxing.required())}."


def _what(permission: Permission) -> str:
    if permission.name == "files":
        read, write = ", ".join(permission.read), ", ".join(permission.write)
        return "files" + (f" to read ({read})" if read else "") + (f" to write ({write})" if write else "")
    if permission.name == "network":
        ports = ", ".join(map(str, permission.ports))
        return f"the network ({f'TCP connections to ports {ports}' if ports else 'all of it'})"
    if permission.name == "programs":
        return f"programs ({', '.join(permission.run)})"
    if permission.name == "interpreter":
        return "an interpreter of its own, which runs before it is confined"
    if permission.name == "storage":
        return "a directory of its own to keep files in, as large as the host says"
    return f"the host's service '{permission.name}'"
