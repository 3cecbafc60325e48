"""The amounts to be measured, and the results."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from nearcall_lab.results.distribution import Distribution, merged
from nearcall_lab.results.model import Latencies


@dataclass(frozen=True)
class Amounts:
    """How much is measured; the quick amounts are for trying the command out."""

    slice_s: float = 0.5
    stream_items: int = 1_000_000
    one_way_small: int = 1_000_000
    one_way_large: int = 300_000
    frames: int = 10_000
    idle_s: float = 4.0
    imports: int = 5
    naps: int = 10_000
    streamed_bytes: int = 10_000_000_000
    events: int = 200
    connections: int = 10_000
    calls: int = 1_000_000


QUICK = Amounts(0.1, 100_000, 50_000, 20_000, 500, 1.0, 2, 1000, 500_000_000, 50, 200, 10_000)


@dataclass
class Collected:
    """All results: one number per round and series, and the reason where a series has none."""

    values: dict[str, dict[int, float]] = field(default_factory=dict)
    samples: dict[str, list[Latencies]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def add(self, key: str, turn: int, value: float) -> None:
        """Store one round's number."""
        self.values.setdefault(key, {})[turn] = value

    def median(self, key: str) -> float | None:
        """Median over rounds, or None."""
        found = self.values.get(key)
        return statistics.median(found.values()) if found else None

    def add_samples(self, key: str, samples: Latencies | None) -> None:
        """Store one round's distribution."""
        if samples is not None:
            self.samples.setdefault(key, []).append(samples)

    def pooled(self, key: str) -> Distribution | None:
        """All samples of all rounds; None where there are none."""
        return merged(self.samples.get(key, []))
