"""A profile, as its JSON has it. Times are nanoseconds; those of day are seconds since 1970."""

from __future__ import annotations

import msgspec

__all__ = ["FORMAT", "Call", "Failure", "Finding", "FlameNode", "Line", "Process", "Profile", "schema"]

FORMAT = 1


class Failure(msgspec.Struct, kw_only=True):
    """How often the calls of one line raised one kind of error."""

    error: str
    calls: int


class Line(msgspec.Struct, kw_only=True):
    """The calls of one name from one source line of one process."""

    process: int
    """Its place in the profile's list."""
    file: str
    line: int
    function: str
    library: str
    kind: str
    """``"call"``, ``"oneway"``, ``"started"``, ``"stream"``, ``"item"``, ``"attribute"``, ``"connect"``; or ``"wait"``,
    for calls that were started before.
    """
    name: str
    calls: int
    """Where not each call was recorded, this is an estimate, and so are times and bytes."""
    waited: int
    share: float
    """Of the process's time, the part in which at least one of these calls was waited for."""
    fastest: int
    median: int
    p99: int
    slowest: int
    sent: int | None
    received: int | None
    """Bytes; ``None`` where the library does not tell."""
    inside: int
    """How many of them were made inside another call."""
    at_once: int
    """The most of them that were under way at once."""
    failures: list[Failure]


class Finding(msgspec.Struct, kw_only=True):
    """Something that could be better, found by a rule."""

    rule: str
    """``"loop"``, ``"chain"``, ``"identical"``, ``"connections"``, ``"slow"`` or ``"failures"``."""
    process: int
    file: str
    line: int
    function: str
    name: str
    text: str
    """What was found."""
    advice: str
    calls: int
    saves: int
    """About how much of the waiting it would save; 0: that cannot be told."""


class FlameNode(msgspec.Struct, kw_only=True):
    """A frame of the program, or at the tips what it called; with the time that was waited below it."""

    label: str
    file: str = ""
    line: int = 0
    waited: int = 0
    calls: int = 0
    children: list[FlameNode] = []


class Call(msgspec.Struct, kw_only=True, array_like=True):
    """One call of the timeline."""

    line: int
    """Its line's place in the profile's list."""
    lane: int
    begun: int
    """Since the profile's begin."""
    took: int
    waited: int
    failed: bool


class Process(msgspec.Struct, kw_only=True):
    """A process that has made calls."""

    pid: int
    parent: int
    command: list[str]
    begun: int
    """Since the profile's begin."""
    took: int
    calls: int
    recorded: int
    waited: int
    waiting: float
    """The part of its time in which at least one call was waited for."""
    lanes: list[str]
    """Its threads and tasks."""
    notes: list[str]


class Profile(msgspec.Struct, kw_only=True):
    """The whole."""

    format: int
    command: list[str]
    started: float
    python: str
    status: int
    """The program's exit status; minus the signal that has ended it."""
    took: int
    one_in: int
    """Of so many calls one was recorded."""
    processes: list[Process]
    lines: list[Line]
    """Those that were waited for longest come first."""
    findings: list[Finding]
    """Those that would save most come first."""
    flame: FlameNode
    timeline: list[Call]
    """The longest calls, at most; the number of all is in the processes."""


def schema() -> dict[str, object]:
    """The JSON schema of a profile."""
    return msgspec.json.schema(Profile)
