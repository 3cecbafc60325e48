"""Confining this process, and trying out in another one what this system would give."""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import posix
import sys
import sysconfig
from types import SimpleNamespace
from typing import Final

from .. import _core
from .policy import Policy, check_policy
from .report import Report, SandboxError, report_of

__all__ = ["available", "confine", "python_paths", "try_out"]

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
"""What any interpreter on Linux reads while it runs, wherever it was installed; not all of it is everywhere."""

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
"""What is read to find hosts by name, and to trust them. Private keys lie beside it, in ``/etc/ssl/private``."""

_TRY: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); import nearcall.sandbox.confining as it; it.try_out()"
)
"""Run by another interpreter, with the search path of this one as its argument."""


def confine(policy: Policy) -> Report:
    """Takes everything away from this process that the policy does not name: for ever, and for all that it starts.

    Call it in a process of its own, while that has one thread, and before it imports what it does not trust: what is
    open or imported already stays. Descriptors that are not kept are closed, whoever has them. A refused system call is
    a :class:`PermissionError` in Python, and one line on the standard error for each that is met; a few that only
    attacks make end the process by ``SIGSYS``.

    Returns:
        What came of each layer.

    Raises:
        SandboxError: the process has several threads, a path cannot be opened, or a layer is missing that the policy
            requires. The process may be confined in part then: end it.
        TypeError: it is no :class:`Policy`.
    """
    plain = _plain(policy)
    try:
        rows = _core.confine(plain)
    except RuntimeError as error:
        raise SandboxError(str(error)) from None
    _forget_variables(policy)
    _refuse_in_words(policy)
    return report_of(rows)


def _forget_variables(policy: Policy) -> None:
    """Removes what Python noted of the environment when it started: once for programs, and once for itself."""
    for name in [name for name in os.environ if name not in policy.environment]:
        del os.environ[name]
    for key in [key for key in posix.environ if os.fsdecode(key) not in policy.environment]:
        del posix.environ[key]


def _refuse_in_words(policy: Policy) -> None:
    """Says what Python's functions that make processes are refused for.

    The kernel's error has no words, and its signal cannot be used there: libraries block all signals while they make a
    process. This hook protects nothing: who gets around it meets the kernel.
    """
    forks = {} if policy.subprocesses else dict.fromkeys(("os.fork", "os.forkpty", "subprocess.Popen"), "subprocesses")
    programs = {} if policy.execute else dict.fromkeys(("os.exec", "subprocess.Popen"), "execute")
    either = dict.fromkeys(("os.posix_spawn", "os.system"), "execute" if not policy.execute else "subprocesses")
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


def available() -> Report:
    """What this system would give to a process that this one starts: every layer is tried out, in another process.

    Nothing is changed here. It may be called at any time, takes about as long as an interpreter needs to start, and is
    remembered.

    Raises:
        SandboxError: it cannot be tried out; says why.
    """
    return _tried()


@functools.cache
def _tried() -> Report:
    import subprocess  # not what a process needs that only confines itself

    path = json.dumps([entry for entry in sys.path if entry])
    try:
        done = subprocess.run(
            [sys.executable, "-c", _TRY, path], stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"the sandbox cannot be tried out: {error}") from error
    try:
        return report_of(json.loads(done.stdout))
    except ValueError:
        said = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise SandboxError(f"the sandbox cannot be tried out: {said or f'status {done.returncode}'}") from None


def try_out() -> None:
    """Confines this process with every layer there is, and prints what came of them, as JSON."""
    report = confine(Policy(cpu_share=1.0, required=()))
    os.write(1, json.dumps([(layer.name, layer.state, layer.detail) for layer in report.layers]).encode())


def python_paths(*, network: bool = False) -> tuple[str, ...]:
    """What this interpreter reads while it runs, as far as it exists; never a whole home directory by way of ``""``.

    Args:
        network: With what it reads to use a network.
    """
    places = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    library = sysconfig.get_config_var("LIBDIR")
    places += [library] if isinstance(library, str) else []
    places += [os.path.dirname(os.path.dirname(_core.__file__)), *sys.path, *_LIBRARIES, *(_NETWORK if network else ())]
    found = (os.path.realpath(place) for place in places if place and os.path.isabs(place) and os.path.exists(place))
    return tuple(dict.fromkeys(found))


def _plain(policy: Policy) -> SimpleNamespace:
    """The policy as the core takes it."""
    check_policy(policy)
    fields = {name: getattr(policy, name) for name in Policy.__dataclass_fields__}
    if policy.python:
        fields["read"] = (*policy.read, *python_paths(network=policy.network not in ("none", ())))
        fields["write"] = (*policy.write, "/dev/null")
    fields["ports"] = policy.network if isinstance(policy.network, tuple) else None if policy.network == "all" else ()
    return SimpleNamespace(**fields)
