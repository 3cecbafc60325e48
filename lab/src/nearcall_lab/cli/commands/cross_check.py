"""``nearcall-lab cross-check``."""

from __future__ import annotations

import argparse

from rich.console import Console

from nearcall_lab.cli.command import UserError, above_zero

NAME = "cross-check"
HELP = "whether another program measures the same of the same server: ghz, for gRPC"
EPILOG = """\
examples:
  go install github.com/bojand/ghz/cmd/ghz@latest
  nearcall-lab cross-check ghz

Both call one server of grpc.aio, in turns, whose handler waits 10 ms: what the two clients cost themselves, one in
Python and one in Go, is then a small part. What must agree are the medians, within 15 %.

exit status: 0 they agree, 1 they do not, 2 ghz is not installed or did not run.
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
    parser.add_argument("tool", choices=("ghz",), help="the other program; it must be on the PATH")
    parser.add_argument("--rounds", type=above_zero(int), default=5, metavar="N", help="fresh servers (default: 5)")
    parser.add_argument("--calls", type=above_zero(int), default=200, metavar="N", help="of each, per round")


def run(args: argparse.Namespace, console: Console) -> int:
    import shutil
    import statistics

    from nearcall_lab.engine.launch import CellRun, crew_of
    from nearcall_lab.registry import discover
    from nearcall_lab.results.distribution import decode
    from nearcall_lab.scenario.cell import Cell, Mode, Work
    from nearcall_lab.stats import format_time
    from nearcall_lab.workers.worker import LaunchFailed

    ghz = shutil.which(args.tool)
    if ghz is None:
        raise UserError("ghz is not on the PATH: go install github.com/bojand/ghz/cmd/ghz@latest")
    entrant = next(entrant for entrant in discover() if entrant.mechanism.name == "grpc-aio-tcp")
    if entrant.problem:
        raise UserError(f"{entrant.mechanism.name}: {entrant.problem}")
    cell = Cell("grpc-aio-tcp", Work("wait", delay_s=_DELAY_S), Mode(calls=args.calls), placement="free")
    ours, theirs = [], []
    for number in range(args.rounds):
        try:
            with crew_of([cell], entrant) as crew:
                launch = CellRun(cell, crew).run(number, number)
                theirs.append(_ghz_median_ns(ghz, crew.address, args.calls))
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
    console.print(f"median of {args.rounds} p50s: {medians}; ratio {ratio:.3f}: {verdict} within {_WITHIN:.0%}")
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
