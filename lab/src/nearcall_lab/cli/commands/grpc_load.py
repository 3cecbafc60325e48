"""``nearcall-lab grpc-load``."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.console import Console

from nearcall_lab.cli.command import UserError, above_zero, aligned

NAME = "grpc-load"
HELP = "gRPC servers under h2load: calls per second and CPU per call, beside nearcall's targets"
EPILOG = """\
One connection, 50 streams, the lab's typed call with Protobuf messages: nearcall over grpc://, with threads and with
coroutines, grpcio, grpc.aio, grpc.aio with uvloop, grpc-go, and tonic. A fresh server for each, in random order, round
by round; each is asked by grpcio first whether it answers rightly, and h2load's bytes are counted.

It needs h2load (Debian: nghttp2-client). `nearcall-lab install go rust` builds the servers of grpc-go and tonic first;
the latter takes some minutes.

exit status: 0 it was measured, whatever came of it, 2 h2load is missing
"""


def arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=above_zero(int), default=5, metavar="N", help="fresh servers (default: 5)")
    parser.add_argument("--seconds", type=above_zero(float), default=3.0, metavar="S", help="for each (default: 3)")
    parser.add_argument("--out", type=Path, default=Path("out"), help="directory for grpc-load.json (default: out)")


def run(args: argparse.Namespace, console: Console) -> int:
    import random
    import shutil
    import statistics
    import tempfile

    import msgspec

    from nearcall_lab.environment import capture, conclude, cpu_ticks
    from nearcall_lab.grpc_load.measure import NoServer, Subject, load, of_lab
    from nearcall_lab.grpc_load.targets import CPU, RATE, judge
    from nearcall_lab.placement import choose
    from nearcall_lab.registry import discover
    from nearcall_lab.stats import significant
    from nearcall_lab.workers.worker import LaunchFailed

    if shutil.which("h2load") is None:
        raise UserError("h2load is not on the PATH: sudo apt install nghttp2-client")
    wanted = (
        "nearcall-grpc",
        "nearcall-aio-grpc",
        "grpcio-tcp",
        "grpc-aio-tcp",
        "grpc-aio-uvloop-tcp",
        "grpc-go",
        "tonic",
    )
    subjects: list[Subject] = []
    problems: dict[str, str] = {}
    for entrant in discover():
        name = entrant.mechanism.name
        if name in wanted and entrant.problem:
            problems[name] = entrant.problem
        elif name in wanted:
            subjects.append(of_lab(entrant))
    environment, ticks, placement = capture(), cpu_ticks(), choose("apart")
    values: dict[tuple[str, str], dict[int, float]] = {}
    with tempfile.TemporaryDirectory(prefix="nearcall-lab-") as directory:
        for number in range(args.rounds):
            for subject in random.sample(subjects, len(subjects)):
                try:
                    found = load(subject, placement, args.seconds, Path(directory))
                except (NoServer, LaunchFailed) as reason:
                    problems[subject.name] = str(reason)
                    continue
                values.setdefault((subject.name, RATE), {})[number] = found.calls_per_s
                values.setdefault((subject.name, CPU), {})[number] = found.cpu_us
                said = f"round {number + 1}: {subject.label}: {found.calls_per_s:,.0f} calls/s"
                console.print(f"{said}, {significant(found.cpu_us)} µs of CPU each", highlight=False)
    conclude(environment, ticks, [])
    rows = [("server", "calls/s", "CPU µs/call", "rounds")]
    for subject in subjects:
        rates, costs = values.get((subject.name, RATE), {}), values.get((subject.name, CPU), {})
        if rates:
            rate, cost = statistics.median(rates.values()), statistics.median(costs.values())
            rows.append((subject.label, f"{rate:,.0f}", significant(cost), str(len(rates))))
    verdicts = judge(values)
    for line in [*aligned(rows), "", *(f"{one.target}: {one.measured} ({_word(one.met)})" for one in verdicts)]:
        console.print(line, highlight=False)
    for name, why in problems.items():
        console.print(f"{name}: {why}", highlight=False)
    for flag in environment.flags():
        console.print(f"Caution: {flag}.", highlight=False)
    report = {
        "kind": "nearcall-lab grpc-load",
        "rounds": args.rounds,
        "seconds": args.seconds,
        "placement": placement.describe(),
        "environment": environment,
        "red_flags": environment.flags(),
        "by_round": {f"{name}: {what}": found for (name, what), found in values.items()},
        "verdicts": verdicts,
        "problems": problems,
    }
    args.out.mkdir(parents=True, exist_ok=True)
    (args.out / "grpc-load.json").write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=1))
    return 0


def _word(met: bool | None) -> str:
    return {True: "met", False: "not met", None: "–"}[met]
