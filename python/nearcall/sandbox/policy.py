"""``nearcall.sandbox.Policy``: what a confined process may do."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Literal

from .._core import sandbox_names
from ..options.names import with_checked_names
from .report import LAYERS, SandboxError

__all__ = ["Policy", "check_policy", "plain"]

_PROC_FILES: Final = sandbox_names()[1]


@with_checked_names
@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a confined process may do. Whatever is not named here is refused.

    Paths are absolute and must exist; a directory stands for everything that is or will be below it.

    Raises:
        SandboxError: a field contradicts another, or names something that does not exist.
        TypeError: a field has a value of another type.
    """

    read: tuple[str | os.PathLike[str], ...] = ()
    """Files and directories that may be read."""
    write: tuple[str | os.PathLike[str], ...] = ()
    """Files that may be read and written, and directories in which files may also be made, renamed and removed."""
    execute: tuple[str | os.PathLike[str], ...] = ()
    """Programs that may be started, or directories of programs. If empty, none may."""
    python: bool = True
    """Whether the files that this interpreter needs may be read as well: its library, the directories of ``sys.path``,
    shared libraries, time zones, random numbers from ``/dev``; with a network, also the files by which hosts are found
    and trusted.
    """
    subprocesses: bool = False
    """Whether it may make processes. Without ``execute`` these are forks."""
    network: Literal["none", "all"] | tuple[int, ...] = "none"
    """A tuple of ports: TCP connections to these, of any host, and nothing else; names of hosts cannot be resolved
    then, because that needs UDP. ``"all"``: TCP and UDP in both directions.
    """
    unix_sockets: bool = False
    """Whether it may listen at Unix sockets and connect to those it finds by path."""
    abstract_sockets: bool = False
    """Whether it may connect to abstract Unix sockets of others. Needs ``unix_sockets``."""
    signals: bool = False
    """Whether it may signal processes outside."""
    memory: int | None = 1 << 30
    """Bytes of memory. ``None``, here and below: no limit of its own."""
    cpu_seconds: int | None = None
    """Seconds of processor time in total. After that the process is ended by ``SIGXCPU``."""
    cpu_share: float | None = None
    """Processors at a time: 0.5 is half of one, 2.0 is two whole ones."""
    tasks: int | None = 64
    """Threads and processes together."""
    open_files: int | None = 256
    """Open descriptors."""
    file_size: int | None = 1 << 30
    """Bytes of one file."""
    environment: tuple[str, ...] = ("HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "PATH", "TZ")
    """Names of the environment variables that stay."""
    descriptors: tuple[int, ...] = (0, 1, 2)
    """Numbers of the descriptors that stay open."""
    proc: tuple[str, ...] = ()
    """Files of ``/proc`` that may be read, such as ``"meminfo"`` or ``"self/status"``."""
    required: tuple[str, ...] = ("no_new_privs", "files", "system_calls", "limits", "environment", "descriptors")
    """Names of the layers without which :func:`~nearcall.sandbox.confine` fails; see
    :data:`~nearcall.sandbox.LAYERS`."""

    def __post_init__(self) -> None:
        for field in ("read", "write", "execute"):
            object.__setattr__(self, field, _paths(field, getattr(self, field)))
        for field in ("python", "subprocesses", "unix_sockets", "abstract_sockets", "signals"):
            if not isinstance(getattr(self, field), bool):
                raise TypeError(f"{field} must be True or False, not {getattr(self, field)!r}")
        for field in ("memory", "cpu_seconds", "tasks", "open_files", "file_size"):
            _check_whole(field, getattr(self, field))
        _check_share(self.cpu_share)
        for field in ("environment", "proc", "required"):
            object.__setattr__(self, field, _texts(field, getattr(self, field)))
        object.__setattr__(self, "descriptors", _numbers("descriptors", self.descriptors, 2**31 - 1))
        if self.network not in ("none", "all"):
            object.__setattr__(self, "network", _numbers("network", self.network, 65535))
        _refuse_unknown("proc", self.proc, _PROC_FILES)
        _refuse_unknown("required", self.required, LAYERS)
        if self.abstract_sockets and not self.unix_sockets:
            raise SandboxError("abstract_sockets are Unix sockets: they need unix_sockets=True")


def _items(field: str, values: Any) -> list[Any]:
    try:
        if not isinstance(values, (str, bytes)):
            return list(values)
    except TypeError:
        pass
    raise TypeError(f"{field} must be a tuple, not {values!r}")


def check_policy(policy: object) -> None:
    """Makes sure that something is a policy.

    Raises:
        TypeError: it is no policy.
    """
    if not isinstance(policy, Policy):
        raise TypeError(f"a policy must be a nearcall.sandbox.Policy, not {policy!r}")


def plain(policy: Policy) -> dict[str, Any]:
    """A policy as plain values, which :mod:`~nearcall.sandbox.applying` takes, also in another process.

    These are its fields, with ``ports`` in place of ``network``; ``None`` stands for ``"all"``.

    Raises:
        TypeError: it is no policy.
    """
    check_policy(policy)
    fields = {name: getattr(policy, name) for name in Policy.__dataclass_fields__ if name != "network"}
    return {
        **fields,
        "ports": policy.network if isinstance(policy.network, tuple) else None if policy.network == "all" else (),
    }


def _paths(field: str, values: Any) -> tuple[str, ...]:
    paths: list[str] = []
    for value in _items(field, values):
        path = os.fsdecode(value)
        if isinstance(value, bytes) or "\0" in path:
            raise TypeError(f"{field} must hold paths as text, not {value!r}")
        if not os.path.isabs(path):
            raise SandboxError(f"{field} names {path!r}: write the whole path, from /")
        paths.append(path)
    return tuple(paths)


def _texts(field: str, values: Any) -> tuple[str, ...]:
    texts = _items(field, values)
    if not all(isinstance(text, str) and text for text in texts):
        raise TypeError(f"{field} must hold names, not {values!r}")
    return tuple(texts)


def _numbers(field: str, values: Any, largest: int) -> tuple[int, ...]:
    numbers = _items(field, values)
    for number in numbers:
        if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= largest:
            raise TypeError(f"{field} must hold numbers from 0 to {largest}, not {number!r}")
    return tuple(numbers)


def _check_whole(field: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**62):
        raise TypeError(f"{field} must be a whole number from 1, or None, not {value!r}")


def _check_share(value: Any) -> None:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if value is not None and (not number or not math.isfinite(value) or not 0.01 <= value <= 1024):
        raise TypeError(f"cpu_share must be a number of processors from 0.01 to 1024, or None, not {value!r}")


def _refuse_unknown(field: str, names: tuple[str, ...], known: Iterable[str]) -> None:
    for name in names:
        if name not in known:
            raise SandboxError(f"{field} names {name!r}; there may be {', '.join(known)}")
