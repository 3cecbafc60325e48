"""What a call costs in instructions and in misses of the caches, as valgrind counts them: for machines that are noisy.

Usage: python tools/count_instructions.py [call ...]      # of: raw, text, dataclass
       python tools/count_instructions.py files           # of Rust that a call of `text` passes, and what it runs there

Over shared memory, client and server in turn. The process that is counted is some fifty times slower than the other
one, so that it seldom waits, and what it does for a call is nearly the same from run to run. Two runs of different
length are subtracted, so that neither the start nor the imports count. The caches are 32 KiB for each of instructions
and data, 8 ways. How long an instruction or a miss takes it does not say: `make bench` does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import nearcall

SPIN = 0.01
"""Seconds. A peer that slept would be waited for, and what is run while waiting would be counted."""
SHORT, LONG = 2_000, 8_000
"""Calls of the two runs."""
EVENTS = {"instructions": r"I\s+refs", "misses of instructions": r"I1\s+misses", "misses of data": r"D1\s+misses"}
CACHES = ("--I1=32768,8,64", "--D1=32768,8,64", "--LL=33554432,16,64")


@dataclass
class Quote:
    """A record as services send them."""

    symbol: str
    bid: float
    ask: float
    size: int
    tags: list[str]


@nearcall.service
class Counted:
    """What is called."""

    def raw(self, data: bytes) -> bytes:
        """Bytes, which have no encoding."""
        return data

    def text(self, value: str) -> str:
        """The least that has one."""
        return value

    def dataclass(self, quote: Quote) -> Quote:
        """What most services send."""
        return quote


VALUES = {"raw": b"fifteen bytes..", "text": "hello there", "dataclass": Quote("ABC", 1.5, 2.5, 100, ["a", "b"])}


def call(url: str, name: str, times: int) -> None:
    """The client's process."""
    with nearcall.connect(url, Counted, spin=SPIN) as client:
        method, value = getattr(client, name), VALUES[name]
        for _ in range(times):
            method(value)


def serve(url: str) -> None:
    """The server's process: until its input ends."""
    with nearcall.Server(Counted(), url, spin=SPIN):
        print("ready", flush=True)
        sys.stdin.read()


def counted(side: str, name: str, times: int) -> tuple[list[int], Counter[str]]:
    """The events of one run of one side, and the instructions in each of our files."""
    with tempfile.TemporaryDirectory() as directory:
        environment = {**os.environ, "XDG_RUNTIME_DIR": directory}
        valgrind = ["valgrind", "--tool=cachegrind", "--cache-sim=yes", *CACHES]
        valgrind += [f"--log-file={directory}/log", f"--cachegrind-out-file={directory}/out"]
        programs = {
            role: [*(valgrind if role == side else []), sys.executable, __file__, role, "shm://counted"]
            for role in ("serve", "call")
        }
        with subprocess.Popen(
            programs["serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
        ) as server:
            assert server.stdout is not None
            server.stdout.readline()
            subprocess.run([*programs["call"], name, str(times)], check=True, env=environment)
            server.communicate()
        log, out = Path(directory, "log").read_text(), Path(directory, "out").read_text()
    events = [
        int(found[1].replace(",", ""))
        for event in EVENTS.values()
        if (found := re.search(rf"{event}:\s+([\d,]+)", log))
    ]
    files: Counter[str] = Counter()
    for part in out.split("\nfl=")[1:]:
        path, *lines = part.splitlines()
        if ours := re.fullmatch(r"(?:.*/)?(crates/(?!core_arch)\w+/src/.*)", path):
            files[ours[1]] += sum(int(line.split()[1]) for line in lines if line[0].isdigit())
    return events, files


def show_files() -> None:
    """Prints the files of ours that a call runs something of, those with the most first."""
    total: dict[str, dict[str, float]] = {}
    for side in ("call", "serve"):
        (_, short), (_, long) = (counted(side, "text", times) for times in (SHORT, LONG))
        for path, count in long.items():
            if (each := (count - short[path]) / (LONG - SHORT)) >= 1:
                total.setdefault(path, {})[side] = each
    for path, sides in sorted(total.items(), key=lambda item: -sum(item[1].values())):
        print(f"{sides.get('call', 0):5.0f}  {sides.get('serve', 0):5.0f}  {path}")
    print(f"{len(total)} files")


def main() -> None:
    """Prints a row for each call and side."""
    names = sys.argv[1:] or list(VALUES)
    if unknown := set(names) - set(VALUES):
        raise SystemExit(f"there is no call {', '.join(sorted(unknown))}: there are {', '.join(VALUES)}")
    print(f"{'per call':10} {'':8}", *EVENTS, sep="  ")
    for name in names:
        for side in ("call", "serve"):
            short, long = (counted(side, name, times)[0] for times in (SHORT, LONG))
            events = ((b - a) / (LONG - SHORT) for a, b in zip(short, long, strict=True))
            print(
                f"{name:10} {side:8}",
                *(f"{n:{len(e)}.0f}" for n, e in zip(events, EVENTS, strict=True)),
                sep="  ",
                flush=True,
            )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        serve(sys.argv[2])
    elif sys.argv[1:2] == ["call"]:
        call(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1:] == ["files"]:
        show_files()
    else:
        main()
