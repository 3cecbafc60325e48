"""Was the machine itself when this was measured? Stolen CPU time, and a fixed loop before and after."""

from __future__ import annotations

from dataclasses import dataclass, field

from nearcall_lab.environment import cpu_ticks

SLOWED = 1.25
"""A canary that takes so many times as long as the best one of the run tells of a slowed-down machine."""
STOLEN = 0.02
"""Share of the CPU time taken by the hypervisor above which a launch is better made again."""


@dataclass
class Watch:
    """Looks at the kernel's count of stolen time between its making and `steal_share`."""

    _begin: tuple[int, int] = field(default_factory=cpu_ticks)

    def steal_share(self) -> float | None:
        """Share of all CPUs' time that went to other guests; None where the kernel does not say, or in under 10 ms."""
        stolen, total = (after - before for after, before in zip(cpu_ticks(), self._begin, strict=True))
        return stolen / total if total > 0 else None


def breach(canary_ns: int, best_canary_ns: int, steal_share: float | None) -> str:
    """Why a launch should be made again, or nothing. It is never deleted for it: both stay on record."""
    if steal_share is not None and steal_share > STOLEN:
        return f"the hypervisor took {steal_share:.1%} of the CPU time"
    if best_canary_ns and canary_ns > SLOWED * best_canary_ns:
        return f"a fixed loop took {canary_ns / best_canary_ns:.2f} times as long as at best in this run"
    return ""
