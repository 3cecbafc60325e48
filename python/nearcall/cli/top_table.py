"""The output of ``nearcall top``: plain text, or a table in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..route.service import EndpointStatus
from ..types.shown import shown
from .ping import duration
from .top_view import ClientRow, Row, View, WorkerRow

__all__ = ["plain_lines", "rich_table"]

COLUMNS = ("method", "calls/s", "in flight", "p50", "p99", "in/s", "out/s", "calls", "errors")
OF_WORKERS = ("worker", "process", "calls/s", "in flight", "waiting", "connections", "threads", "kept", "event loop")
OF_ENDPOINTS = (
    "messages to",
    "sent",
    "queued",
    "in bytes",
    "dropped",
    "handed on",
    "refused",
    "impossible",
    "connection",
)
OF_CLIENTS = ("client", "over", "connected", "calls/s", "in flight", "calls", "unread", "kept")
MOST_IN_TERMINAL = 10
"""Connections in a terminal's table; the others are counted."""
NOTHING = "-"


def plain_lines(view: View, *, workers: bool = False) -> list[str]:
    """The tables as lines of text; ``workers``: with one of the workers."""
    lines = [" · ".join(_summary(view))]
    if workers:
        lines += [*_table([OF_WORKERS, *map(_of_worker, view.workers)]), ""]
    if view.clients:
        lines += [*_client_lines(view, len(view.clients)), ""]
    lines += _table([COLUMNS, *(_cells(row) for row in _ordered(view))])
    return [*lines, "", *_endpoints(view)] if view.endpoints else lines


def _client_lines(view: View, most: int) -> list[str]:
    """The table of connections, the busiest first."""
    ordered = sorted(view.clients, key=lambda row: (-row.calls_per_second, -row.in_flight, -row.ended, row.number))
    lines = _table([OF_CLIENTS, *map(_of_client, ordered[:most])])
    more = view.connections - min(most, len(ordered))
    return [*lines, f"and {more:,} more connections"] if more > 0 else lines


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines: list[str] = []
    for row in rows:
        cells = [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:-1], widths[1:-1], strict=True)),
        ]
        lines.append("  ".join([*cells, row[-1]]).rstrip())
    return lines


def rich_table(view: View, height: int | None = None, *, workers: bool = False) -> Any:
    """The tables for a terminal of ``height`` lines."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, expand=True, padding=(0, 1), header_style="bold reverse")
    for number, name in enumerate(COLUMNS):
        text = number in (0, len(COLUMNS) - 1)
        table.add_column(name, justify="left" if text else "right", no_wrap=number != len(COLUMNS) - 1)
    rows = _ordered(view)
    clients = _client_lines(view, MOST_IN_TERMINAL) if view.clients else []
    taken = 5 + (len(view.workers) + 2 if workers else 0) + (len(clients) + 1 if clients else 0)
    taken += len(view.endpoints) + 2 if view.endpoints else 0
    seen = rows if height is None else rows[: max(height - taken, 1)]
    for row in seen:
        # As Text, so that markup in a server's names has no effect.
        cells: list[Any] = [Text(cell) for cell in _cells(row)]
        if row.errors_per_second > 0:
            cells[-1].stylize("red")
        table.add_row(*cells, style="" if row.calls_per_second or row.in_flight else "dim")
    first, *rest = _summary(view)
    parts: list[Any] = [Text(first, style="bold"), Text(" · ".join(rest)), ""]
    if workers:
        parts += [Text(line) for line in _table([OF_WORKERS, *map(_of_worker, view.workers)])] + [""]
    if clients:
        parts += [*map(Text, clients), ""]
    parts.append(table)
    if len(seen) < len(rows):
        parts.append(Text(f"and {len(rows) - len(seen)} more", style="dim"))
    if view.endpoints:
        parts += ["", *(Text(line) for line in _endpoints(view))]
    return Group(*parts)


def _ordered(view: View) -> list[Row]:
    """The methods, the busiest first, and those without calls last."""
    return sorted(view.methods, key=lambda row: (-row.calls_per_second, -row.in_flight, -row.started, row.method))


def _summary(view: View) -> list[str]:
    calls = sum(row.calls_per_second for row in view.methods)
    unmeasured = view.in_flight - sum(row.in_flight for row in view.methods)
    count = len(view.workers)
    crew = f"{count} workers" if count > 1 or view.missing else f"process {view.pid}"
    if view.missing:
        crew += f" ({view.missing} more did not answer)"
    held = [each for each in view.workers if each.loop_held_up]
    return [
        f"{view.url}, {crew}, nearcall {shown(view.version, 40)}",
        f"{calls:,.0f} calls/s",
        f"{view.in_flight:,} in flight" + (f" ({unmeasured:,} since before measuring)" if unmeasured > 0 else ""),
        f"{view.queued:,} waiting",
        f"{view.connections:,} connection{'' if view.connections == 1 else 's'}",
        f"{_size(view.memory)} of {_size(view.max_memory)} kept for clients",
        f"{view.threads:,} thread{'' if view.threads == 1 else 's'}, {view.idle_threads:,} idle",
        f"measured for {view.measured_seconds:.0f} s",
        *(f"the event loop of process {each.pid} is held up for {each.loop_held_up:.0f} s" for each in held),
    ]


def _of_worker(row: WorkerRow) -> tuple[str, ...]:
    return (
        NOTHING if row.worker is None else str(row.worker),
        str(row.pid),
        f"{row.calls_per_second:,.0f}",
        f"{row.in_flight:,}",
        f"{row.queued:,}",
        f"{row.connections:,}",
        f"{row.threads:,}",
        _size(row.memory),
        f"held up for {row.loop_held_up:.0f} s" if row.loop_held_up else "turns",
    )


def _endpoints(view: View) -> list[str]:
    """The table of those to whom a node of the router sends messages."""
    return _table([OF_ENDPOINTS, *map(_of_endpoint, view.endpoints)])


def _of_endpoint(row: EndpointStatus) -> tuple[str, ...]:
    return (
        shown(row.name, 200),
        f"{row.sent:,}",
        f"{row.queued:,}",
        _size(row.queued_bytes),
        f"{row.dropped:,}",
        f"{row.handed_on:,}",
        f"{row.failed_soft:,}",
        f"{row.failed_hard:,}",
        "yes" if row.connected else shown(row.failure or "none yet", 200),
    )


def _of_client(row: ClientRow) -> tuple[str, ...]:
    return (
        _peer(row.peer),
        shown(row.transport, 20),
        duration(row.age),
        f"{row.calls_per_second:,.0f}",
        f"{row.in_flight:,}",
        f"{row.ended:,}",
        _size(row.queued),
        _size(row.memory),
    )


def _peer(peer: dict[str, Any]) -> str:
    """Who that is, in a few words."""
    if "broker" in peer:
        return shown(f"somebody at {peer['broker']}", 80)
    if "address" not in peer:
        who = f"process {peer['pid']}" if "pid" in peer else "a process"
        return shown(f"{who} of user {peer.get('uid', '?')}", 60)
    subject = peer.get("subject")
    return shown(f"{peer['address']} ({subject})" if subject else str(peer["address"]), 80)


def _cells(row: Row) -> tuple[str, ...]:
    failed = {code: count for code, count in row.ended.items() if code != "OK"}
    return (
        shown(row.method, 200),
        f"{row.calls_per_second:,.0f}",
        f"{row.in_flight:,}",
        NOTHING if row.p50_seconds is None else duration(row.p50_seconds),
        NOTHING if row.p99_seconds is None else duration(row.p99_seconds),
        _size(row.bytes_in_per_second),
        _size(row.bytes_out_per_second),
        f"{sum(row.ended.values()):,}",
        shown(" ".join(f"{code}:{count:,}" for code, count in failed.items()), 1000) or NOTHING,
    )


def _size(size: float) -> str:
    """Bytes for people: ``4.2 kB``."""
    for unit in ("B", "kB", "MB", "GB"):
        if size < 999.5 or unit == "GB":
            return f"{size:.0f} {unit}" if unit == "B" or size >= 99.95 else f"{size:.1f} {unit}"
        size /= 1000
    raise AssertionError
