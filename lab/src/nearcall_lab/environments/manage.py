"""Making and finding the environments. They are inside the lab's own environment, and are removed together with it."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import venv
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path

import msgspec

import nearcall_lab

_WORKERS_NEED = ("hdrhistogram", "msgspec", "numpy", "psutil")
"""Distributions that `nearcall_lab.workers` imports, in the lab's own versions."""

_PACKAGES = "lib/python*/site-packages"
_LINK = "nearcall_lab.pth"


@dataclass(frozen=True)
class Definition:
    """One table of ``definitions.toml``."""

    why: str
    requirements: tuple[str, ...]


class InstallFailed(Exception):
    """An environment could not be made; the message is the last line of the installer's output."""


@cache
def definitions() -> dict[str, Definition]:
    """Every environment by name."""
    text = (resources.files(__package__) / "definitions.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, Definition])


def home(name: str) -> Path:
    """Where an environment is, or will be."""
    return Path(sys.prefix) / "nearcall-lab" / name


def python_of(name: str) -> Path | None:
    """The environment's Python; None if it is not installed completely, or was made for a lab in another place."""
    directory = home(name)
    complete = any(link.read_text() == _here() for link in directory.glob(f"{_PACKAGES}/{_LINK}"))
    return directory / "bin" / "python" if complete else None


def missing(name: str) -> str:
    """Why nothing can run in this environment, in one line; empty if it can."""
    if name not in definitions():
        return f"no environment is called {name!r}; there are: {', '.join(definitions())}"
    return "" if python_of(name) else f"in an environment of its own: nearcall-lab install {name}"


def version_in(name: str, distribution: str) -> str:
    """A distribution's version in an environment; empty if it is not there."""
    directories = [str(path) for path in home(name).glob(_PACKAGES)]
    found = next(iter(importlib.metadata.distributions(name=distribution, path=directories)), None)
    return found.version if found is not None else ""


def install(name: str) -> Path:
    """Makes an environment, or makes it anew, and returns its Python. Takes a minute.

    Raises `InstallFailed` when it cannot be made, and `KeyError` for an unknown name.
    """
    definition = definitions()[name]
    directory = home(name)
    venv.create(directory, clear=True, with_pip=False)
    python = directory / "bin" / "python"
    pinned = [f"{need}=={importlib.metadata.version(need)}" for need in _WORKERS_NEED]
    # The lab's own pip installs into it: installing another pip would take as long as everything else.
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "-q", "--disable-pip-version-check"]
    done = subprocess.run([*command, *definition.requirements, *pinned], capture_output=True, text=True)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise InstallFailed(lines[-1] if lines else f"pip ended with status {done.returncode}")
    packages = next(directory.glob(_PACKAGES))
    # Written last, since it marks the environment as complete.
    (packages / _LINK).write_text(_here())
    return python


def _here() -> str:
    """The content of a ``.pth`` file that makes an environment import the lab from where it is, so that changes to it
    take effect there, too.
    """
    return f"{Path(nearcall_lab.__file__).parent.parent}\n"
