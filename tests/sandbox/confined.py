"""Starts processes that confine themselves, as this user and as an ordinary one, and reads how they fared."""

from __future__ import annotations

import functools
import json
import os
import pwd
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import nearcall
import nearcall.sandbox

from .call_numbers import NUMBERS

ROOT = Path(__file__).resolve().parents[2]
INSIDE = Path(__file__).with_name("inside.py")
PATH = [str(Path(nearcall.__file__).parents[1]), *(entry for entry in sys.path if "site-packages" in entry)]

ROOTS = "the superuser"
ORDINARY = "an ordinary user"
USERS = [ROOTS, ORDINARY] if os.geteuid() == 0 else [ORDINARY]


@dataclass
class Outcome:
    """How a process fared."""

    returncode: int
    stderr: str
    result: Any = None
    error: str | None = None
    said: str = ""
    sandbox_error: str | None = None
    layers: dict[str, tuple[str, str]] = field(default_factory=dict)

    @property
    def violation(self) -> str | None:
        return nearcall.sandbox.violation(self.returncode, self.stderr)

    def refused(self, name: str | None = None, errors: Sequence[str] = ("EACCES", "EPERM")) -> None:
        """Asserts that the attempt failed, and was reported by name."""
        assert self.layers, (self.sandbox_error, self.stderr)
        assert self.error in errors, self
        if name is not None:
            assert f"refused {name}\n" in self.stderr, self

    def killed(self, name: str | None) -> None:
        """Asserts that the attempt ended the process, and was reported by name."""
        assert self.layers, (self.sandbox_error, self.stderr)
        assert self.returncode == -31, self
        assert self.error is self.result is None
        assert self.violation is not None
        if name is not None:
            assert f"killed for {name}\n" in self.stderr, self
            assert name in self.violation


@functools.cache
def interpreter(user: str) -> tuple[str, ...]:
    """An interpreter of this version that the user may run: the superuser's may be in its home.

    Empty if there is none.
    """
    wanted = f"import sys; sys.path[:0] = {PATH!r}; import nearcall.sandbox; print(sys.version_info[:2])"
    for program in (sys.executable, f"/usr/bin/python{sys.version_info[0]}.{sys.version_info[1]}"):
        try:
            done = subprocess.run(
                [program, "-c", wanted], capture_output=True, text=True, check=False, timeout=30, cwd="/", **_as(user)
            )
        except OSError:
            continue
        if done.stdout.strip() == str(sys.version_info[:2]):
            return (program,)
    return ()


def _as(user: str) -> dict[str, Any]:
    if user == ROOTS or os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def give_to(user: str, path: Path) -> None:
    """Makes the user the owner."""
    if options := _as(user):
        os.chown(path, options["user"], options["group"])


def start(
    code: str,
    policy: dict[str, Any] | None,
    *,
    user: str = USERS[0],
    names: dict[str, Any] | None = None,
    lacking: Sequence[str] = (),
    pass_fds: Sequence[int] = (),
    **options: Any,
) -> subprocess.Popen[str]:
    """A process that confines itself and runs the code."""
    asked = {
        "code": textwrap.dedent(code),
        "policy": policy,
        "names": {"N": NUMBERS, **(names or {})},
        "path": PATH,
        "lacking": [NUMBERS[name] for name in lacking],
    }
    options = {"stdin": subprocess.DEVNULL, "cwd": "/", **options}
    return subprocess.Popen(
        [*interpreter(user), str(INSIDE), json.dumps(asked)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        pass_fds=pass_fds,
        **options,
        **_as(user),
    )


def outcome(process: subprocess.Popen[str]) -> Outcome:
    """Waits until it has ended."""
    with process:
        out, err = process.communicate(timeout=50)
    told: dict[str, Any] = {}
    for line in out.splitlines():
        told |= json.loads(line)
    return Outcome(process.returncode, err, **told)


def run(code: str, policy: dict[str, Any] | None = None, **options: Any) -> Outcome:
    """Runs the code in a confined process; the default policy if none is given."""
    return outcome(start(code, {} if policy is None else policy, **options))


def run_free(code: str, **options: Any) -> Outcome:
    """Runs the code in a process that is not confined: to see that the attempt is one."""
    return outcome(start(code, None, **options))
