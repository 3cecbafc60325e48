"""The flow, drawn in a terminal: a line for each way a message may go, with its rate and where the rate came from."""

import time
from collections import defaultdict, deque
from typing import TextIO

from nearcall import route

BARS = " ▁▂▃▄▅▆▇█"
LENGTH = 24
UP, CLEAR, BOLD, DIM, RED, PLAIN = "\x1b[{}F", "\x1b[K", "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[0m"


class Flow:
    """What is known of one way: its rate over the last second, and rates before."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque(maxlen=11)
        self._rates: deque[float] = deque([0.0] * LENGTH, maxlen=LENGTH)
        self.total = 0

    def note(self, now: float, total: int) -> None:
        if self._seen:
            at, before = self._seen[-1]
            self._rates.append(max(0.0, (total - before) / max(now - at, 1e-6)))
        self._seen.append((now, total))
        self.total = total

    @property
    def rate(self) -> float:
        (first, before), (last, after) = self._seen[0], self._seen[-1]
        return max(0.0, (after - before) / (last - first)) if last > first else 0.0

    def bars(self, highest: float) -> str:
        top = len(BARS) - 1
        return "".join(BARS[min(top, round(rate / highest * top))] for rate in self._rates)

    @property
    def highest(self) -> float:
        return max(self._rates)


class Picture:
    """Draws again and again in the same place; if not ``live``, only what is said is printed."""

    def __init__(self, out: TextIO, *, live: bool) -> None:
        self._out = out
        self._live = live
        self._begin = time.monotonic()
        self._flows: dict[str, Flow] = defaultdict(Flow)
        self._height = 0

    def say(self, words: str) -> None:
        """A line that stays, above the picture."""
        erased = UP.format(self._height) + "\x1b[J" if self._height else ""
        self._height = 0
        print(f"{erased}{time.monotonic() - self._begin:6.1f} s  {words}", file=self._out, flush=True)

    def draw(self, seen: dict[str, route.NodeStatus]) -> None:
        """The flow, by what its nodes say of themselves."""
        if not self._live:
            return
        now = time.monotonic()
        frames = seen["frames"]
        detectors = [each for each in frames.endpoints if "detector" in each.name]
        for each in detectors:
            self._flows[each.name].note(now, each.sent)
        self._flows["fuser"].note(now, seen["fuser"].taken)
        self._flows["logger"].note(now, seen["logger"].taken)
        highest = max(1.0, *(flow.highest for flow in self._flows.values()))

        def line(left: str, key: str, name: str, more: str = "") -> str:
            flow = self._flows[key]
            return f"{left:>12} ─→ {name:<12}{flow.bars(highest)} {flow.rate:7,.0f}/s {flow.total:10,}  {more}"

        lines = [f"{BOLD}table {frames.table}{PLAIN}"]
        for number, each in enumerate(detectors):
            state = f"{each.queued} wait" if each.connected else "not connected"
            text = line("frames" if not number else "", each.name, each.name.rpartition("pipeline-")[2], state)
            lines.append(text if each.connected else f"{RED}{text}{PLAIN}")
        lines += [line("detectors", "fuser", "fuser"), line("fuser", "logger", "logger")]
        dropped, handed_on = (sum(getattr(each, name) for each in detectors) for name in ("dropped", "handed_on"))
        lines.append(f"{DIM}{dropped:,} dropped, {handed_on:,} handed on to another detector{PLAIN}")
        before = UP.format(self._height) if self._height else ""
        self._out.write(before + "".join(f"{each}{CLEAR}\n" for each in lines) + "\x1b[J")
        self._out.flush()
        self._height = len(lines)
