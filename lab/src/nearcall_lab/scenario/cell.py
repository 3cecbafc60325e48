"""One cell: a mechanism, the work it is given, and the way the work arrives. A cell is identified by its digest."""

from __future__ import annotations

import hashlib
from typing import Any, Literal

import msgspec

from nearcall_lab.contract import Operation

ModeKind = Literal["closed", "open", "burst", "one-way", "stream", "connect", "mixed"]
"""How calls arrive.

``closed``: every slot calls again as soon as it has its reply; ``connections`` x ``outstanding`` slots. One by one is
ping-pong, N by one is saturation over N connections, one by N is N outstanding on one connection. ``open``: calls are
due at a rate, whether or not earlier ones are done. ``burst``: ``calls`` calls are started at once; the result is the
time until the last is done. ``one-way``: messages without a reply, at a rate or as fast as they go, timed where they
arrive. ``stream``: the server sends ``items`` integers per call. ``connect``: a connection is made, used once and
closed, again and again. ``mixed``: each call is a batch of one echo of every size in ``sizes``.
"""

PlacementMode = Literal["apart", "same", "free", "busy"]
"""``apart``: different CPUs. ``same``: one CPU for both sides. ``free``: not pinned. ``busy``: not pinned, while
another process computes on each CPU."""

CellsPerLaunch = Literal["one", "all"]
"""``one``: fresh processes for each cell. ``all``: a mechanism's cells that need the same processes share them and are
measured one after another.
"""


class Work(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one call does."""

    operation: Operation = "echo"
    size: int = 0
    """Payload bytes: each way for ``echo``, to the server for ``send``."""
    sizes: tuple[int, ...] = ()
    """Payload sizes of one batch, for the mode ``mixed``."""
    items: int = 0
    """Integers per call of ``count``."""
    delay_s: float = 0.0
    """How long the handler of ``wait`` waits before it answers, seconds."""


class Mode(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How calls arrive, and when the cell ends."""

    kind: ModeKind = "closed"
    connections: int = 1
    outstanding: int = 1
    """Most calls under way on each connection."""
    client_processes: int = 1
    """Processes that the connections are spread over."""
    callers: int = 0
    """Most threads, or tasks, that call at once, over all connections in turn; 0 is `outstanding` for each
    connection."""
    rate: float = 0.0
    """Calls or messages due per second, over all connections; 0 is as fast as they go (only ``one-way``)."""
    arrivals: Literal["poisson", "fixed"] = "poisson"
    calls: int = 0
    """Number of calls after which the cell ends; 0: it ends by time. For ``burst`` the size of the burst."""
    seconds: float = 0.3
    """Timed length of a cell per launch."""
    warmup_s: float = 0.05
    extra_copy: bool = False
    """The sender copies each message into a ring of its own first, as one of the studies does (``one-way``)."""

    @property
    def slots(self) -> int:
        """Most calls under way."""
        return min(self.callers, self.connections) if self.callers else self.connections * self.outstanding


class Network(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is put between clients and server. All of it is for each direction."""

    delay_ms: float = 0.0
    jitter_ms: float = 0.0
    """The delay is spread evenly by so much to both sides; order is kept."""
    mbit: float = 0.0
    """Millions of bits a second; 0 is as fast as the machine."""

    def __str__(self) -> str:
        jitter = f" ± {self.jitter_ms:g}" if self.jitter_ms else ""
        parts = [f"{self.delay_ms:g}{jitter} ms each way"] if self.delay_ms or self.jitter_ms else []
        return ", ".join([*parts, *([f"{self.mbit:g} Mbit/s"] if self.mbit else [])])


class Cell(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one cell of the table measures. Two results of one run never share a cell."""

    mechanism: str
    work: Work
    mode: Mode
    placement: PlacementMode = "apart"
    same_process: bool = False
    """Server and client in one process, to replicate studies that did so."""
    seed: int = 1
    host: str = ""
    """URL of the machine that the server runs on; empty for the one the lab runs on."""
    network: Network = Network()
    """What a relay puts between clients and server."""

    def plain(self) -> dict[str, Any]:
        """The cell as plain data with every default written out; of keys that cells have not always had, only those
        with another value, so that an older cell keeps its digest, and an older program understands it.
        """
        plain: dict[str, Any] = msgspec.to_builtins(self)
        for name, usual in (("host", ""), ("network", Network())):
            if getattr(self, name) == usual:
                del plain[name]
        if not self.mode.callers:
            del plain["mode"]["callers"]
        return plain

    def canonical(self) -> bytes:
        """`plain` as JSON with sorted keys."""
        return msgspec.json.encode(self.plain(), order="sorted")

    def digest(self) -> str:
        """First 16 hexadecimal digits of the SHA-256 of `canonical`."""
        return hashlib.sha256(self.canonical()).hexdigest()[:16]

    def title(self) -> str:
        """The workload in a few words, without the mechanism."""
        title = describe(self.work, self.mode, self.placement, self.same_process)
        if self.network != Network():
            title += f", network {self.network}"
        return f"{title}, server at {self.host.partition('?')[0]}" if self.host else title


def format_size(size: int) -> str:
    """For example ``15 B``, ``1 KB``, ``1 MB``; thousands, not 1024s."""
    for limit, unit in ((1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "KB")):
        if size >= limit:
            return f"{size / limit:g} {unit}"
    return f"{size} B"


def describe(work: Work, mode: Mode, placement: PlacementMode = "apart", same_process: bool = False) -> str:
    """For example ``1 KB echo, 10 connections`` or ``wait 100 ms, burst of 1000``."""
    what = {
        "echo": f"{format_size(work.size)} echo",
        "quote": "dataclass",
        "wait": f"wait {work.delay_s * 1e3:g} ms",
        "count": f"{work.items} integers streamed",
        "send": f"{format_size(work.size)} one-way",
    }[work.operation]
    if mode.kind == "mixed":
        what = "batch of " + ", ".join(format_size(size) for size in work.sizes)
    if mode.kind == "connect":
        what = "connection set-up"
    parts = [what]
    if mode.connections > 1:
        parts.append(f"{mode.connections} connections")
    if mode.callers:
        parts.append(f"{mode.callers} callers" if mode.callers > 1 else "1 caller")
    if mode.client_processes > 1:
        parts.append(f"{mode.client_processes} client processes")
    if mode.outstanding > 1 and mode.kind != "burst":
        parts.append(f"{mode.outstanding} outstanding")
    if mode.kind == "burst":
        parts.append(f"burst of {mode.calls}")
    if mode.rate:
        parts.append(f"{mode.rate:g}/s {mode.arrivals}")
    if mode.extra_copy:
        parts.append("extra copy")
    if placement != "apart":
        parts.append({"same": "one CPU", "free": "not pinned", "busy": "every CPU busy"}[placement])
    if same_process:
        parts.append("one process")
    return ", ".join(parts)
