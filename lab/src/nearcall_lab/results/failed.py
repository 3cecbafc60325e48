"""The calls of a cell that failed: how many, and for which reason."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nearcall_lab.results.model import Launch

_SHOWN = 3


@dataclass(frozen=True)
class Failed:
    """Failed calls of some launches."""

    kinds: dict[str, int]
    """Calls by kind, the most frequent first."""
    made: int
    """All calls that were made: right ones and failed ones."""

    @property
    def calls(self) -> int:
        """How many failed."""
        return sum(self.kinds.values())

    @property
    def share(self) -> float:
        """Failed calls as a share of all that were made."""
        return self.calls / self.made if self.made else 0.0

    @property
    def reasons(self) -> str:
        """For example ``AioRpcError CANCELLED``; where there are several, with the number of calls of each."""
        if len(self.kinds) < 2:
            return "".join(self.kinds)
        shown = [f"{kind} ({count:,})" for kind, count in list(self.kinds.items())[:_SHOWN]]
        rest = len(self.kinds) - _SHOWN
        return ", ".join(
            [*shown, *([f"and {rest} more kinds" if rest > 1 else "and one more kind"] if rest > 0 else [])]
        )

    def sentence(self) -> str:
        """For example ``3,756 of 10,000 failed: AioRpcError CANCELLED``; empty where no call failed."""
        return f"{self.calls:,} of {self.made:,} failed: {self.reasons}" if self.calls else ""


def failed_of(launches: Sequence[Launch]) -> Failed:
    """The failed calls of all these launches together."""
    kinds: Counter[str] = sum((Counter(launch.errors) for launch in launches), Counter())
    ordered = dict(sorted(kinds.items(), key=lambda item: (-item[1], item[0])))
    return Failed(ordered, sum(launch.calls for launch in launches) + kinds.total())
