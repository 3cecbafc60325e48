"""``nearcall-lab cross-check``."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from rich.console import Console

from nearcall_lab.cli.command import UserError, above_zero

if TYPE_CHECKING:
    from nearcall_lab.registry import Entrant

NAME = "cross-check"
HELP = "whether another program measures the same of the same server: one in C, or ghz for gRPC"
EPILOG = """\
examples:
  nearcall-lab cross-check c
  go install github.com/bojand/ghz/cmd/ghz@latest
  nearcall-lab cross-check ghz

Each time the lab and another program call one server in turns.

c: the server of raw-unix, whose handler does nothing, and a client in C (made here, with the C compiler). The median
that the lab sees may be above that of C by what its client, which is Python, uses more CPU time, and by 15 % besides.

ghz: a server of grpc.aio whose handler waits 10 ms: what the two clients cost themselves, one in Python and one in Go,
is then a small part. What must agree are the medians, within 15 %. An error below a millisecond cannot be seen.

exit status: 0 they agree, 1 they do not, 2 the other program is not there or did not run.
"""
_WITHIN = 0.15
_DELAY_S = 0.01
_PROTO = """syntax = "proto3";
package nearcall_lab;
message Wait { double seconds = 1; }
message Named { int32 id = 1; string name = 2; }
service Lab { rpc Wait(Wait) returns (Named); }
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("tool", choices=("c", "ghz"), help="the other program; ghz must be on the PATH")
    parser.add_argument("--rounds", type=above_zero(int), default=5, metavar="N", help="fresh servers (default: 5)")
    parser.add_argument(
        "--calls", type=above_zero(int), metavar="N", help="of each, per round (default: c 5000, ghz 200)"
    )


def run(args: argparse.Namespace, console: Console) -> int:
    if args.tool == "c":
        return _beside_c(args.rounds, args.calls or 5_000, console)
    return _beside_ghz(args.rounds, args.calls or 200, console)


def _entrant(name: str) -> Entrant:
    """A mechanism that can run here. Raises `UserError`."""
    from nearcall_lab.registry import discover

    entrant = next(entrant for entrant in discover() if entrant.mechanism.name == name)
    if entrant.problem:
        raise UserError(f"{name}: {entrant.problem}")
    return entrant


def _beside_c(rounds: int, calls: int, console: Console) -> int:
    import statistics

    from nearcall_lab.cross_check.c_client import WITHIN, Both, NoClient, compare
    from nearcall_lab.stats import format_time
    from nearcall_lab.workers.worker import LaunchFailed

    def line(what: str, lab: float, c: float) -> None:
        console.print(f"  {what:32}{format_time(lab):>10}{format_time(c):>10}", highlight=False)

    def tell(number: int, both: Both) -> None:
        console.print(f"server {number + 1}, raw-unix; clients:{'lab':>19}{'C':>10}", highlight=False)
        line("median of 15 B there and back", both.lab.p50_ns, both.c.p50_ns)
        line("CPU time of the client per call", both.lab.cpu_ns, both.c.cpu_ns)

    try:
        found = compare(_entrant("raw-unix"), rounds, calls, tell)
    except NoClient as reason:
        raise UserError(str(reason)) from None
    except LaunchFailed as reason:
        raise UserError(f"the server or its client failed: {reason}") from None
    more = statistics.median(both.lab.p50_ns - both.c.p50_ns for both in found)
    cpu = statistics.median(both.lab.cpu_ns - both.c.cpu_ns for both in found)
    unexplained = statistics.median(both.unexplained for both in found)
    agree = abs(unexplained) <= WITHIN
    said = (
        f"{rounds} servers, medians: the lab sees {_signed(more)} more than C, its client uses {_signed(cpu)} more CPU"
    )
    verdict = "they agree" if agree else "they do not agree"
    console.print(f"{said}; unexplained {unexplained:.0%} of C's: {verdict} within {WITHIN:.0%}", highlight=False)
    return 0 if agree else 1


def _signed(ns: float) -> str:
    from nearcall_lab.stats import format_time

    return f"{'-' if ns < 0 else ''}{format_time(abs(ns))}"


def _beside_ghz(rounds: int, calls: int, console: Console) -> int:
    import shutil
    import statistics

    from nearcall_lab.engine.launch import CellRun, crew_of
    from nearcall_lab.results.distribution import decode
    from nearcall_lab.scenario.cell import Cell, Mode, Work
    from nearcall_lab.stats import format_time
    from nearcall_lab.workers.worker import LaunchFailed

    ghz = shutil.which("ghz")
    if ghz is None:
        raise UserError("ghz is not on the PATH: go install github.com/bojand/ghz/cmd/ghz@latest")
    entrant = _entrant("grpc-aio-tcp")
    cell = Cell("grpc-aio-tcp", Work("wait", delay_s=_DELAY_S), Mode(calls=calls), placement="free")
    ours, theirs = [], []
    for number in range(rounds):
        try:
            with crew_of([cell], entrant) as crew:
                launch = CellRun(cell, crew).run(number, number)
                theirs.append(_ghz_median_ns(ghz, crew.address, calls))
        except LaunchFailed as reason:
            raise UserError(f"the server or its client failed: {reason}") from None
        assert launch.response is not None
        ours.append(decode(launch.response).at_rank((launch.calls + 1) // 2))
        said = f"round {number + 1}: lab {format_time(ours[-1])}, ghz {format_time(theirs[-1])}"
        console.print(said, highlight=False)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs, strict=True))
    agree = abs(ratio - 1) <= _WITHIN
    medians = f"lab {format_time(statistics.median(ours))}, ghz {format_time(statistics.median(theirs))}"
    verdict = "they agree" if agree else "they do not agree"
    console.print(f"median of {rounds} p50s: {medians}; ratio {ratio:.3f}: {verdict} within {_WITHIN:.0%}")
    return 0 if agree else 1


def _ghz_median_ns(ghz: str, address: str, calls: int) -> float:
    """The median that ghz reports, with one call under way at a time. Raises `UserError`."""
    import json
    import subprocess
    import tempfile
    from pathlib import Path

    with tempfile.TemporaryDirectory(prefix="nearcall-lab-") as directory:
        proto = Path(directory) / "lab.proto"
        proto.write_text(_PROTO)
        call = ["--call", "nearcall_lab.Lab.Wait", "-d", json.dumps({"seconds": _DELAY_S})]
        load = ["-c", "1", "--connections", "1", "-n", str(calls + 10), "--skipFirst", "10"]
        command = [ghz, "--insecure", "--proto", str(proto), *call, *load, "-O", "json", address]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60 + 10 * calls * _DELAY_S)
    try:
        found = json.loads(done.stdout)
        if found.get("errorDistribution"):
            raise UserError(f"ghz: calls failed: {found['errorDistribution']}")
        return float(next(one["latency"] for one in found["latencyDistribution"] if one["percentage"] == 50))
    except (ValueError, KeyError, StopIteration):
        raise UserError(f"ghz did not run: {' '.join((done.stderr or done.stdout).split())[:300]}") from None
