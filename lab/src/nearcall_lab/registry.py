"""Finding adapters by entry point, and saying in one line why one cannot run here."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
from dataclasses import dataclass

from nearcall_lab.contract import Mechanism
from nearcall_lab.environments import manage as environments

GROUP = "nearcall_lab.adapters"


@dataclass(frozen=True)
class Entrant:
    """A mechanism and the module that runs it."""

    mechanism: Mechanism
    module: str
    problem: str = ""
    """Why it cannot run here; empty if it can be tried."""
    version: str = ""
    program: tuple[str, ...] = ()
    """What runs it instead of this Python: another environment's, or another language's (`foreign`)."""
    directory: str = ""
    """Where that program is started."""


def missing(mechanism: Mechanism) -> str:
    """The import names that are not installed, as a reason; empty when all are there."""
    if mechanism.environment:
        return environments.missing(mechanism.environment)
    absent = []
    for name in mechanism.requires:
        try:
            found = importlib.util.find_spec(name) is not None
        except (ImportError, ValueError):
            found = False
        if not found:
            absent.append(name)
    return f"not installed: {', '.join(absent)}" if absent else ""


def version_of(mechanism: Mechanism) -> str:
    """The installed version of a mechanism's distribution; empty for the standard library or when unknown."""
    if not mechanism.distribution:
        return ""
    if mechanism.environment:
        return environments.version_in(mechanism.environment, mechanism.distribution)
    try:
        return importlib.metadata.version(mechanism.distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def entrants_of(module_name: str) -> list[Entrant]:
    """The mechanisms of one adapter module, each with its reason if something it needs is missing."""
    module = importlib.import_module(module_name)
    mechanisms: tuple[Mechanism, ...] = module.MECHANISMS
    return [Entrant(m, module_name, missing(m), version_of(m), _program(m)) for m in mechanisms]


def _program(mechanism: Mechanism) -> tuple[str, ...]:
    """What runs a mechanism's workers, if not this Python."""
    python = environments.python_of(mechanism.environment) if mechanism.environment else None
    return (str(python), "-m", "nearcall_lab.workers") if python else ()


def discover() -> list[Entrant]:
    """Every adapter that is installed, in the order of its first row's name. A broken adapter becomes a failed row."""
    found: list[Entrant] = []
    names: dict[str, str] = {}
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: e.name):
        try:
            batch = entrants_of(entry.value)
        except Exception as error:  # an adapter of someone else's must not stop the run
            reason = f"adapter does not load: {type(error).__name__}: {error}"
            batch = [Entrant(Mechanism(entry.name, entry.name, "rpc"), entry.value, reason)]
        for entrant in batch:
            name = entrant.mechanism.name
            if name in names:
                raise ValueError(f"two adapters call a mechanism {name!r}: {names[name]} and {entrant.module}")
            names[name] = entrant.module
            found.append(entrant)
    return found
