"""``nearcall list [URL]``"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from typing import Any

import msgspec

from .. import _core
from ..errors import RpcError, Unavailable
from ..service.description import Description
from ..types.shown import shown, shown_json
from .flags import add_client_options
from .remote import connected

__all__ = ["add_to", "listing", "run"]

_PATIENCE = 1.0
"""Seconds that each server of this machine has to send its description."""


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "list",
        usage="nearcall list [options] [URL]",
        help="list the services and methods of a server, or this user's servers",
        description="List the services and methods of a server. Without a URL, list your servers at shm:// on this "
        "machine: where each is, its process, and its services.",
        epilog="example: nearcall list shm://calc",
    )
    parser.add_argument("url", metavar="URL", nargs="?", help="where the server is")
    parser.add_argument("--json", action="store_true", help="print JSON: of a server its whole description")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints what the server serves, or which servers there are."""
    if options.url is None:
        _print_servers(options)
        return
    with connected(options) as (client, description):
        for problem in getattr(client, "problems", ()):
            print(f"nearcall: {options.url}: {problem}", file=sys.stderr)
        if options.json:
            print(shown_json(msgspec.json.format(msgspec.json.encode(description)).decode()))
        else:
            for line in listing(description):
                print(shown(line))


def _print_servers(options: argparse.Namespace) -> None:
    directory, names = _core.named_servers()
    servers = list(_servers(options, names))
    if options.json:
        print(shown_json(msgspec.json.format(msgspec.json.encode(servers)).decode()))
    elif servers:
        width = max(len(server["url"]) for server in servers)
        for server in servers:
            what = server.get("problem") or f"process {server['pid']}  {', '.join(server['services'])}"
            print(shown(f"{server['url']:<{width}}  {what}"))
    else:
        print(f"no server of yours is at shm:// (its sockets would be in {directory})", file=sys.stderr)


def _servers(options: argparse.Namespace, names: list[str]) -> Iterator[dict[str, Any]]:
    for name in names:
        options.url = f"shm://{name}"
        try:
            with connected(options, handshake_timeout=_PATIENCE) as (client, description):
                services = [service.name for service in description.services]
                yield {"url": options.url, "pid": client.peer.get("pid"), "services": services}
        except Unavailable:  # its server has died
            pass
        except RpcError as error:
            yield {"url": options.url, "problem": error.message}


def listing(description: Description) -> list[str]:
    """The lines that show what a server serves."""
    lines: list[str] = []
    for service in description.services:
        if lines:
            lines.append("")
        lines.append(service.name + _summary(service.doc))
        for method in service.methods:
            marks = ["one-way"] if method.kind == "oneway" else []
            marks += ["idempotent"] if method.idempotent else []
            suffix = f"  [{', '.join(marks)}]" if marks else ""
            lines.append(f"  {method.signature or method.name}{suffix}{_summary(method.doc)}")
        for name, described in service.types.items():
            lines.append(f"  type {name}{_fields(described)}")
    return lines


def _summary(doc: str | None) -> str:
    first = doc.strip().partition("\n")[0] if doc else ""
    return f"  # {first}" if first else ""


def _fields(described: Any) -> str:
    from ..types.schema import show

    try:
        shown = [
            f"{field['name']}: {show(field['type'])}{'' if field['required'] else ' = ...'}"
            for field in described["fields"]
        ]
    except (KeyError, TypeError):  # described by a later version
        return ""
    return f"({', '.join(shown)})"
