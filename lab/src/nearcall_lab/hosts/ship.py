"""What a server needs on another machine: the lab's own files, those of the adapters, and their requirements."""

from __future__ import annotations

import gzip
import hashlib
import importlib.metadata
import importlib.util
import io
import tarfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import nearcall_lab
from nearcall_lab.registry import Entrant

ADAPTERS = "adapters-of-the-run"
"""Folder with those adapters that are files."""
_WORKERS_NEED = ("hdrhistogram", "msgspec", "numpy", "psutil")
"""Distributions that the agent and the server's process import, in the lab's own versions."""
_LEFT_OUT = ("__pycache__", "target", "node_modules")


@dataclass(frozen=True)
class Cargo:
    """Files and requirements, with what distinguishes them from others."""

    files: bytes
    """A tar archive, compressed."""
    requirements: tuple[str, ...]

    def digest(self, python: str) -> str:
        """Names the place where they are kept there, for one Python."""
        text = "\n".join((python, *self.requirements)).encode()
        return hashlib.sha256(text + hashlib.sha256(self.files).digest()).hexdigest()[:16]


def module_there(entrant: Entrant, source: str) -> str:
    """How the agent finds an adapter: by its import name, or as a file."""
    file = _file_of(entrant)
    return f"{source}/{ADAPTERS}/{file.name}" if file else entrant.module


def _file_of(entrant: Entrant) -> Path | None:
    """The file of an adapter that is no part of the lab."""
    if entrant.module.endswith(".py"):
        return Path(entrant.module)
    if entrant.module.partition(".")[0] == __package__.partition(".")[0]:
        return None
    found = importlib.util.find_spec(entrant.module)
    return Path(found.origin) if found and found.origin else None


def cargo_for(entrants: Sequence[Entrant]) -> Cargo:
    """All that the servers of these mechanisms need."""
    servers = [entrant.sides[1] if entrant.sides else entrant for entrant in entrants]
    needs = {name: _version(name) for name in _WORKERS_NEED}
    packages = [Path(nearcall_lab.__file__).parent]
    for name in sorted({name for entrant in servers for name in entrant.mechanism.requires}):
        if name.partition(".")[0] == "nearcall":
            found = importlib.util.find_spec("nearcall")
            if found and found.origin:
                packages.append(Path(found.origin).parent)
            continue
        for distribution in _distributions_of(name):
            needs[distribution] = _version(distribution)
    files = sorted({file for entrant in servers if (file := _file_of(entrant))})
    requirements = tuple(f"{name}=={version}" for name, version in sorted(needs.items()))
    return Cargo(_archive(packages, files), requirements)


def _version(distribution: str) -> str:
    return importlib.metadata.version(distribution)


@cache
def _packages() -> dict[str, list[str]]:
    return dict(importlib.metadata.packages_distributions())


def _distributions_of(name: str) -> list[str]:
    """The distributions with the module of that import name."""
    candidates = sorted(set(_packages().get(name.partition(".")[0], [])))
    if "." not in name:
        return candidates
    inside = name.replace(".", "/") + "/"
    return [d for d in candidates if any(str(f).startswith(inside) for f in importlib.metadata.files(d) or ())]


def _archive(packages: Iterable[Path], files: Iterable[Path]) -> bytes:
    """The same bytes for the same content."""

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        if any(part in _LEFT_OUT for part in Path(member.name).parts):
            return None
        member.mtime, member.uid, member.gid, member.uname, member.gname = 0, 0, 0, "", ""
        return member

    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for package in sorted(packages):
            for path in sorted(package.rglob("*")):
                if path.is_file():
                    archive.add(path, f"{package.name}/{path.relative_to(package)}", filter=plain)
        for file in files:
            archive.add(file, f"{ADAPTERS}/{file.name}", filter=plain)
    return gzip.compress(whole.getvalue(), compresslevel=1, mtime=0)
