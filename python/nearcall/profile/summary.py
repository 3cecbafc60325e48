"""Adds up the calls of a program: by line, as a flame picture, and as a timeline."""

from __future__ import annotations

import heapq
import platform
from collections import Counter
from collections.abc import Sequence
from operator import attrgetter, itemgetter
from statistics import median_low

from .findings import findings_of
from .model import FORMAT, Call, Failure, Finding, FlameNode, Line, Process, Profile
from .reading import Record, Recorded, Site, Sites, covered

__all__ = ["summarize"]

MOST_SHOWN = 20_000
"""Calls of the timeline: a page with many more opens slowly."""
MOST_LINES = 2_000
MOST_NODES = 4_000
"""Of the flame picture; the thinnest are left out."""


def summarize(
    recorded: Sequence[Recorded], *, command: Sequence[str], started: float, begun: int, ended: int, status: int
) -> Profile:
    """The profile of a program.

    Args:
        recorded: What its processes have written down.
        command: How it was started.
        started: The time of day of that, seconds since 1970.
        begun: The same by the clock of the records, ns.
        ended: When its first process had ended, ns.
        status: Its exit status.
    """
    processes: list[Process] = []
    lines: list[Line] = []
    findings: list[Finding] = []
    timeline: list[tuple[int, int, int, Record]] = []
    root = FlameNode(label="all")
    for place, each in enumerate(recorded):
        sites = _sites(each)
        inside = _time_inside(each)
        is_first = place == 0
        process = _process(each, begun, max(ended, each.records[-1].ended) if is_first else None)
        processes.append(process)
        made = [(_line(place, site, records, each, process), records) for site, records in sites.items()]
        findings += findings_of(place, each, sites, process)
        for line, records in made:
            number = len(lines)
            lines.append(line)
            # Only the longest are made calls of: most would not be shown.
            if len(records) > MOST_SHOWN:
                records = heapq.nlargest(MOST_SHOWN, records, key=attrgetter("waited"))  # noqa: PLW2901
            timeline += [(record.waited, number, place, record) for record in records]
        base = root
        if len(recorded) > 1:
            base = FlameNode(label=f"process {each.pid}")
            root.children.append(base)
        _grow_flame(base, each, inside)
        if base is not root:
            root.waited += base.waited
            root.calls += base.calls
    order = sorted(range(len(lines)), key=lambda number: -lines[number].waited)[:MOST_LINES]
    new = {old: place for place, old in enumerate(order)}
    shown = heapq.nlargest(MOST_SHOWN, timeline, key=itemgetter(0))
    calls = [
        Call(
            line=new[number],
            lane=record.lane,
            begun=record.begun - begun,
            took=record.ended - record.begun,
            waited=record.waited,
            failed=recorded[place].error(record) is not None,
        )
        for _, number, place, record in shown
        if number in new
    ]
    _number_lanes(calls, [lines[number] for number in order], recorded, processes)
    _prune(root)
    return Profile(
        format=FORMAT,
        command=list(command),
        started=started,
        python=platform.python_version(),
        status=status,
        took=ended - begun,
        one_in=max((each.one_in for each in recorded), default=1),
        processes=processes,
        lines=[lines[number] for number in order],
        findings=sorted(findings, key=lambda finding: (-finding.saves, -finding.calls)),
        flame=root,
        timeline=sorted(calls, key=lambda call: call.begun),
    )


def _sites(recorded: Recorded) -> Sites:
    found: Sites = {}
    keys: dict[tuple[int, int], list[Record]] = {}
    for record in recorded.records:
        key = (record.stack, record.name)
        records = keys.get(key)
        if records is None:
            # Several stacks lead to one line.
            records = keys[key] = found.setdefault((recorded.stack(record)[0], recorded.name(record)), [])
        records.append(record)
    return found


def _time_inside(recorded: Recorded) -> Counter[int]:
    """For each call, by its number, the time that calls inside it took."""
    found: Counter[int] = Counter()
    for record in recorded.records:
        if record.parent:
            found[record.parent] += record.waited
    return found


def _at_once(records: Sequence[Record]) -> int:
    under_way: list[int] = []
    most = 0
    for record in records:
        while under_way and under_way[0] <= record.begun:
            heapq.heappop(under_way)
        heapq.heappush(under_way, record.ended)
        most = max(most, len(under_way))
    return most


def _process(recorded: Recorded, begun: int, ended: int | None) -> Process:
    records = recorded.records
    if ended is None:
        ended = max(record.ended for record in records)
    outer = [record for record in records if not record.parent]
    took = max(1, ended - recorded.begun)
    notes = list(recorded.notes)
    # To wait for a call that was started is no call.
    calls = round(sum(recorded.name(record).kind != "wait" for record in records) * recorded.weight)
    if recorded.weight > 1:
        notes.append(f"{len(records):,} of about {calls:,} calls were recorded, chosen at random")
    return Process(
        pid=recorded.pid,
        parent=recorded.parent,
        command=recorded.argv,
        begun=recorded.begun - begun,
        took=took,
        calls=calls,
        recorded=len(records),
        waited=round(sum(record.waited for record in outer) * recorded.weight),
        waiting=min(1.0, covered(outer) * recorded.weight / took),
        lanes=[],
        notes=notes,
    )


def _line(place: int, site: Site, records: list[Record], recorded: Recorded, process: Process) -> Line:
    frame, name = site
    waits = sorted(record.waited for record in records)
    weight = recorded.weight
    errors = Counter(error for record in records if (error := recorded.error(record)) is not None)
    return Line(
        process=place,
        file=frame.file,
        line=frame.line,
        function=frame.function,
        library=name.library,
        kind=name.kind,
        name=name.text,
        calls=round(len(records) * weight),
        waited=round(sum(waits) * weight),
        share=min(1.0, covered(records) * weight / process.took),
        fastest=waits[0],
        median=median_low(waits),
        p99=waits[min(len(waits) - 1, len(waits) * 99 // 100)],
        slowest=waits[-1],
        sent=_bytes([record.sent for record in records], weight),
        received=_bytes([record.received for record in records], weight),
        inside=round(sum(record.parent > 0 for record in records) * weight),
        at_once=_at_once(records),
        failures=[Failure(error=error, calls=round(count * weight)) for error, count in errors.most_common()],
    )


def _bytes(sizes: list[int], weight: float) -> int | None:
    known = [size for size in sizes if size >= 0]
    # Of some libraries only one call in several is measured: the others are taken to be alike.
    return round(sum(known) / len(known) * len(sizes) * weight) if known else None


def _grow_flame(root: FlameNode, recorded: Recorded, inside: Counter[int]) -> None:
    children: dict[int, dict[tuple[str, str, int], FlameNode]] = {}
    paths: dict[tuple[int, int], list[FlameNode]] = {}

    def child(parent: FlameNode, label: str, file: str, line: int) -> FlameNode:
        known = children.setdefault(id(parent), {})
        found = known.get((label, file, line))
        if found is None:
            found = known[label, file, line] = FlameNode(label=label, file=file, line=line)
            parent.children.append(found)
        return found

    for record in recorded.records:
        key = (record.stack, record.name)
        path = paths.get(key)
        if path is None:
            node = root
            path = paths[key] = [root]
            for frame in reversed(recorded.stack(record)):
                node = child(node, frame.function, frame.file, frame.line)
                path.append(node)
            path.append(child(node, recorded.name(record).text, "", 0))
        own = max(0, record.waited - inside[record.number])
        for node in path:
            node.waited += own
            node.calls += 1
    if recorded.weight > 1:
        for node in {id(node): node for path in paths.values() for node in path if node is not root}.values():
            node.waited, node.calls = round(node.waited * recorded.weight), round(node.calls * recorded.weight)
        root.waited = sum(node.waited for node in root.children)
        root.calls = sum(node.calls for node in root.children)


def _prune(root: FlameNode) -> None:
    """Leaves the widest nodes, and sorts them."""
    widths: list[int] = []
    todo = [root]
    while todo:
        node = todo.pop()
        widths.append(node.waited)
        todo += node.children
    least = heapq.nlargest(MOST_NODES, widths)[-1]
    todo = [root]
    while todo:
        node = todo.pop()
        node.children = sorted(
            (each for each in node.children if each.waited >= least),
            key=lambda each: (each.file, each.line, each.label),
        )
        todo += node.children


def _number_lanes(
    calls: Sequence[Call], lines: Sequence[Line], recorded: Sequence[Recorded], processes: Sequence[Process]
) -> None:
    """Gives the lanes of each process numbers from 0."""
    known: list[dict[int, int]] = [{} for _ in processes]
    for call in sorted(calls, key=lambda call: call.begun):
        place = lines[call.line].process
        lanes = known[place]
        if call.lane not in lanes:
            lanes[call.lane] = len(lanes)
            processes[place].lanes.append(recorded[place].lanes.get(call.lane, "(unknown)"))
        call.lane = lanes[call.lane]
