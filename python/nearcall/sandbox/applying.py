"""Confines this process by a policy that is given as plain values.

Each plugin's process starts with this module, which therefore imports as little as it can.
"""

from __future__ import annotations

import contextlib
import errno
import os
import posix
import sys
from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, Final

from .. import _core

__all__ = ["Row", "apply", "begin", "python_paths"]

Row = tuple[str, str, str]
"""A layer: its name, its state, and a sentence about it."""

_LIBRARIES: Final = (
    "/lib",
    "/lib32",
    "/lib64",
    "/usr/lib",
    "/usr/lib32",
    "/usr/lib64",
    "/usr/local/lib",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/timezone",
    "/usr/share/zoneinfo",
    "/usr/share/locale",
    "/dev/null",
    "/dev/zero",
    "/dev/random",
    "/dev/urandom",
    "/sys/devices/system/cpu",
)
"""Paths that any interpreter on Linux reads while it runs, wherever it was installed; not all of them exist
everywhere.
"""

_NETWORK: Final = (
    "/etc/hosts",
    "/etc/resolv.conf",
    "/etc/nsswitch.conf",
    "/etc/host.conf",
    "/etc/gai.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/pki/ca-trust",
    "/usr/share/ca-certificates",
)
"""Paths that are read to find hosts by name, and to trust them. ``/etc/ssl/private`` beside them has private keys, and
is not among them.
"""


def begin(policy: Mapping[str, Any]) -> _core.EarlyLimits:
    """Begins to enter control groups, which takes long, so that :func:`apply` need not wait for it.

    Args:
        policy: From :func:`~nearcall.sandbox.policy.plain`.
    """
    return _core.EarlyLimits(memory=policy["memory"], cpu_share=policy["cpu_share"], tasks=policy["tasks"])


def apply(policy: Mapping[str, Any], early: _core.EarlyLimits | None = None) -> list[Row]:
    """Takes away from this process, and from all that it starts, everything that the policy does not name, for ever.

    Args:
        policy: From :func:`~nearcall.sandbox.policy.plain`; it may have been turned into JSON and back.
        early: From :func:`begin`.

    Raises:
        RuntimeError: the process is not confined as the policy asks, and may be confined in part: it should end.
    """
    fields = dict(policy)
    if fields["python"]:
        fields["read"] = [*fields["read"], *python_paths(network=fields["ports"] is None or bool(fields["ports"]))]
        fields["write"] = [*fields["write"], "/dev/null"]
    rows = _core.confine(SimpleNamespace(**fields), early)
    _forget_variables(fields["environment"])
    _refuse_in_words(subprocesses=fields["subprocesses"], execute=bool(fields["execute"]))
    return rows


def _forget_variables(kept: Collection[str]) -> None:
    """Removes variables from both copies of the environment that Python made at its start, ``os.environ`` and
    ``posix.environ``.
    """
    for name in [name for name in os.environ if name not in kept]:
        del os.environ[name]
    for key in [key for key in posix.environ if os.fsdecode(key) not in kept]:
        del posix.environ[key]


def _refuse_in_words(*, subprocesses: bool, execute: bool) -> None:
    """Makes Python's functions that make processes raise errors that name the policy's field.

    The kernel's own error has no text, and its signal cannot be used for one, because libraries block all signals while
    they make a process. This hook protects nothing: code that gets around it is refused by the kernel.
    """
    forks = {} if subprocesses else dict.fromkeys(("os.fork", "os.forkpty", "subprocess.Popen"), "subprocesses")
    programs = {} if execute else dict.fromkeys(("os.exec", "subprocess.Popen"), "execute")
    either = dict.fromkeys(("os.posix_spawn", "os.system"), "execute" if not execute else "subprocesses")
    refused = {**forks, **programs, **(either if forks or programs else {})}

    def hook(event: str, _: tuple[object, ...]) -> None:
        field = refused.get(event)
        if field is not None:
            name = event.rpartition(".")[2].lower()
            with contextlib.suppress(OSError):
                os.write(2, f"nearcall sandbox: refused {name}\n".encode())
            raise PermissionError(errno.EPERM, f"the sandbox refuses {event}: Policy.{field} does not allow it")

    if refused:
        sys.addaudithook(hook)


def python_paths(*, network: bool = False) -> tuple[str, ...]:
    """The existing paths that this interpreter reads while it runs. An empty entry of ``sys.path``, which would mean
    the current directory, is left out.

    Args:
        network: Whether to add the paths that it reads to use a network.
    """
    # `sysconfig` gives the same, but takes a millisecond or two.
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    libraries = {os.path.join(sys.base_exec_prefix, name) for name in ("lib", sys.platlibdir)}
    own = {
        os.path.join(prefix, name, version)
        for prefix in (sys.prefix, sys.exec_prefix)
        for name in ("lib", sys.platlibdir)
    }
    package = os.path.dirname(os.path.dirname(_core.__file__))
    standard = os.path.dirname(os.__file__)
    places = [
        standard,
        *sorted(own),
        *sorted(libraries),
        package,
        *sys.path,
        *_LIBRARIES,
        *(_NETWORK if network else ()),
    ]
    found = (os.path.realpath(place) for place in places if os.path.isabs(place) and os.path.exists(place))
    return tuple(dict.fromkeys(found))
