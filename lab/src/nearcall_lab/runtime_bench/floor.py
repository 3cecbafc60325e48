"""The shared-memory ring without Python, measured by a program that belongs to the runtime."""

from __future__ import annotations

import json
import shutil
import subprocess

from nearcall_lab.placement import Placement, on_cpus

DEFAULT = "nearcall-ring-floor"


def find(path: str | None) -> tuple[str, str]:
    """The program to run, or an empty string and the reason why there is none."""
    if path is not None:
        return (path, "") if shutil.which(path) else ("", f"not an executable file: {path}")
    found = shutil.which(DEFAULT)
    return (found, "") if found else ("", f"{DEFAULT} is not on the PATH; pass --floor-binary")


def measure(program: str, placement: Placement, timeout_s: float = 60.0) -> dict[int, float]:
    """Run the program once, on the CPUs of `placement`; it pins its own two sides.

    It prints one JSON object per line, ``{"size": 15, "p50_ns": …, "p99_ns": …, "n": …}``.
    Returns p50 in nanoseconds by payload size in bytes.
    """
    with on_cpus({*placement.client, *placement.server}):
        done = subprocess.run(
            [program], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s, check=True
        )
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {int(line["size"]): float(line["p50_ns"]) for line in lines}
