"""Noticing that the machine itself was slowed down while something was measured."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from nearcall_lab.environment import OTHERS
from nearcall_lab.results.model import Launch

SLOWER = 1.3
"""A canary loop that takes so many times its usual time, before and after, tells of a slower machine."""
STOLEN = 0.02
"""Share of the CPU time a hypervisor may take."""
_USUAL_FROM = 5
"""Canaries it takes to know what is usual."""
WAITED = 0.02
"""Share of the time in which a launch wants a CPU that it may wait for one, while others have more than `OTHERS`."""
REPETITIONS = 2
"""Times a disturbed launch is repeated before it is taken with a remark."""


class Watch:
    """Judges launches by what the machine did during them, and by the canaries before and after them.

    Competitors are told by two signs together: other work had a part of the launch's CPUs, and the launch's threads
    waited for a CPU. Either alone misleads: threads of one mechanism wait for each other, too, and the kernel's own
    work belongs to nobody. The canary cannot see competitors, because a short loop mostly ends before its turn does;
    it tells of a CPU that is slower for all. One slow canary of two is a moment, and not the launch.

    It looks at the machine only, never at what was measured: a launch is not repeated because its result surprises.
    Repetitions have a budget, since on a machine that is never quiet they would only make the run longer.
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
