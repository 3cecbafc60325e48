"""What nearcall's gRPC server must reach in comparison with others."""

from __future__ import annotations

from dataclasses import dataclass

from nearcall_lab.stats import Ratio, format_ratio, paired_ratio

RATE, CPU = "calls per second", "CPU per call"


@dataclass(frozen=True)
class Target:
    ours: str
    than: str
    what: str
    """`RATE` or `CPU`."""
    limit: float
    """At least this many times the rate of `than`, or at most this many times its CPU time."""

    def __str__(self) -> str:
        sign = "≥" if self.what == RATE else "≤"
        return f"{self.what}, {self.ours} against {self.than}: {sign} {self.limit:g}×"


TARGETS = (
    Target("nearcall-grpc", "grpcio-tcp", RATE, 12),
    Target("nearcall-grpc", "grpc-aio-uvloop-tcp", RATE, 15),
    Target("nearcall-grpc", "grpc-go", RATE, 1.2),
    Target("nearcall-grpc", "grpc-go", CPU, 1),
    Target("nearcall-grpc", "tonic", RATE, 0.5),
    Target("nearcall-aio-grpc", "grpc-aio-tcp", RATE, 10),
)


@dataclass(frozen=True)
class Verdict:
    target: str
    measured: str
    met: bool | None
    """None where there is nothing to compare."""
    ratio: Ratio | None = None


def judge(values: dict[tuple[str, str], dict[int, float]]) -> list[Verdict]:
    """The verdicts. `values` has a number per round for each pair of a server's name and `RATE` or `CPU`."""
    found = []
    for target in TARGETS:
        ours, theirs = values.get((target.ours, target.what), {}), values.get((target.than, target.what), {})
        both = sorted(ours.keys() & theirs.keys())
        if not both:
            found.append(Verdict(str(target), "not measured", None))
            continue
        ratio = paired_ratio([ours[each] for each in both], [theirs[each] for each in both])
        met = ratio.value >= target.limit if target.what == RATE else ratio.value <= target.limit
        found.append(Verdict(str(target), format_ratio(ratio), met, ratio))
    return found
