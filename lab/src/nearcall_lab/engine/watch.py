"""Noticing that the machine itself was slowed down while something was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from nearcall_lab.environment import OTHERS
from nearcall_lab.results.model import Launch

SLOWER = 1.3
"""A canary loop that takes more than this many times its usual time, both before and after a launch, shows that the
machine is slower.
"""
STOLEN = 0.02
"""Share of the CPU time a hypervisor may take."""
_USUAL_FROM = 5
"""Canaries that are needed to know the usual time."""
WAITED = 0.02
"""Share of the time in which a launch wants a CPU that it may spend waiting for one, while other work uses more than
`OTHERS`.
"""
REPETITIONS = 2
"""Times a disturbed launch is repeated before it is accepted with a remark."""


class Watch:
    """Judges launches by what the machine did during them, and by the canaries before and after them.

    Two signs together show competing programs: other work used a part of the launch's CPUs, and the launch's threads
    waited for a CPU. Either alone misleads: threads of one mechanism wait for each other, too, and the kernel's own
    work counts as other work without being a program's. The canary does not show competitors, because so short a loop
    mostly ends within its time slice; it shows a CPU that is slower for all. If only one of the two canaries was slow,
    that was a short moment, and not the whole launch.

    It judges by the machine only, never by what was measured: a launch is not repeated because its result is
    unexpected. Repetitions have a budget, since on a machine that is never quiet they would only make the run longer.
    """

    def __init__(self, earlier: Iterable[Launch], budget: int) -> None:
        self._canaries = [canary for launch in earlier for canary in _canaries(launch)]
        self._budget = budget

    def breach(self, launch: Launch) -> str:
        """How the machine was disturbed; empty where it was not."""
        found = []
        if canaries := _canaries(launch):
            if len(self._canaries) >= _USUAL_FROM:
                usual = statistics.median(self._canaries)
                if min(canaries) > SLOWER * usual:
                    found.append(f"a fixed loop took {min(canaries) / usual:.2f} times as long as usual")
            self._canaries += canaries
        if launch.steal_share is not None and launch.steal_share > STOLEN:
            found.append(f"the hypervisor took {launch.steal_share:.1%} of the CPU time")
        if launch.others_share is not None and launch.others_share > OTHERS and launch.waited_share > WAITED:
            found.append(
                f"other work had {launch.others_share:.0%} of its CPUs, and it waited {launch.waited_share:.0%} of the "
                "time it wanted one"
            )
        return "; ".join(found)

    def may_repeat(self, times: int) -> bool:
        """Whether a launch that has been repeated `times` times may be once more."""
        if times >= REPETITIONS or self._budget <= 0:
            return False
        self._budget -= 1
        return True


def _canaries(launch: Launch) -> list[int]:
    return [canary for canary in (launch.canary_ns, launch.canary_after_ns) if canary > 0]
