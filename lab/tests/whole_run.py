"""A run without processes that has everything a report must show: every kind of work, and every state of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from nearcall_lab.environment import Environment
from nearcall_lab.results.histogram import latencies
from nearcall_lab.results.model import CellResult, Launch, Observation, RunInfo, Side
from nearcall_lab.results.store import Run
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.studies.model import ShownFlaw, ShownTable, StudyResult

HOSTILE = """<script>window.hurt = 1</script>"><img src=x onerror="window.hurt = 2">|`*x*` & [a](javascript:alert(1))"""
"""What an adapter might say that wishes the reader ill."""

# name: label, family, median in ns at 1 KB, ns per byte, half its interval as a share, style, calls at once help
_ENTRANTS: dict[str, tuple[str, str, float, float, float, str, bool]] = {
    "quick-shm": ("quick shm", "nearcall", 2_100, 0.35, 0.01, "threads", True),
    "ring": ("ring buffer", "shared memory", 11_000, 0.20, 0.01, "threads", False),
    "ring-json": ("ring, JSON", "shared memory", 60_000, 1.4, 0.02, "threads", False),
    "socket": ("raw socket", "socket", 30_000, 0.5, 0.02, "threads", False),
    "queue": ("message queue", "messaging", 88_000, 0.9, 0.02, "threads", True),
    "proxy": ("object proxy", "rpc", 104_000, 1.9, 0.03, "threads", False),
    "base-tcp": ("baseline, TCP", "rpc", 290_000, 0.9, 0.02, "threads", True),
    "base-aio": ("baseline, asyncio", "rpc", 285_000, 0.9, 0.4, "asyncio", True),
    "web": ("web server", "http", 1_060_000, 2.0, 0.05, "threads", True),
    "noop": ("no-op in process", "floor", 105, 0.0, 0.005, "threads", False),
}


def environment() -> Environment:
    """A machine with something to say against it."""
    return Environment(
        *("Made-up CPU at 3 GHz", 2, "Linux 6.1", "CPython 3.11.7", "clock_gettime(CLOCK_MONOTONIC)", 1.0, "powersave"),
        *(True, 0.8, 0.02, 0.9),
    )


class Maker:
    """Makes cells; the same seed gives the same run."""

    def __init__(self, launches: int = 5, samples: int = 3_000, seed: int = 7) -> None:
        self.launches = launches
        self.samples = samples
        self._rng = np.random.default_rng(seed)
        self._position = 0

    def cell(self, name: str, work: Work, mode: Mode, **more: object) -> CellResult:
        """A cell that went well."""
        label, family, _, _, noise, style, _ = _ENTRANTS[name]
        cell = Cell(name, work, mode)
        result = CellResult(cell, cell.digest(), "ok", label=label, family=family, version="1.2", style=style)
        result.settings = "defaults"
        result.same_process = name == "noop"
        result.busy_polls = name == "ring"
        for number in range(self.launches):
            result.launches.append(self._launch(name, work, mode, number, noise))
        for key, value in more.items():
            setattr(result, key, value)
        return result

    def _launch(self, name: str, work: Work, mode: Mode, number: int, noise: float) -> Launch:
        _, _, base, per_byte, _, _, scales = _ENTRANTS[name]
        self._position += 1
        slots = mode.connections * mode.outstanding
        alone = (base + per_byte * (work.size - 1_000)) * float(self._rng.lognormal(0, noise))
        alone = max(alone, 60.0)
        most = (2.5 if scales else 1.1) * 1e9 / alone
        rate = mode.rate or min(slots * 1e9 / alone, most * (1 - 0.5 ** (slots**0.7)) * 1.6)
        busy = min(0.97, rate / most) if mode.rate else 0.0
        median = alone / (1 - busy) if mode.rate else max(alone, slots * 1e9 / rate)
        samples = self._rng.lognormal(np.log(median), 0.18, self.samples)
        tail = self._rng.random(self.samples) < 0.004
        samples[tail] *= self._rng.uniform(3, 25, int(tail.sum()))
        response = latencies(samples.astype(np.int64))
        if not mode.rate:  # a client that spends two parts in a hundred on its own affairs
            rate = 0.98 * slots * 1e9 / float(samples.mean())
        wall = self.samples / rate
        launch = Launch(number, self._position, "2026-01-01T00:00:00+00:00", self.samples, wall, response=response)
        launch.service = response
        launch.little = rate * float(samples.mean()) / 1e9 / slots if not mode.rate else 1.0
        launch.client = Side(cpu_s=0.5e-9 * alone * self.samples, peak_rss_kb=34_000, voluntary_switches=self.samples)
        if name != "noop":
            launch.server = Side(
                cpu_s=0.3e-9 * alone * self.samples, peak_rss_kb=36_000, voluntary_switches=self.samples
            )
        launch.first_call_ns = int(40 * alone)
        return launch


def ping_pong(maker: Maker, sizes: Sequence[int] = (15, 1_000, 10_000, 60_000, 1_000_000)) -> Iterator[CellResult]:
    """Every mechanism at every size."""
    for size in sizes:
        for name in _ENTRANTS:
            yield maker.cell(name, Work(size=size), Mode())


def every_state(maker: Maker) -> Iterator[CellResult]:
    """Cells that went otherwise, some with hostile words."""
    work = Work("quote")
    yield maker.cell("base-tcp", work, Mode())
    seen = Observation(2.0, 3.0, 1.0, 1.0)
    wide = maker.cell("quick-shm", work, Mode(), observation=seen)  # tells nothing: 0.5 to 3 times the baseline
    base = 290_000.0
    for launch, factor in zip(wide.launches, (0.4, 2.5, 0.5, 1.9, 1.0, 0.7, 1.4), strict=False):
        launch.response = latencies((np.linspace(0.98, 1.02, maker.samples) * base * factor).astype(np.int64))
    yield wide
    yield maker.cell("socket", work, Mode(), settings=HOSTILE, tuned=True, label="raw socket, tuned")
    poor = maker.cell("queue", work, Mode(), problem=f"1 of {maker.launches} launches disturbed: steal of 3 %")
    poor.launches[0].breach = "steal of 3 %"
    poor.launches[0].errors = {"timeout": 4, HOSTILE: 1}
    yield poor
    cell = Cell("proxy", work, Mode())
    yield CellResult(cell, cell.digest(), "failed", HOSTILE, log="logs/x.log", label="object proxy", family="rpc")
    cell = Cell("web", work, Mode())
    yield CellResult(cell, cell.digest(), "unsupported", "has no quote, only echo", label=HOSTILE, family="http")
    cell = Cell("ring", work, Mode())
    yield CellResult(cell, cell.digest(), "not reached", label="ring buffer", family="shared memory", tuned=True)


def under_load(maker: Maker) -> Iterator[CellResult]:
    """An open loop at rates, two of them beyond what one mechanism can do; and many connections in a closed loop."""
    for rate in (500.0, 2_000.0, 5_000.0, 20_000.0):
        for name in ("quick-shm", "queue", "base-tcp"):
            found = maker.cell(name, Work(size=1_000), Mode("open", rate=rate, seconds=2.0))
            if name == "base-tcp" and rate > 4_000:
                found.status = "overloaded"
                found.problem = "5 of 5 launches overloaded: 61.2 % of the calls that were due got done"
            yield found
    for connections in (1, 2, 4, 8, 16):
        for name in ("quick-shm", "socket", "queue", "proxy", "base-tcp", "web"):
            yield maker.cell(name, Work(size=1_000), Mode(connections=connections, seconds=0.5))


def everything(maker: Maker | None = None) -> list[CellResult]:
    """All of it, in one list."""
    maker = maker or Maker()
    return [*ping_pong(maker), *every_state(maker), *under_load(maker)]


def write(directory: Path, cells: Sequence[CellResult], title: str = "A made-up run of everything") -> Path:
    """The run's directory, as the engine would have left it."""
    info = RunInfo(
        title=title,
        scenario="everything",
        scenario_digest="5e" * 32,
        command=["nearcall-lab", "run", "everything.toml", "--launches", "5"],
        lab_version="0.1.0",
        revision="0123456789ab",
        started="2026-01-01T00:00:00+00:00",
        finished="2026-01-01T00:10:00+00:00",
        launches=max((len(cell.launches) for cell in cells), default=0),
        seed=1,
        placement="client pinned to CPU 0, server to CPU 1",
        environment=environment(),
        versions={"Python": "3.11.7", "quick": "1.2"},
        digests=[cell.digest for cell in cells],
        baseline="base-tcp",
    )
    with Run.create(directory, info) as run:
        for cell in cells:
            run.add(cell)
        run.combine()
    return directory


def study() -> StudyResult:
    """A study with a flaw that is shown, one that is not, and hostile words."""
    table = ShownTable("t", "Echo, µs", ["15 B", "1 KB"], {"proxy": [12.0, 14.5], HOSTILE: [1.0, None]})
    corrected = ShownTable("t", "Echo, p50 / p99", ["15 B"], {"proxy": ["1.2 µs / –"], "other": [HOSTILE]})
    extra = ShownTable("u", "CPU", ["µs"], {"proxy": [4.0]})
    return StudyResult(
        id="x",
        title="A made-up study",
        machine="a desk",
        versions={"proxy": "1"},
        published=[table],
        replicated=[table],
        corrected=[corrected, extra],
        flaws=[ShownFlaw("a", "It is fast.", "It is not.", {"proxy": "3 µs"}), ShownFlaw("b", "So.", "No.", {})],
        problems={"gone": HOSTILE},
        run=".",
        command=["nearcall-lab", "study", "x"],
        started="2026-01-01T00:00:00+00:00",
        seconds=3.0,
    )
