"""``nearcall route check|table|status|send|manager``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import msgspec

import nearcall

from .. import _core, route
from ..errors import InvalidArgument, RpcError
from ..route.message import check_number
from ..route.sending import OF_BOTH, read_table
from . import UsageError
from .flags import add_client_options, client_options
from .parsing import add_action

__all__ = ["add_to"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "route", help="check routing tables, ask nodes, run a route manager", description="Everything about the router."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, run: Any, text: str, example: str) -> argparse.ArgumentParser:
        return add_action(actions, name, run, text, example=f"nearcall route {example}")

    sub = action("check", check, "check tables without using them", "check routes.toml")
    sub.add_argument("files", metavar="FILE", nargs="+", type=Path, help="in RMR's text, or TOML if its name ends so")
    sub.add_argument("--print", dest="show", action="store_true", help="print the table in RMR's text")

    sub = action("table", table, "print the table that a node has in force", "table shm://filter")
    sub.add_argument("url", metavar="URL", help="where the node is")
    add_client_options(sub)

    sub = action("status", status, "print what nodes have done so far", "status shm://filter shm://logger")
    sub.add_argument("urls", metavar="URL", nargs="+", help="where a node is")
    sub.add_argument("--json", action="store_true", help="print a JSON object for each node, a line each")
    add_client_options(sub)

    sub = action("send", send, "send a message to a node", "send shm://filter 1000 'hello' --call")
    sub.add_argument("url", metavar="URL", help="where the node is")
    sub.add_argument("type", metavar="TYPE", type=_number, help="the message's type")
    sub.add_argument("payload", metavar="TEXT", nargs="?", default="", help="its payload; - for standard input")
    sub.add_argument("-s", "--subscription", type=_number, default=-1, metavar="N", help="its subscription")
    sub.add_argument("-e", "--entity", default="", metavar="NAME", help="its managed entity")
    sub.add_argument("--call", action="store_true", help="wait for the reply, and print it")
    sub.add_argument("-t", "--timeout", type=float, default=5.0, metavar="S", help="seconds to wait (default: 5)")
    add_client_options(sub)

    sub = action("manager", manage, "run a route manager until Ctrl-C", "manager shm://routes")
    sub.add_argument("urls", metavar="URL", nargs="+", help="where nodes attach")


def check(options: argparse.Namespace) -> int:
    """Reads tables, and says what is wrong with them."""
    wrong = False
    for file in options.files:
        try:
            text, toml = read_table(file)
            name, entries, endpoints, text = _core.read_route_table(text, toml=toml)
        except InvalidArgument as error:
            print(f"{file}: {error}", file=sys.stderr)
            wrong = True
            continue
        if options.show:
            print(text, end="")
        else:
            print(
                f"{file}: table {name!r} is right: {_count(entries, 'entry', 'entries')} for "
                f"{_count(len(endpoints), 'endpoint', 'endpoints')}"
            )
    return 1 if wrong else 0


def table(options: argparse.Namespace) -> None:
    """Prints a node's table."""
    with nearcall.connect(options.url, route.Route, **client_options(options)) as node:
        found = node.table()
    if found is None:
        raise RuntimeError(f"the node at {options.url} has no table in force")
    print(found.text, end="")


def status(options: argparse.Namespace) -> int:
    """Prints what nodes have done. 1 if one cannot be asked."""
    wrong = 0
    for number, url in enumerate(options.urls):
        try:
            with nearcall.connect(url, route.Route, **client_options(options)) as node:
                found = node.status()
        except RpcError as error:
            print(f"{url}: {error}", file=sys.stderr)
            wrong = 1
            continue
        if options.json:
            print(msgspec.json.encode(found).decode())
            continue
        if number:
            print()
        in_force = "no table" if found.table is None else f"table {found.table!r}"
        print(f"{found.name} at {', '.join(found.urls)}: {in_force}")
        print(
            f"  messages: {found.taken} taken, {found.waiting} waiting, {found.malformed} malformed, {found.failed} "
            f"failed, {found.unhandled} without a handler, {found.unrouted} without an entry"
        )
        for each in found.endpoints:
            state = "connected" if each.connected else f"not connected: {each.failure or 'no attempt has ended yet'}"
            print(f"  to {each.name}: {_counts(each)}; {state}")
        if found.left is not None:
            gone = _count(found.left.endpoints, "endpoint that has", "endpoints that have")
            print(f"  to {gone} left: {_counts(found.left)}")
    return wrong


def send(options: argparse.Namespace) -> None:
    """Sends a message from a node that lasts for as long."""
    payload = sys.stdin.buffer.read() if options.payload == "-" else options.payload.encode()
    import os

    about = {"subscription": options.subscription, "entity": options.entity}
    connecting = client_options(options)
    of_node = {key: value for key, value in connecting.items() if key in OF_BOTH}
    with route.Node(f"shm://nearcall-route-send-{os.getpid()}", **of_node) as node:
        if not options.call:
            with nearcall.connect(options.url, route.Route, **connecting):  # says what is wrong, if nobody is there
                node.send(options.type, payload, to=options.url, timeout=options.timeout, **about)
            return
        reply = node.call(options.type, payload, to=options.url, timeout=options.timeout, **about)
        print(f"type {reply.type} from {reply.source}:", file=sys.stderr)
        sys.stdout.buffer.write(reply.payload)
        sys.stdout.buffer.write(b"" if reply.payload.endswith(b"\n") else b"\n")


def manage(options: argparse.Namespace) -> None:
    """Runs a route manager."""
    import logging

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        nearcall.serve(
            route.manager(),
            *options.urls,
            on_ready=lambda server: print(f"a route manager at {', '.join(server.urls)}"),
        )
    except ValueError as error:
        raise UsageError(str(error)) from None


def _number(text: str) -> int:
    try:
        return check_number("number", int(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _counts(of: route.EndpointStatus | route.LeftStatus) -> str:
    return (
        f"{of.sent} sent, {of.queued} queued ({of.queued_bytes} bytes), {of.dropped} dropped, "
        f"{of.handed_on} handed on, {of.failed_soft} refused, {of.failed_hard} impossible"
    )


def _count(number: int, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
