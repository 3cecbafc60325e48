"""CPU time that a hypervisor took while something was measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from nearcall_lab.environment import cpu_ticks


@dataclass
class Watch:
    """Looks at the kernel's count of stolen time between its making and `steal_share`."""

    _begin: tuple[int, int] = field(default_factory=cpu_ticks)

    def steal_share(self) -> float | None:
        """Share of all CPUs' time that went to other guests; None where the kernel does not say, or in under 10 ms."""
        stolen, total = (after - before for after, before in zip(cpu_ticks(), self._begin, strict=True))
        return stolen / total if total > 0 else None
