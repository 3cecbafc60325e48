"""What is asked of a mechanism, and why one does not do."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from nearcall_lab.choice.facts import ANY_LANGUAGE, Facts
from nearcall_lab.contract import Mechanism, Operation, Style

Security = Literal["none", "encrypted", "strangers"]
"""``strangers``: encrypted, and nothing that a peer who means harm gains beyond calling."""


Payload = Literal["bytes", "array", "frame"]


def payload_of(mechanism: Mechanism) -> Payload:
    """What a row's messages are: those for arrays and frames are named after them."""
    first = mechanism.name.partition("-")[0]
    return "array" if first == "array" else "frame" if first == "frame" else "bytes"


@dataclass(frozen=True)
class Needs:
    """What is asked; the defaults ask for nothing."""

    other_host: bool = False
    languages: tuple[str, ...] = ()
    """Of the other side, besides Python; `ANY_LANGUAGE` for one that the facts do not name."""
    system: str = ""
    size: int = 1_000
    """Payload of a message, bytes."""
    rate: float = 0.0
    """Calls, messages or items a second; 0 is few."""
    streaming: bool = False
    fan_out: bool = False
    one_way: bool = False
    at_once: int = 1
    """Calls under way on one connection."""
    keeps: bool = False
    """Messages wait for a receiver that is not there."""
    security: Security = "none"
    style: Style | Literal[""] = ""
    payload: Payload = "bytes"
    """What a message is, where the lab has rows of its own for it."""

    @property
    def operation(self) -> Operation:
        """The operation of the lab that comes closest."""
        return "count" if self.streaming else "send" if self.one_way or self.fan_out else "echo"


def against(needs: Needs, mechanism: Mechanism, facts: Facts) -> list[str]:
    """Why the mechanism does not do what is needed, a reason each; empty where it does."""
    return list(_against(needs, mechanism, facts))


def _against(needs: Needs, mechanism: Mechanism, facts: Facts) -> Iterator[str]:
    if payload_of(mechanism) != needs.payload:
        yield f"is not measured with {needs.payload}{'' if needs.payload == 'bytes' else 's'}"
    if mechanism.same_process:
        yield "stays in one process"
    if needs.other_host and mechanism.transport not in ("TCP", ""):
        yield f"goes by {mechanism.transport}, which stays on one machine"
    # A transport that stays on the machine is spoken by the library alone, whatever it speaks elsewhere.
    local = mechanism.transport in ("shared memory", "UDS", "pipe") and facts.name == "nearcall"
    for language in needs.languages:
        shown = "other languages" if language == ANY_LANGUAGE else language
        if not facts.speaks(language, mechanism.variant):
            at_this = " at this URL" if facts.speaks(language) else ""
            yield f"is not for {shown}{at_this}"
        elif local and language != "python":
            yield f"is for Python only at this URL; for {shown} it has grpc:// and http://"
    if needs.system and needs.system not in facts.systems:
        yield f"does not run on {needs.system}"
    if needs.streaming and "count" not in mechanism.operations:
        yield "has no streams"
    if needs.one_way and not needs.fan_out and "send" not in mechanism.operations:
        yield "has no messages without a reply"
    if needs.fan_out and not facts.fan_out:
        yield "sends to one"
    if needs.at_once > 1 and not mechanism.concurrent_calls:
        yield "takes one call at a time on a connection"
    if needs.keeps and not facts.keeps_with(mechanism.variant):
        elsewhere = f" at this URL, but by {facts.keeps_by}" if facts.keeps else ""
        yield f"keeps no messages for who is not there{elsewhere}"
    if needs.security != "none" and not facts.security and (needs.other_host or needs.security == "strangers"):
        yield "has no encryption of its own"
    if needs.security == "strangers" and facts.trust:
        yield f"is not for strangers: {facts.trust}"
    if needs.style and mechanism.style != needs.style:
        yield f"is called from {mechanism.style}"
