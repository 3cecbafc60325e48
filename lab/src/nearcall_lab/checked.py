"""Which mechanisms have passed ``nearcall-lab check``, at which version.

A pass is remembered under a digest of everything that could change what `check` would say: the adapter's source, the
version of its package, and the promises themselves. A mechanism that differs in one of them has not passed. Where a
package changes under the same version, as one does that is being developed, the change is not noticed. The record is
stored in the environment that the lab is installed in, like the environments of `environments.manage`, and is removed
together with it.

The lab's own adapters have passed before the lab is published. That record is a file beside this one, which
``nearcall-lab check --ship`` writes; there the version of the adapter's package does not count, which is its user's
choice, and what counts is what the adapter imports from the lab.
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

from nearcall_lab.programs.build import PROTO
from nearcall_lab.registry import Entrant

FILE = Path(sys.prefix) / "nearcall-lab" / "checked.json"
"""Digest by mechanism."""
SHIPPED = Path(__file__).parent / "passed.json"
"""Digest by mechanism, of the lab's own adapters."""
_PROMISES = Path(__file__).parent / "check" / "promises.py"
_LAB = __package__
_FAILED = "failed "


def remember(entrant: Entrant, passed: bool) -> None:
    """Store what `check` has found, in place of what it found before. Raises `OSError` where it cannot be written."""
    known = _read(FILE)
    known[entrant.mechanism.name] = digest(entrant) if passed else _FAILED + digest(entrant)
    _write(FILE, known)


def ship(entrant: Entrant, passed: bool) -> None:
    """Store what `check` has found of one of the lab's own adapters, for all who have the same. Raises `OSError`."""
    known = _read(SHIPPED)
    known.pop(entrant.mechanism.name, None)
    if passed:
        known[entrant.mechanism.name] = source_digest(entrant)
    _write(SHIPPED, dict(sorted(known.items())))


def ships(entrant: Entrant) -> bool:
    """Whether the adapter is one of the lab's own."""
    return bool(entrant.source) or entrant.module.startswith(f"{_LAB}.")


def has_passed(entrant: Entrant) -> bool:
    """Whether this mechanism, in its present state, has passed `check`."""
    if entrant.sides:
        return all(map(has_passed, entrant.sides))
    found, now = _read(FILE).get(entrant.mechanism.name), digest(entrant)
    if found in (now, _FAILED + now):
        return found == now
    return ships(entrant) and _read(SHIPPED).get(entrant.mechanism.name) == source_digest(entrant)


def unchecked(entrants: Iterable[Entrant]) -> list[str]:
    """The names of those that have not passed, without those that cannot run here."""
    sides = (side for e in entrants if not e.problem for side in e.sides or (e,))
    found = {side.mechanism.name: side for side in sides}
    return [name for name, entrant in found.items() if not has_passed(entrant)]


def digest(entrant: Entrant) -> str:
    """SHA-256, in hexadecimal."""
    return _digest(entrant, f"{entrant.mechanism!r} {entrant.version} {entrant.program}")


def source_digest(entrant: Entrant) -> str:
    """The same without what depends on where the adapter is installed."""
    return _digest(entrant, repr(entrant.mechanism))


def _digest(entrant: Entrant, description: str) -> str:
    found = hashlib.sha256(description.encode())
    for path in [_PROMISES, *_sources(entrant)]:
        with contextlib.suppress(OSError):
            found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _read(file: Path) -> dict[str, str]:
    try:
        return msgspec.json.decode(file.read_bytes(), type=dict[str, str])
    except (OSError, msgspec.DecodeError):
        return {}


def _write(file: Path, known: dict[str, str]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_bytes(msgspec.json.format(msgspec.json.encode(known), indent=1) + b"\n")
    fresh.replace(file)


def _sources(entrant: Entrant) -> list[Path]:
    """The adapter's files: a program's directory, or a module with what it imports from its own package and the lab."""
    if entrant.source:
        return [PROTO, *sorted(path for path in Path(entrant.source).rglob("*") if path.is_file())]
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
        own = tuple(f"{each}." for each in (package, _LAB) if each)
        for node in ast.walk(ast.parse(found[name].read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module is not None:
                within = (
                    [f"{package}.{alias.name}" for alias in node.names] if node.module == package else [node.module]
                )
                todo += [each for each in within if each.startswith(own)]
    return [found[name] for name in sorted(found)]
