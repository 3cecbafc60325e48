"""Results as plain data that survives a round trip through JSON. Times are nanoseconds unless said otherwise."""

from __future__ import annotations

from typing import Literal

import msgspec

from nearcall_lab.environment import Environment
from nearcall_lab.scenario.cell import Cell, CellsPerLaunch

Status = Literal["ok", "overloaded", "failed", "unsupported", "not reached"]
"""``overloaded``: fewer than 99 % of the calls that were due were done, or the lag grew: its times are not
latencies.
"""

Connected = Literal["", "at open", "at first call", "cannot tell"]


class Latencies(msgspec.Struct):
    """One distribution: an HdrHistogram, V2 compressed, base64; from 1 ns to one hour with 3 significant digits."""

    histogram: str
    n: int
    mean: float
    min: int
    max: int


class Side(msgspec.Struct):
    """What one side's whole process tree used during the timed part."""

    cpu_s: float = 0.0
    """User and system time, without `waiting_s`."""
    waiting_s: float = 0.0
    """User and system time that the lab itself spent on preparing and on waiting for due times, which is no part of a
    call.
    """
    peak_rss_kb: int = 0
    pss_kb: int = 0
    shared_kb: int = 0
    voluntary_switches: int = 0
    involuntary_switches: int = 0
    processes: int = 1
    threads: int = 0
    descriptors: int = 0
    waited_s: float = 0.0
    """Time for which its threads were ready to run while other threads had the CPU, including other threads of the
    mechanism itself.
    """


class ClockComparison(msgspec.Struct):
    """The clock of another machine beside this one's during a launch: see `nearcall_lab.hosts.clock`."""

    offset_ns: int
    """How far it was ahead at the beginning."""
    uncertainty_ns: int
    """The true offset is within this of what was subtracted, whatever the ways of the messages."""
    drift_ppm: float
    """How much faster it went."""
    round_trip_ns: int
    """The shortest there and back."""


class NetworkProbe(msgspec.Struct):
    """What a program that does nothing else saw of the network between clients and server, before the launch."""

    direct_ns: float
    """Median round trip on the loopback without the network."""
    through_ns: float
    """The same with it."""
    mbit: float = 0.0
    """Millions of bits a second; 0 where the network has no rate."""


class Launch(msgspec.Struct):
    """The results of one fresh pair of processes for one cell."""

    number: int
    """From 0; launches of one number of all cells were made close together, so that ratios pair by it."""
    position: int
    """Place in the order of the run. Cells that the same processes measured have the same."""
    started: str
    """ISO 8601, UTC."""
    calls: int
    """Timed calls (messages, connections, batches) that were done and right."""
    wall_s: float
    """From the beginning of the timed part to the client's last stamp."""
    response: Latencies | None = None
    """Done minus intended; for a closed loop the same as `service`. For ``one-way``: arrival minus intended."""
    service: Latencies | None = None
    """Done minus started."""
    lag: Latencies | None = None
    """Started minus intended; open loop only."""
    phases: dict[str, Latencies] = msgspec.field(default_factory=dict)
    """``connect``: ``made``, ``connected``, ``first reply``; ``stream``: ``first item``; each since the beginning."""
    offered: float = 0.0
    """Calls due per second; 0 for a closed loop."""
    sent: int = 0
    delivered: int = 0
    dropped: int = 0
    """One-way messages: what the sender handed over, what arrived, what the mechanism says it dropped."""
    duplicated: int = 0
    reordered: int = 0
    """One-way messages that arrived again, and such that arrived after a later one of the same sender."""
    due: int = 0
    """Calls that the schedule asked for; 0 for a closed loop."""
    growing: bool = False
    """Calls were answered later and later: more was offered than could be done."""
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    """Calls that failed, by kind, such as ``AioRpcError CANCELLED``: they count as calls that were due and not done.
    ``lost`` are one-way messages that neither arrived nor are among `dropped`."""
    first_call_ns: int = 0
    """The very first call on a new connection, before any warm-up."""
    warmup_calls: int = 0
    warmed_up: bool = True
    """Whether the per-interval medians had settled before the timed part began."""
    interval_p50_ns: list[int] = msgspec.field(default_factory=list)
    """Medians of twenty equal intervals of the timed part, to show drift; 0 for an interval in which nothing was
    done.
    """
    server_opened: int | None = None
    """Descriptors and shared mappings that the server's processes gained while the cell's connections were opened.
    Fewer than there are connections means that some of them share one underlying connection; None where there is no
    server process, or where it served another cell before.
    """
    connected: Connected = ""
    """``connect``: when the kernel showed that the server's side had one more connection."""
    client: Side = msgspec.field(default_factory=Side)
    server: Side = msgspec.field(default_factory=Side)
    seen_s: float = 0.0
    """From the beginning of the timed part until the client had said that it was over, by the clock of the process that
    started it; 0 where that was not measured.
    """
    little: float | None = None
    """Throughput x mean response / calls under way: 1 when nothing is lost in the accounting."""
    canary_ns: int = 0
    """Time of a fixed loop that ran right before on the client's CPU: it shows whether the machine is slowed down."""
    canary_after_ns: int = 0
    """Time of the same loop right after."""
    steal_share: float | None = None
    """Share of the time of the launch's CPUs that a hypervisor gave to other guests."""
    others_share: float | None = None
    """Share of the same time in which the CPUs did work that does not belong to the launch; None where unknown, and in
    launches that were too short to measure it.
    """
    left_behind: list[str] = msgspec.field(default_factory=list)
    clock: ClockComparison | None = None
    """Of the server's machine, where that is another one."""
    network: NetworkProbe | None = None
    """Of the network between clients and server, where there is one."""
    breach: str = ""
    """How the machine was disturbed meanwhile; empty where it was not."""

    @property
    def throughput(self) -> float:
        """Calls per second."""
        return self.calls / self.wall_s if self.wall_s else 0.0

    @property
    def waited_share(self) -> float:
        """Share of the time in which its threads wanted a CPU that they spent waiting for one."""
        waited_s = self.client.waited_s + self.server.waited_s
        wanted_s = waited_s + self.client.cpu_s + self.server.cpu_s
        return waited_s / wanted_s if wanted_s else 0.0

    @property
    def overloaded(self) -> bool:
        """Fewer than 99 % of what was due was done, or it was done later and later."""
        return self.due > 0 and (self.calls < 0.99 * self.due or self.growing)


class Failure(msgspec.Struct):
    """A launch without results."""

    number: int
    position: int
    reason: str
    log: str = ""
    """Path of the workers' logs, relative to the run's directory."""


class Observation(msgspec.Struct):
    """Counts of a separate pass, per call; separate because counting slows the processes down."""

    client_syscalls: float | None = None
    server_syscalls: float | None = None
    client_switches: float | None = None
    server_switches: float | None = None
    busy_polling: bool = False
    """A side wanted a CPU for more than half of the time while no call was made."""
    problem: str = ""
    calls: int = 0
    """Number of calls over which the switches were counted; 0 where they were not counted, and in runs of an older
    lab.
    """
    syscalls_calls: int = 0
    """The number of calls for the system calls, which are counted while the cell runs once more."""


class CellResult(msgspec.Struct):
    """Everything known about one cell: the content of ``cells/<digest>.json``."""

    cell: Cell
    digest: str
    status: Status
    problem: str = ""
    """One line: why there are no numbers, or a warning about them."""
    log: str = ""
    """Path of the worker logs of a failed launch, relative to the run's directory."""
    launches: list[Launch] = msgspec.field(default_factory=list)
    failures: list[Failure] = msgspec.field(default_factory=list)
    disturbed: list[Launch] = msgspec.field(default_factory=list)
    """Launches that were repeated because the machine was disturbed: stored, but part of no number."""
    observation: Observation | None = None
    label: str = ""
    family: str = ""
    version: str = ""
    settings: str = ""
    tuned: bool = False
    typed: str = ""
    busy_polls: bool = False
    same_process: bool = False
    """The client is also the server: nothing passes between processes, so that it is not compared with other rows."""
    checked: bool | None = None
    """Whether the mechanism, in its state at that time, had passed ``nearcall-lab check``; None in runs of an older
    lab.
    """
    style: str = ""
    """``threads`` or ``asyncio``; empty in runs of an older lab."""


class HostInfo(msgspec.Struct):
    """Another machine that servers ran on."""

    url: str
    address: str
    environment: Environment
    placement: str
    remark: str = ""
    """How it differs from the machine of the lab, where that matters for what is compared."""


class RunInfo(msgspec.Struct):
    """The content of ``run.json``."""

    title: str
    scenario: str
    """Name of the preset or the file."""
    scenario_digest: str
    """SHA-256 of the scenario's text."""
    command: list[str]
    """The command that reproduces the run."""
    lab_version: str
    revision: str
    """Git revision of the lab's source, with ``+`` when changed; empty outside a repository."""
    started: str
    finished: str
    launches: int
    seed: int
    placement: str
    environment: Environment
    versions: dict[str, str]
    """Versions of everything that took part, by distribution."""
    digests: list[str]
    """The cells, in the scenario's order."""
    baseline: str = ""
    floor: str = "noop"
    ended_early: str = ""
    order: str = "abba"
    cells_per_launch: CellsPerLaunch = "one"
    limit_s: float = 0.0
    """Seconds after which no new launch was started; 0 is no limit."""
    full: bool = False
    """Launches went on until the intervals were narrow."""
    most_launches: int = 0
    """With `full`: launches after which it ended in any case."""
    observe: bool = False
    """System calls and context switches were counted afterwards, in a pass of its own."""
    hosts: list[HostInfo] = msgspec.field(default_factory=list)
    """Other machines that servers ran on."""
