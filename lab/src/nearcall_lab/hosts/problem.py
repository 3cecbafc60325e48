"""What goes wrong with another machine, in one line: which machine, at which step, what to do."""

from __future__ import annotations

from typing import Literal

from nearcall_lab.scenario.host import Host
from nearcall_lab.workers.worker import LaunchFailed

Step = Literal["connect", "sign in", "find Python", "copy", "install", "start", "measure", "compare clocks"]


class HostFailed(LaunchFailed):
    """Something on the way to another machine, or there."""

    def __init__(self, host: Host, step: Step, what: str, todo: str = "") -> None:
        super().__init__(f"{host}, {step}: {' '.join(what.split())[:200]}{f'; {todo}' if todo else ''}")
        self.host, self.step = host, step


_REASONS: tuple[tuple[str, Step, str], ...] = (
    ("could not resolve hostname", "connect", "check its name, or ~/.ssh/config"),
    ("connection refused", "connect", "is an ssh server running there, at this port?"),
    ("timed out", "connect", "is it on, and is this its address?"),
    ("no route to host", "connect", "is it on, and is this its address?"),
    ("network is unreachable", "connect", "is it on, and is this its address?"),
    ("host key verification failed", "connect", "`ssh {host}` shows its key and asks whether it is the right one"),
    ("permission denied", "sign in", "`ssh {host} true` must work without a question: ssh-copy-id, ssh-add"),
    ("too many authentication failures", "sign in", "name the key for it in ~/.ssh/config (IdentitiesOnly)"),
)


def why_no_connection(host: Host, said: str) -> HostFailed:
    """From what ``ssh`` wrote before it ended with status 255."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    for line in reversed(lines):
        for sign, step, todo in _REASONS:
            if sign in line.lower():
                return HostFailed(host, step, line, todo.format(host=host))
    what = lines[-1] if lines else "ssh ended without a word"
    return HostFailed(host, "connect", what, f"does `ssh {host} true` work?")
