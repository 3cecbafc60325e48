"""The keys a scenario file may contain, the values each takes, and the error messages for wrong ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, get_args

from nearcall_lab.contract import Operation, Style
from nearcall_lab.scenario.cell import CellsPerLaunch, ModeKind, Network, PlacementMode
from nearcall_lab.scenario.host import FORM, LOCAL, HostProblem, host_of

Kind = Literal["text", "count", "number", "flag", "size", "choice", "patterns", "sizes", "host", "network"]

ORDERS = ("abba", "rounds")
_NETWORK = Network.__struct_fields__
_MOST_OF_NETWORK = 1_000_000
TRACKS = ("raw", "objects", "both")


class KeyProblem(Exception):
    """A value that its key does not take; the message names the allowed values."""


@dataclass(frozen=True)
class Key:
    """One key: what it takes, and whether a list of such values multiplies the cells."""

    name: str
    kind: Kind
    help: str
    choices: tuple[str, ...] = ()
    least: float = 0
    above: bool = False
    """The value must be above `least`, not equal to it."""
    many: bool = False

    def allowed(self) -> str:
        """The allowed values, as a phrase."""
        bound = f"{'above' if self.above else 'of at least'} {self.least:g}"
        one = {
            "text": "a text",
            "count": f"a whole number {bound}",
            "number": f"a number {bound}",
            "flag": "true or false",
            "size": 'bytes as a whole number, or a text such as "10 KB"',
            "choice": "one of " + ", ".join(f'"{choice}"' for choice in self.choices),
            "patterns": 'a list of names, where * stands for anything, such as ["nearcall-*", "grpcio-tcp"]',
            "host": FORM,
            "network": f"a table such as {{ delay_ms = 10, jitter_ms = 1 }} with {', '.join(_NETWORK)}",
            "sizes": 'a list of sizes such as [1000, "10 KB"]',
        }[self.kind]
        return f"{one}, or a list of such values" if self.many else one

    def one(self, value: Any) -> Any:
        """A single value, checked. Raises `KeyProblem`."""
        if self.kind in ("patterns", "sizes"):
            return self._list(value)
        if self.kind == "network":
            return self._network(value)
        if self.kind == "flag" and isinstance(value, bool):
            return value
        if isinstance(value, bool) or not isinstance(value, (str, int, float)):
            raise self._wrong(value)
        if self.kind == "size":
            return self._size(value)
        if self.kind == "host" and isinstance(value, str):
            return self._host(value)
        if (self.kind == "text" and isinstance(value, str)) or (self.kind == "choice" and value in self.choices):
            return value
        if self.kind == "count" and isinstance(value, int) and self._enough(value):
            return value
        if self.kind == "number" and isinstance(value, (int, float)) and self._enough(value):
            return float(value)
        hint = suggest(value, self.choices) if isinstance(value, str) else ""
        raise self._wrong(value, hint)

    def values(self, value: Any) -> list[Any]:
        """All values given for the key: a list where the key multiplies the cells. Raises `KeyProblem`."""
        if not (self.many and isinstance(value, list)):
            return [self.one(value)]
        if not value:
            raise KeyProblem(f"{self.name} is an empty list; it takes {self.allowed()}")
        found = [self.one(item) for item in value]
        if len(set(found)) < len(found):
            raise KeyProblem(f"{self.name} names a value twice: {value!r}")
        return found

    def _list(self, value: Any) -> tuple[Any, ...]:
        items = [value] if isinstance(value, str) and self.kind == "patterns" else value
        if not isinstance(items, list) or not items:
            raise self._wrong(value)
        if self.kind == "sizes":
            return tuple(self._size(item) for item in items)
        if not all(isinstance(item, str) for item in items):
            raise self._wrong(value)
        return tuple(items)

    def _enough(self, value: float) -> bool:
        return value > self.least if self.above else value >= self.least

    def _size(self, value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?) ?(B|KB|MB|GB)", value) if isinstance(value, str) else None
        if found is None:
            raise self._wrong(value)
        return round(float(found[1]) * {"B": 1, "KB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}[found[2]])

    def _network(self, value: Any) -> Network:
        if not isinstance(value, dict) or not value:
            raise self._wrong(value)
        if "loss" in value:
            raise KeyProblem(
                "network: loss cannot be had from a relay between connections, which loses no packets; give the "
                "interface between two machines one by tc netem, and name the other machine by hosts"
            )
        for key, number in value.items():
            if key not in _NETWORK:
                raise KeyProblem(f'network: unknown key "{key}"{suggest(key, _NETWORK)}; it takes {self.allowed()}')
            if isinstance(number, bool) or not isinstance(number, (int, float)) or not 0 <= number <= _MOST_OF_NETWORK:
                raise KeyProblem(f"network: {key} is {show(number)}; it takes a number from 0 to {_MOST_OF_NETWORK:,}")
        found = Network(**{key: float(number) for key, number in value.items()})
        if found.jitter_ms > found.delay_ms:
            raise KeyProblem("network: jitter_ms is more than delay_ms, and nothing comes before it was sent")
        return found

    def _host(self, value: str) -> str:
        if value == LOCAL:
            return ""
        try:
            host_of(value)
        except HostProblem as problem:
            raise KeyProblem(f"{self.name}: {show(value)} {problem}") from None
        return value

    def _wrong(self, value: Any, hint: str = "") -> KeyProblem:
        return KeyProblem(f"{self.name} is {show(value)}{hint}; it takes {self.allowed()}")


def show(value: Any) -> str:
    """A value as TOML shows it, short enough for one line."""
    text = {True: "true", False: "false"}.get(value) if isinstance(value, bool) else None
    text = text or (f'"{value}"' if isinstance(value, str) else repr(value))
    return text if len(text) <= 60 else f"{text[:57]}..."


def suggest(wrong: str, known: Iterable[str]) -> str:
    """``; did you mean "size"?``, or an empty text where no known name is similar."""
    near = difflib.get_close_matches(wrong, list(known), n=1, cutoff=0.6)
    return f'; did you mean "{near[0]}"?' if near else ""


def _by_name(*keys: Key) -> dict[str, Key]:
    return {key.name: key for key in keys}


TOP = _by_name(
    Key("title", "text", "what the run is about"),
    Key("baseline", "text", "mechanism that ratios are taken against"),
)

RUN = _by_name(
    Key("launches", "count", "fresh pairs of processes that measure a cell", least=1),
    Key("seconds", "number", "timed length of a cell per launch", least=0, above=True),
    Key("warmup_s", "number", "length of the warm-up before it, seconds"),
    Key("placement", "choice", "which CPUs the two sides run on", get_args(PlacementMode)),
    Key("cells_per_launch", "choice", "what fresh processes measure before they end", get_args(CellsPerLaunch)),
    Key("order", "choice", "how launches are interleaved", ORDERS),
    Key("seed", "count", "seed of the order and of the arrivals"),
    Key("track", "choice", "raw bytes, native objects, or both", TRACKS),
    Key("limit_s", "number", "no new launch starts after so many seconds", least=0, above=True),
)

CELLS = _by_name(
    Key("mechanisms", "patterns", "who takes part"),
    Key("exclude", "patterns", "who does not, though matched by `mechanisms`"),
    Key("servers", "patterns", "the clients of `mechanisms` call the servers of these, instead of their own"),
    Key("style", "choice", "of these, only those called in this way", get_args(Style)),
    Key("operation", "choice", "what a call does", get_args(Operation), many=True),
    Key("size", "size", "payload of echo and send", many=True),
    Key("sizes", "sizes", "payloads of one batch (mode mixed)"),
    Key("items", "count", "integers per call of count", least=1, many=True),
    Key("delay_s", "number", "how long the handler of wait waits, seconds", many=True),
    Key("mode", "choice", "how calls arrive", get_args(ModeKind), many=True),
    Key("connections", "count", "connections in all", least=1, many=True),
    Key("outstanding", "count", "calls under way at most on each connection", least=1, many=True),
    Key("client_processes", "count", "processes the connections are spread over", least=1, many=True),
    Key("callers", "count", "threads or tasks that call at once, over all connections in turn", least=1, many=True),
    Key("rate", "number", "calls or messages due per second", least=0, above=True, many=True),
    Key("arrivals", "choice", "how due times are spread", ("poisson", "fixed"), many=True),
    Key("calls", "count", "ends the cell after so many calls; the size of a burst", least=1, many=True),
    Key("seconds", "number", "timed length per launch, instead of the run's", least=0, above=True),
    Key("warmup_s", "number", "warm-up, instead of the run's"),
    Key("placement", "choice", "instead of the run's", get_args(PlacementMode), many=True),
    Key("hosts", "host", "the machine that the server runs on", many=True),
    Key("network", "network", "what is put between clients and server", many=True),
    Key("extra_copy", "flag", "one-way: the sender copies each message into a ring of its own first", many=True),
    Key("same_process", "flag", "server and client in one process"),
)
