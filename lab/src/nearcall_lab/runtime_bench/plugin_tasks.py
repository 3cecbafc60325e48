"""The tasks of `make bench` that measure the plugin host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nearcall_lab.placement import Placement, choose
from nearcall_lab.registry import Entrant
from nearcall_lab.results.histogram import latencies
from nearcall_lab.runtime_bench.pair import Pair
from nearcall_lab.runtime_bench.results import Amounts, Collected

PLUGINS = "nearcall_lab.runtime_bench.plugins"
EVENT_PLUGINS, IDLE_PLUGINS = 50, 20


class PluginTasks:
    """Each task is one fresh host per round. Where there are more processes than CPUs, the system places them."""

    def __init__(self, service: Entrant, placement: Placement, amounts: Amounts, collected: Collected) -> None:
        self._service = service
        self._apart = placement
        self._free = choose("free")
        self._amounts = amounts
        self._collected = collected

    def tasks(self) -> dict[str, Callable[[int], None]]:
        """By name."""
        return {
            "plugin call": self._call,
            "plugin event": self._event,
            "plugin start": self._start,
            "plugin idle": self._idle,
            "plugin disturbed": self._disturbed,
        }

    def _call(self, turn: int) -> None:
        with Pair(self._service, self._apart) as pair:
            arguments = {"seconds": self._amounts.slice_s, "cpus": list(self._apart.server)}
            found = pair.probe(f"{PLUGINS}:calls", 300, **arguments)
        for name, median in found["medians"].items():
            self._collected.add(f"plugin call {name}", turn, median)
        for name, problem in found["problems"].items():
            self._collected.problems[f"plugin call {name}"] = problem

    def _event(self, turn: int) -> None:
        with Pair(self._service, self._free) as pair:
            found = pair.probe(f"{PLUGINS}:event", 300, plugins=EVENT_PLUGINS, times=self._amounts.events)
        for name, median in found.items():
            self._collected.add(f"plugin event {name}", turn, median)

    def _start(self, turn: int) -> None:
        with Pair(self._service, self._free) as pair:
            found = pair.probe(f"{PLUGINS}:start", 300, times=self._amounts.imports)
        self._collected.add("plugin start interpreter", turn, found["interpreter"])
        self._collected.add("plugin start beyond", turn, found["plugin"] - found["interpreter"])

    def _idle(self, turn: int) -> None:
        with Pair(self._service, self._free) as pair:
            found = pair.probe(f"{PLUGINS}:idle", 300, plugins=IDLE_PLUGINS, seconds=self._amounts.idle_s)
        for name, value in found.items():
            self._collected.add(f"plugin idle {name}", turn, value)

    def _disturbed(self, turn: int) -> None:
        for name, disturbing in (("disturbed", True), ("undisturbed", False)):
            with Pair(self._service, self._free) as pair:
                arguments = {"seconds": self._amounts.idle_s, "disturbing": disturbing}
                samples = pair.probe(f"{PLUGINS}:disturbed", 300, **arguments)
            self._collected.add_samples(f"plugin {name}", latencies(np.asarray(samples, dtype=np.int64)))
