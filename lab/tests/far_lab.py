"""``far_lab.py URL STEP``: a lab that measures on another machine and says when it has come to a step; then it stays
there until its input has a line or ends, or goes on if that takes a while anyway. The tests kill it, or its connection.
"""

from __future__ import annotations

import sys
from typing import Any

from nearcall_lab.hosts.connection import Connection
from nearcall_lab.hosts.hosts import Hosts
from nearcall_lab.hosts.server import Server
from nearcall_lab.registry import entrants_of
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.load import Planned
from nearcall_lab.workers.worker import LaunchFailed


def _stay_before(kind: type[Any], method: str) -> None:
    go_on = getattr(kind, method)

    def say_first(self: Any, *arguments: Any, **named: Any) -> Any:
        print("here", flush=True)
        sys.stdin.readline()
        return go_on(self, *arguments, **named)

    setattr(kind, method, say_first)


def main() -> None:
    url, step = sys.argv[1:]
    place: dict[str, tuple[type[Any], str]] = {
        "connected": (Connection, "_must_be_usable"),
        "kept": (Connection, "start_agent"),
        "started": (Server, "begin"),
        "measured": (Server, "conclude"),
        "ending": (Server, "end"),
    }
    if step in place:
        _stay_before(*place[step])
    entrant = next(e for e in entrants_of("nearcall_lab.adapters.raw_socket") if e.mechanism.name == "raw-tcp")
    seconds = 60.0 if step == "measuring" else 0.1
    cell = Cell("raw-tcp", Work("echo", size=100), Mode(seconds=seconds, warmup_s=0.02), host=url)
    planned = [Planned(cell, entrant)]
    if step == "measuring":
        go_on = Server.begin

        def begin(self: Server) -> None:
            go_on(self)
            print("here", flush=True)

        Server.begin = begin  # type: ignore[method-assign]

    with Hosts(planned) as machines:
        try:
            with machines.fresh_processes([cell], entrant) as measure:
                measure(cell, 0, 0)
        except LaunchFailed as failure:
            print(failure, flush=True)
            return
    print("done", flush=True)


if __name__ == "__main__":
    main()
