"""A client of ours meets a hostile server: what must hold of the client."""

from __future__ import annotations

from queue import Queue
from typing import Any, Protocol

from .machine import Machine
from .victim import DEADLINE, HANDSHAKE, Victims

PATIENCE = 5.0
"""Seconds by which a call may miss its deadline on a busy machine; what hangs, hangs for longer."""
AT_ONCE = 8
"""So many clients meet their servers at the same time."""
BUDGET = 400 << 20
"""Bytes by which a client may grow. A client has no limit of its own but max_message_size, twice in flight."""


class Host(Protocol):
    """A server that means harm, until it is closed."""

    url: str
    failures: list[str]
    """What went wrong with the server itself."""

    def close(self) -> None: ...


def encounter(host: Host, script: str, transport: str, victims: Queue[Victims], stalls: Machine) -> str:
    """What was wrong when a client met the server; empty if nothing was. Closes the server."""
    victim = victims.get()
    try:
        told = victim.run(script, host.url)
    finally:
        victims.put(victim)
        host.close()
    try:
        judge(told, f"a client that {script}, over {transport}", stalls.longest())
        assert host.failures == []
    except AssertionError as error:
        return str(error)
    return ""


def judge(told: dict[str, Any], what: str, stalled: float) -> None:
    """Fails with all that was not as it should be. ``stalled``: seconds for which the machine let nobody run."""
    assert "hung" not in told, f"{what}: the client hangs: {told['stacks']}"
    assert told["status"] == 0, f"{what}: the client died with {told['status']}: {told['stacks']}"
    wrong = []
    for tried, how, took in told["outcomes"]:
        # A call may have to connect anew first; closing waits for nothing.
        allowed = {"connect": HANDSHAKE, "look": 0.0, "close": 0.0, "stream": 3.0}.get(tried, DEADLINE)
        if took > allowed + PATIENCE + stalled:
            wrong.append(f"{tried} took {took:.2f} s instead of {allowed:.1f}")
        if not how.startswith(("ok", "RpcError")):
            wrong.append(f"{tried} ended with {how[:300]}")
        # What a handler says is the handler's; these are words of ours.
        if tried == "connect" and any(ord(letter) < 32 and letter != "\n" for letter in how):
            wrong.append(f"{tried}: what it says is not fit for a terminal: {how[:100]!r}")
    if told["pause"] > PATIENCE + stalled:
        wrong.append(f"no thread of the client could run for {told['pause']:.2f} s")
    if told["grown"] > BUDGET:
        wrong.append(f"the client grew by {told['grown'] >> 20} MiB")
    assert not wrong, f"{what}: {'; '.join(wrong)} (a CPU stood still for {stalled:.2f} s)"
