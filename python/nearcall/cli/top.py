"""``nearcall top URL``"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import msgspec

import nearcall

from ..errors import FailedPrecondition, ResourceExhausted, Unavailable
from ..introspection import ConnectionStatistics, Introspection, Statistics
from ..route.service import Route
from ..service.reading import read_description
from ..types.shown import shown, shown_json
from . import UsageError
from .flags import add_client_options
from .remote import channel, refuse_undescribed
from .top_table import plain_lines, rich_table
from .top_view import MOST_CONNECTIONS, View, compare

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "top",
        usage="nearcall top [options] URL",
        help="watch what a server is doing",
        description="Watch the calls of a server, method by method: how many, how long they take, how they end. The "
        "server measures only while somebody watches.",
        epilog="example: nearcall top shm://calc",
    )
    parser.add_argument("url", metavar="URL", help="where the server is")
    parser.add_argument(
        "-i", "--interval", type=float, default=1.0, metavar="S", help="seconds between two looks (default: 1)"
    )
    parser.add_argument("--once", action="store_true", help="look for one interval, print that, and end")
    parser.add_argument("--workers", action="store_true", help="show a row for each worker, too")
    parser.add_argument("--connections", action="store_true", help="show the connections, too, the busiest first")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each look")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints what the server is doing, until interrupted."""
    if not 0.05 <= options.interval <= 86_400:
        raise UsageError(f"-i {options.interval}: it must be from 0.05 to 86400 seconds")
    with _services(options) as (server, node):
        looks = _looks(
            options.url, server, node, options.interval, give_up=options.once, connections=options.connections
        )
        lines = partial(plain_lines, workers=options.workers)
        if options.once:
            view = cast(View, next(looks))
            print(_json(view) if options.json else "\n".join(lines(view)))
        elif options.json:
            _print_all(looks, _json)
        else:
            live = _rich_console() if sys.stdout.isatty() else None
            if live is None:
                _print_all(looks, lambda view: "\n".join(lines(view)) + "\n")
            else:
                _show_all(looks, live, partial(rich_table, workers=options.workers))


@contextmanager
def _services(options: argparse.Namespace) -> Generator[tuple[Introspection, Route | None], None, None]:
    """What tells of the server, and of the node that it belongs to: ``None`` if it is no node of the router."""
    refuse_undescribed(options.url)
    with channel(options) as opened:
        try:
            server = opened.client(Introspection).service
        except FailedPrecondition as different:
            raise _unwatchable(options.url, opened, different) from None
        try:
            node = opened.client(Route).service
        except FailedPrecondition:
            node = None
        yield server, node


def _unwatchable(url: str, opened: nearcall.Channel, different: FailedPrecondition) -> FailedPrecondition:
    """Why a server cannot be watched."""
    if read_description(opened.description).introspection is not msgspec.UNSET:
        # Between builds from before the service only grew (docs/adr/0094).
        return FailedPrecondition(f"{different.message}: use the nearcall top of the server's own version")
    return FailedPrecondition(
        f"the server at {url} cannot be watched: it is made with introspection=False, or an older nearcall"
    )


def _looks(
    url: str, server: Introspection, node: Route | None, interval: float, *, give_up: bool, connections: bool
) -> Iterator[View | str]:
    """Yields a view after each interval, or a sentence while the server is gone or has too many calls under way."""
    last, pid = _read(server, interval)
    last_open = _open(server, last, wanted=connections)
    due = time.monotonic() + interval
    while True:
        time.sleep(max(due - time.monotonic(), 0))
        due = max(due + interval, time.monotonic())
        try:
            now, pid = _read(server, interval)
            now_open = _open(server, now, wanted=connections)
            endpoints = [] if node is None else node.status().endpoints
        except (ResourceExhausted, Unavailable) as gone:
            if give_up:
                raise
            yield f"{url}: {shown(gone.message)}"
            continue
        yield msgspec.structs.replace(compare(url, last, now, pid, (last_open, now_open)), endpoints=endpoints)
        last, last_open = now, now_open


def _read(server: Introspection, interval: float) -> tuple[list[Statistics], int]:
    """What all workers tell, and the process that answers; a server without workers answers even if all is stuck."""
    own = server.read()
    if own.workers == 1:
        return [own], own.pid
    # The others measure on until the next look, even if it comes late.
    return server.read_all(min(3 * interval + 10, 86_400)), own.pid


def _open(server: Introspection, seen: list[Statistics], *, wanted: bool) -> list[ConnectionStatistics]:
    """The first connections of all workers."""
    if not wanted:
        return []
    read = server.read_connections if len(seen) == 1 else server.read_all_connections
    return read(0, MOST_CONNECTIONS)


def _json(view: View) -> str:
    return shown_json(msgspec.json.encode(view).decode())


def _print_all(looks: Iterator[View | str], write: Callable[[View], str]) -> None:
    for view in looks:
        if isinstance(view, str):
            print(f"nearcall: {view}; trying again", file=sys.stderr, flush=True)
        else:
            print(write(view), flush=True)


def _rich_console() -> Any:
    try:
        from rich.console import Console
    except ImportError:
        print("nearcall: printing plain lines; for a live table: pip install nearcall[top]", file=sys.stderr)
        return None
    return Console()


def _show_all(looks: Iterator[View | str], console: Any, table: Callable[..., Any]) -> None:
    from rich.live import Live
    from rich.text import Text

    last: View | None = None
    try:
        with Live(Text("measuring …"), console=console, screen=True, auto_refresh=False) as live:
            for view in looks:
                if isinstance(view, str):
                    live.update(Text(f"{view}; trying again", style="red"), refresh=True)
                else:
                    last = view
                    live.update(table(view, height=os.get_terminal_size().lines), refresh=True)
    finally:
        # The terminal shows its earlier content again; print the last table below the command.
        if last is not None:
            console.print(table(last))
