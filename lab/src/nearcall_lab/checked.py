"""Which mechanisms have passed ``nearcall-lab check``, at which version.

A pass is remembered under a digest of everything that could change what `check` would say: the adapter's source, the
version of its package, and the promises themselves. A mechanism that differs in one of them has not passed. Where a
package changes under the same version, as one does that is being developed, the change is not noticed. The record is
stored in the environment that the lab is installed in, like the environments of `environments.manage`, and is removed
together with it.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import os
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from nearcall_lab.registry import Entrant

FILE = Path(sys.prefix) / "nearcall-lab" / "checked.json"
"""Digest by mechanism."""
_PROMISES = Path(__file__).parent / "check" / "promises.py"


def remember(entrant: Entrant, passed: bool) -> None:
    """Store what `check` has found, in place of what it found before. Raises `OSError` where it cannot be written."""
    known = _read()
    known.pop(entrant.mechanism.name, None)
    if passed:
        known[entrant.mechanism.name] = digest(entrant)
    FILE.parent.mkdir(parents=True, exist_ok=True)
    fresh = FILE.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1))
    fresh.replace(FILE)


def has_passed(entrant: Entrant) -> bool:
    """Whether this mechanism, in its present state, has passed `check`."""
    return _read().get(entrant.mechanism.name) == digest(entrant)


def unchecked(entrants: Iterable[Entrant]) -> list[str]:
    """The names of those that have not passed, without those that cannot run here."""
    found = {e.mechanism.name: e for e in entrants if not e.problem}
    return [name for name, entrant in found.items() if not has_passed(entrant)]


def digest(entrant: Entrant) -> str:
    """SHA-256, in hexadecimal."""
    found = hashlib.sha256(f"{entrant.mechanism!r} {entrant.version} {entrant.program}".encode())
    for path in [_PROMISES, *_sources(entrant)]:
        with contextlib.suppress(OSError):
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _read() -> dict[str, str]:
    try:
        return msgspec.json.decode(FILE.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _sources(entrant: Entrant) -> list[Path]:
    """The adapter's files: a program's directory, or a module with what it imports from its own package."""
    if not entrant.module:
        return sorted(path for path in Path(entrant.directory).rglob("*") if path.is_file() and path.suffix != ".pyc")
    if entrant.module.endswith(".py"):
        return [Path(entrant.module)]
    found: dict[str, Path] = {}
    todo = [entrant.module]
    while todo:
        name = todo.pop()
        spec = importlib.util.find_spec(name)
        if name in found or spec is None or spec.origin is None:
            continue
        found[name] = Path(spec.origin)
        package = name.rpartition(".")[0]
        for node in ast.walk(ast.parse(found[name].read_bytes())):
            if isinstance(node, ast.ImportFrom) and package and node.module is not None:
                within = (
                    [f"{package}.{alias.name}" for alias in node.names] if node.module == package else [node.module]
                )
                todo += [each for each in within if each.startswith(f"{package}.")]
    return [found[name] for name in sorted(found)]
