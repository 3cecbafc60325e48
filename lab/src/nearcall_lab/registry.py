"""Finding adapters, and giving the reason in one line where one cannot run here.

Those in Python are found by entry point or in a file, those in other languages by an ``adapter.toml``: see
``docs/adapters.md``.
"""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import msgspec

from nearcall_lab.contract import Family, Mechanism, Operation, Transport
from nearcall_lab.environments import manage as environments
from nearcall_lab.modules import load
from nearcall_lab.programs import build as programs
from nearcall_lab.workloads import TYPED

GROUP = "nearcall_lab.adapters"
AT = "@"
"""Between the names of a client's mechanism and of its server's, in the name of a pair."""
PROGRAMS = "NEARCALL_LAB_ADAPTERS"
"""Environment variable with places, separated as in ``PATH``: a Python file, an adapter's directory, or a directory of
such directories."""


@dataclass(frozen=True)
class Entrant:
    """A mechanism and the module that runs it."""

    mechanism: Mechanism
    module: str
    problem: str = ""
    """Why it cannot run here; empty if it can be tried."""
    version: str = ""
    program: tuple[str, ...] = ()
    """The command that runs it in place of this Python: another environment's Python, or a program in another language
    (`foreign`).
    """
    directory: str = ""
    """Where that program is started."""
    source: str = ""
    """The directory of its source, for a program that comes with the lab."""
    sides: tuple[Entrant, Entrant] | None = None
    """Whose client calls whose server, where that is not one and the same: see `paired`."""


class AdapterError(ValueError):
    """Adapters cannot be used as they are; the message says which, and what to do."""


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
    return _installed(mechanism.distribution)


@functools.cache
def _installed(distribution: str) -> str:
    """Many mechanisms are of few distributions, and what says their version is long."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def entrants_of(module_name: str) -> list[Entrant]:
    """The mechanisms of one adapter module, each with its reason if something it needs is missing.

    `module_name` is an import name, or the path of a ``.py`` file.
    """
    loaded = load(module_name)
    if not hasattr(loaded, "MECHANISMS"):
        raise AdapterError(f"{module_name} says no MECHANISMS: write MECHANISMS = (Mechanism(name, label, family),)")
    mechanisms: tuple[Mechanism, ...] = loaded.MECHANISMS
    absent: Callable[[Mechanism], str] = getattr(loaded, "absent", lambda mechanism: "")
    return [Entrant(m, module_name, missing(m) or absent(m), version_of(m), _program(m)) for m in mechanisms]


def _program(mechanism: Mechanism) -> tuple[str, ...]:
    """The command that runs a mechanism's workers, if it is not this Python."""
    python = environments.python_of(mechanism.environment) if mechanism.environment else None
    return (str(python), "-m", "nearcall_lab.workers") if python else ()


def discover() -> list[Entrant]:
    """Every adapter that is installed or that `PROGRAMS` names. A broken adapter becomes a failed row."""
    found: list[Entrant] = []
    for entry in sorted(importlib.metadata.entry_points(group=GROUP), key=lambda e: e.name):
        found += _loaded(entry.value, entry.name)
    found += [_built(name) for name in programs.LANGUAGES]
    found += named_places()
    names: dict[str, str] = {}
    for entrant in found:
        name, origin = entrant.mechanism.name, entrant.module or entrant.directory
        if name in names:
            raise AdapterError(f"two adapters call a mechanism {name!r}: {names[name]} and {origin}")
        names[name] = origin
    return found


def paired(client: Entrant, server: Entrant) -> Entrant:
    """The client of one mechanism that calls the server of another; both speak the same protocol."""
    one, other = client.mechanism, server.mechanism
    mechanism = replace(
        one,
        name=f"{one.name}{AT}{other.name}",
        label=f"{one.label} → {other.label}",
        settings=f"client: {one.settings}; server: {other.settings}",
        typed=f"client: {one.typed}; server: {other.typed}",
        operations=tuple(each for each in TYPED if each in one.operations and each in other.operations),
        concurrent_calls=one.concurrent_calls and other.concurrent_calls,
        busy_polls=one.busy_polls or other.busy_polls,
    )
    return replace(client, mechanism=mechanism, problem=client.problem or server.problem, sides=(client, server))


def named(name: str, entrants: Sequence[Entrant]) -> Entrant | None:
    """The entrant of that name, which may be that of a pair; None if there is none."""
    by_name = {entrant.mechanism.name: entrant for entrant in entrants}
    client, at, server = name.partition(AT)
    if at and client in by_name and server in by_name:
        return paired(by_name[client], by_name[server])
    return by_name.get(name)


def stays_here(entrant: Entrant) -> str:
    """Why the server of a mechanism cannot run on another machine, worded to follow its name; empty where it can be
    tried.
    """
    mechanism = entrant.mechanism
    if entrant.sides is not None:
        return stays_here(entrant.sides[1])
    if mechanism.same_process:
        return "has its server in the client's process"
    if mechanism.transport and mechanism.transport != "TCP":
        return f"goes by {mechanism.transport}, which does not reach another machine"
    if entrant.program or not entrant.module:
        return "has a server that is built for this machine, and not copied to others"
    return ""


def _built(language: str) -> Entrant:
    """The mechanism of a program that comes with the lab."""
    source, directory = programs.source(language), environments.home(language)
    told = program_of(source / "adapter.toml", directory)
    return replace(told, problem=programs.missing(language) or told.problem, source=str(source))


def _loaded(module: str, name: str) -> list[Entrant]:
    """An adapter's mechanisms; one row with the reason where it does not load, which must not stop the others."""
    try:
        return entrants_of(module)
    except Exception as error:
        reason = f"adapter does not load: {type(error).__name__}: {error}"
        return [Entrant(Mechanism(name, name, "rpc"), module, reason)]


def named_places() -> list[Entrant]:
    """The adapters in the files and directories that `PROGRAMS` names."""
    found = []
    for place in filter(None, os.environ.get(PROGRAMS, "").split(os.pathsep)):
        try:
            found += at(place)
        except FileNotFoundError as error:
            raise AdapterError(f"{PROGRAMS} names {place!r}, but {error}") from None
    return found


def at(place: str) -> list[Entrant]:
    """The adapters of one place: a Python file, an ``adapter.toml``, a directory with one, or a directory of such.

    Raises `FileNotFoundError` if there is none; the message is worded to follow the word "but".
    """
    path = Path(place)
    if not path.exists():
        raise FileNotFoundError("there is no such file or directory")
    if path.suffix == ".py":
        return _loaded(str(path.absolute()), path.stem)
    if path.is_file():
        return [program_of(path)]
    files = sorted({*path.glob("adapter.toml"), *path.glob("*/adapter.toml")})
    if not files:
        raise FileNotFoundError("there is no adapter.toml in it or in a directory of it")
    return [program_of(file) for file in files]


class _Program(msgspec.Struct, forbid_unknown_fields=True):
    """The content of an ``adapter.toml``."""

    name: str
    label: str
    family: Family
    program: list[str]
    version: str = ""
    settings: str = "defaults"
    operations: tuple[Operation, ...] = ("echo",)
    concurrent_calls: bool = False
    transport: Transport | Literal[""] = ""
    empty_messages: bool = True
    tuned: bool = False
    why: str = ""
    busy_polls: bool = False
    typed: str = ""
    protocol: str = ""


def program_of(file: Path, place: Path | None = None) -> Entrant:
    """The entrant that an ``adapter.toml`` describes; a file that cannot be read becomes a failed row.

    The program is in `place`, by default where the file is.
    """
    directory = str((place or file.parent).absolute())
    try:
        told = msgspec.toml.decode(file.read_bytes(), type=_Program)
        if not told.program:
            raise msgspec.ValidationError("program is an empty list")
    except (OSError, ValueError) as error:
        name = file.parent.name
        return Entrant(Mechanism(name, name, "rpc"), "", problem=f"{file}: {error}", directory=directory)
    mechanism = Mechanism(
        told.name,
        told.label,
        told.family,
        settings=told.settings,
        operations=told.operations,
        concurrent_calls=told.concurrent_calls,
        transport=told.transport,
        empty_messages=told.empty_messages,
        tuned=told.tuned,
        why=told.why,
        busy_polls=told.busy_polls,
        typed=told.typed or ("its own" if "quote" in told.operations else ""),
        protocol=told.protocol,
    )
    found = shutil.which(told.program[0], path=os.pathsep.join((directory, os.environ.get("PATH", os.defpath))))
    problem = "" if found else f"{file}: there is no program {told.program[0]!r}"
    program = (found or told.program[0], *told.program[1:])
    return Entrant(mechanism, "", problem, told.version, program, directory)
