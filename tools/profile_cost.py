"""Measure what `nearcall profile` costs: for each call, and for a script of many.

Usage: python tools/profile_cost.py [rounds] [calls]
Each round runs the script without and with the profiler, one after the other, so that whatever else the machine does
meets both. It prints the medians over the rounds, and how far they lie apart.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import nearcall
from nearcall.profile import recorder

SERVER = """
import sys
import nearcall

@nearcall.service
class Calculator:
    def add(self, a: int, b: int) -> int:
        return a + b

with nearcall.Server(Calculator(), sys.argv[1]) as server:
    print(server.urls[0], flush=True)
    nearcall._core.rest(lambda _: bool(sys.stdin.read()), None)
"""
CLIENT = """
import sys
import time
import nearcall

with nearcall.connect(sys.argv[1]) as server:
    add = server.Calculator.add
    begun = time.perf_counter()
    for number in range(int(sys.argv[2])):
        add(number, 1)
    print(time.perf_counter() - begun)
"""
EMPTY_CALLS = 200_000


def seconds_of(command: list[str]) -> tuple[float, float]:
    """Of a script: its loop alone, as it says itself, and all from its start to its end."""
    begun = time.perf_counter()
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(said), time.perf_counter() - begun


def each(function: Callable[[int, int], object], calls: int) -> float:
    """Nanoseconds of this process that a call takes."""
    begun = time.process_time_ns()
    for number in range(calls):
        function(number, 1)
    return (time.process_time_ns() - begun) / calls


def cost_of_a_call(one_in: int) -> float:
    """Nanoseconds that a call takes longer, from a stack of few frames."""

    def add(a: int, b: int) -> int:
        return a + b

    with tempfile.TemporaryDirectory() as folder:
        made = recorder.Recorder(folder, one_in, 10 * EMPTY_CALLS)
        recorded = made.around(made.name("nearcall", "call", "add"), add)
        found = [each(recorded, EMPTY_CALLS) - each(add, EMPTY_CALLS) for _ in range(7)]
        made.close()
    return statistics.median(found)


def shown(name: str, plain: list[float], profiled: list[float]) -> str:
    """A line of the table."""
    ratios = sorted(two / one for one, two in zip(plain, profiled, strict=True))
    middle = statistics.median(ratios)
    return (
        f"{name:34} {statistics.median(plain):8.3f} s {statistics.median(profiled):8.3f} s   x {middle:.3f} "
        f"({ratios[0]:.3f} to {ratios[-1]:.3f})"
    )


def main() -> int:
    """Measure, and print."""
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 7
    calls = sys.argv[2] if len(sys.argv) > 2 else "100000"
    print(f"a recorded call costs {cost_of_a_call(1):.0f} ns more, one that a sample of 1 in 100 leaves out or not "
          f"{cost_of_a_call(100):.0f} ns (CPU time, three frames)")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        script, page = Path(folder) / "client.py", Path(folder) / "page.html"
        script.write_text(CLIENT, encoding="utf-8")
        for url in (f"shm://profile-cost-{time.time_ns()}", f"unix://{folder}/socket", "tcp://127.0.0.1:0"):
            with subprocess.Popen(
                [sys.executable, "-c", SERVER, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            ) as server:
                assert server.stdout is not None
                arguments = [str(script), server.stdout.readline().strip(), calls]
                plain = [sys.executable, *arguments]
                profile = [sys.executable, "-m", "nearcall", "profile", "--quiet", "-o", str(page)]
                kinds = {
                    "": [],
                    ", one in 100": ["--sample", "100"],
                }
                for kind, options in kinds.items():
                    pairs = [(seconds_of(plain), seconds_of([*profile, *options, *arguments])) for _ in range(rounds)]
                    name = f"{url.partition(':')[0]}{kind}"
                    print(shown(f"{name}: its {calls} calls", [a[0] for a, _ in pairs], [b[0] for _, b in pairs]))
                    print(shown(f"{name}: with the page", [a[1] for a, _ in pairs], [b[1] for _, b in pairs]))
    print(f"nearcall {nearcall.__file__}, Python {sys.version.split()[0]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
