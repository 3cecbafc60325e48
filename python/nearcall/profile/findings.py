"""Rules that find what could be better in the calls of a program. Each looks at one process."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from statistics import median_low

from .model import Finding, Process
from .reading import Frame, Record, Recorded, Site, Sites, covered

__all__ = ["duration", "findings_of"]

WORTH = 0.01
"""A finding is shown if it would save this part of the process's time."""
FEWEST = 10
"""Calls one after the other that are taken for a loop."""
BETWEEN = 8
"""Other calls that a loop may make between two of its calls."""
FEWEST_SAME = 5
FEWEST_OPENED = 5
FEWEST_COMPARED = 20
"""Calls of a line whose usual time is known well enough to say that others are slow."""
SLOW = 10
"""A call is slow if it took so many times as long as usual."""
SLOW_NS = 1_000_000
"""And at least so long."""

_ALL_IN_ONE = {
    "nearcall": "take a list or a stream in one call, or send several before waiting, with nearcall.start; in an event "
    "loop with asyncio.gather",
    "grpcio": "make it a streaming method, or send several before waiting, with .future(); in an event loop with "
    "asyncio.gather",
    "rpyc": "let one method of the service do the loop and return all results, or send several before waiting, with "
    "rpyc.async_",
    "Pyro5": "send them in one message with Pyro5.api.BatchProxy",
    "xmlrpc": "send them in one request with xmlrpc.client.MultiCall, if the server registers it",
    "requests": "ask for all in one request, or send several at once from threads",
    "httpx": "ask for all in one request, or send several at once with httpx.AsyncClient and asyncio.gather",
}
_KEEP_OPEN = {
    "nearcall": "connect once and keep the client; any number of threads may use it",
    "grpcio": "make one channel and keep it",
    "rpyc": "connect once and keep the connection",
    "Pyro5": "keep the proxy: each new one connects anew",
    "xmlrpc": "keep one ServerProxy; if there is one, the server ends each connection: one in Python speaks HTTP/1.0, "
    "unless its handler's protocol_version is 'HTTP/1.1'",
    "requests": "use one requests.Session, which keeps connections open",
    "httpx": "use one httpx.Client, which keeps connections open",
}


def findings_of(place: int, recorded: Recorded, sites: Sites, process: Process) -> list[Finding]:
    """What the rules find in the calls of a process.

    Args:
        place: Its place in the profile.
        recorded: What it has written down.
        sites: Its calls, by line and name.
        process: Its times.
    """
    looked_at = _Looked(place, recorded, sites)
    found = [
        *looked_at.identical(),
        *looked_at.loops(),
        *looked_at.chains(),
        *looked_at.connections(),
        *looked_at.slow(),
    ]
    return [*(each for each in found if each.saves >= WORTH * process.took), *looked_at.failures()]


class _Looked:
    def __init__(self, place: int, recorded: Recorded, sites: Sites) -> None:
        self._place = place
        self._recorded = recorded
        self._weight = recorded.weight
        self._sites = sites
        positions: Counter[int] = Counter()
        self._position: dict[int, int] = {}
        """Of each record among those of its thread or task."""
        for record in recorded.records:
            self._position[record.number] = positions[record.lane]
            positions[record.lane] += 1

    def _finding(
        self, rule: str, frame: Frame, name: str, text: str, advice: str, calls: float, saves: float
    ) -> Finding:
        return Finding(
            rule=rule,
            process=self._place,
            file=frame.file,
            line=frame.line,
            function=frame.function,
            name=name,
            text=text,
            advice=advice,
            calls=round(calls * self._weight),
            saves=round(saves * self._weight),
        )

    def _calls(self, *kinds: str) -> Iterator[tuple[Site, list[Record]]]:
        return ((site, records) for site, records in self._sites.items() if site[1].kind in kinds)

    def _count(self, calls: float) -> str:
        return f"{round(calls * self._weight):,}"

    # Equal calls.

    @staticmethod
    def _repeats(records: Iterable[Record]) -> int:
        seen = Counter(record.arguments for record in records if record.arguments)
        return sum(count - 1 for count in seen.values())

    def identical(self) -> Iterator[Finding]:
        for (frame, name), records in self._calls("call"):
            repeats = self._repeats(records)
            if repeats + 1 < FEWEST_SAME or repeats * 2 < len(records):
                continue
            different = len(records) - repeats
            usual = _usual(records)
            many = f"{different:,} different arguments" if different > 1 else "the same arguments each time"
            yield self._finding(
                "identical",
                frame,
                name.text,
                f"{self._count(len(records))} calls with {many}, {duration(usual)} each",
                "keep the result, if it does not change: functools.cache, or a variable before the loop",
                len(records),
                # Calls that were made at once are waited for together.
                min(repeats * usual, covered(records)),
            )

    # Loops.

    def loops(self) -> Iterator[Finding]:
        for (frame, name), records in self._calls("call", "item"):
            if self._repeats(records) * 2 >= len(records) and name.kind == "call":
                continue  # equal calls have a better remedy
            longest = total = 0
            for run in self._runs(records):
                if len(run) >= FEWEST:
                    longest = max(longest, len(run))
                    total += len(run)
            if not total:
                continue
            usual = _usual(records)
            what = "items fetched" if name.kind == "item" else "calls"
            text = f"{self._count(total)} {what} one after the other, {duration(usual)} each"
            if total > longest:
                text += f"; {self._count(longest)} in the longest row"
            yield self._finding(
                "loop",
                frame,
                name.text,
                text,
                _ALL_IN_ONE.get(name.library, "make one call of them"),
                total,
                (total - 1) * usual,
            )

    def _runs(self, records: Iterable[Record]) -> Iterator[list[Record]]:
        """Calls of one line that follow each other in one thread or task, each after the end of the one before."""
        runs: dict[tuple[int, int], list[Record]] = {}
        for record in records:
            key = (record.lane, record.parent)
            run = runs.get(key)
            if run is not None:
                before = run[-1]
                between = self._position[record.number] - self._position[before.number]
                if before.ended <= record.begun and between <= BETWEEN + 1:
                    run.append(record)
                    continue
                yield run
            runs[key] = [record]
        yield from runs.values()

    # Attributes of remote objects.

    def chains(self) -> Iterator[Finding]:
        lines: defaultdict[tuple[str, int], list[tuple[Record, Site]]] = defaultdict(list)
        for site, records in self._calls("attribute"):
            lines[site[0].file, site[0].line] += [(record, site) for record in records]
        for found in lines.values():
            found.sort(key=lambda pair: pair[0].begun)
            records = [record for record, _ in found]
            different = len({record.name for record in records})
            usual = _usual(records)
            repeats = self._repeats(records)
            frame, name = max((site for _, site in found), key=lambda site: len(site[1].text))
            kinds = f"{different} attributes" if different > 1 else "an attribute"
            text = f"a trip each time for {kinds} of remote objects: {self._count(len(records))} trips, "
            text += f"{duration(usual)} each"
            if repeats * 2 >= len(records):
                advice = f"read {name.text} once, into a variable before the loop"
                saved = float(repeats)
            else:
                advice = "let a method of the service read them there and return the values"
                saved = float(len(records) - 1)
            yield self._finding(
                "chain", frame, name.text, text, advice, len(records), min(saved * usual, covered(records))
            )

    # The others.

    def connections(self) -> Iterator[Finding]:
        for (frame, name), records in self._calls("connect"):
            if len(records) < FEWEST_OPENED:
                continue
            usual = _usual(records)
            yield self._finding(
                "connections",
                frame,
                name.text,
                f"{self._count(len(records))} connections were opened here, {duration(usual)} each",
                _KEEP_OPEN.get(name.library, "keep one open"),
                len(records),
                min((len(records) - 1) * usual, covered(records)),
            )

    def slow(self) -> Iterator[Finding]:
        for (frame, name), records in self._calls("call", "attribute", "item"):
            if len(records) < FEWEST_COMPARED:
                continue
            usual = _usual(records)
            limit = max(SLOW * usual, SLOW_NS)
            slow = [record for record in records if record.waited > limit]
            if not slow or len(slow) * 20 > len(records):
                continue
            worst = max(slow, key=lambda record: record.waited)
            when = duration(worst.begun - self._recorded.begun)
            yield self._finding(
                "slow",
                frame,
                name.text,
                f"{self._count(len(slow))} of {self._count(len(records))} calls took more than {duration(limit)}, and "
                f"half of them at most {duration(usual)}; the slowest {duration(worst.waited)}, {when} after the start",
                "look at what the server did then; a deadline bounds the wait",
                len(slow),
                sum(record.waited - usual for record in slow),
            )

    def failures(self) -> Iterator[Finding]:
        for (frame, name), records in self._sites.items():
            errors = Counter(error for record in records if (error := self._recorded.error(record)) is not None)
            if not errors:
                continue
            kinds = ", ".join(f"{error} {self._count(count)}" for error, count in errors.most_common(3))
            failed = [record for record in records if self._recorded.error(record) in errors]
            took = sum(record.waited for record in failed)
            yield self._finding(
                "failures",
                frame,
                name.text,
                f"{self._count(len(failed))} of {self._count(len(records))} calls failed: {kinds}; they took "
                f"{duration(round(took * self._weight))}",
                "",
                len(failed),
                0,
            )


def _usual(records: Sequence[Record]) -> int:
    return median_low(record.waited for record in records)


def duration(ns: float) -> str:
    """A time for people, with three significant digits: ``4.21 us``."""
    for factor, unit in ((1, "ns"), (1e3, "us"), (1e6, "ms")):
        if ns / factor < 999.5:
            return f"{ns / factor:.3g} {unit}"
    return f"{ns / 1e9:.3g} s"
