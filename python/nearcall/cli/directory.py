"""``nearcall directory serve|list|lookup``."""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

import nearcall

from ..directory import Directory, Entry, Found
from ..directory.address import read_address
from ..directory.resolver import source_of
from ..errors import Unavailable
from ..options.schemes import NAMED
from ..types.shown import shown
from . import UsageError, serve
from .flags import add_client_options, client_options
from .parsing import add_action
from .settings import add_setting_flags, read_settings

__all__ = ["add_to"]

_SERVED = "nearcall.directory:MemoryDirectory"


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "directory",
        help="run a directory of services, or ask one",
        description="A directory of services: servers register there under a name, and clients connect by it.",
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, run: Any, text: str, example: str) -> argparse.ArgumentParser:
        return add_action(actions, name, run, text, example=f"nearcall directory {example}")

    sub = action("serve", _serve, "run a directory until interrupted", "serve tcp://127.0.0.1:7100")
    sub.add_argument("what", metavar="URL", nargs="+", help="where servers and clients find it")
    add_setting_flags(sub)

    sub = action("list", _list, "print all servers of a directory", "list tcp://127.0.0.1:7100")
    sub.add_argument("url", metavar="URL", help="where it is; file:///path for a file")
    _add_common(sub)

    text = "print the servers of a name; 1 if there is none"
    sub = action("lookup", _lookup, text, "lookup 'directory+tcp://127.0.0.1:7100/clock?zone=eu'")
    sub.add_argument("url", metavar="URL", help="as clients write it: the directory, a slash, the name, ?key=value")
    _add_common(sub)


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print a JSON object for each server, a line each")
    add_client_options(parser)


def _serve(options: argparse.Namespace) -> None:
    if (read_settings(options).values.get("workers") or 1) > 1:
        raise UsageError("a directory is one process, for each would know a part of the servers: leave out --workers")
    options.reload = False
    options.what = [_SERVED, *options.what]
    serve.run(options)


def _list(options: argparse.Namespace) -> None:
    _print(_ask(f"{NAMED}{options.url}/", options), options)


def _lookup(options: argparse.Namespace) -> None:
    found = _ask(options.url if options.url.startswith(NAMED) else f"{NAMED}{options.url}", options)
    if not found.entries:
        raise Unavailable(found.why)
    _print(found, options)


def _ask(url: str, options: argparse.Namespace) -> Found:
    address = read_address(url)
    chosen = client_options(options)
    source = source_of(address.place, lambda: nearcall.connect(address.place, Directory, **chosen))
    try:
        return source.lookup(address.name, address.metadata)
    finally:
        source.close()


def _print(found: Found, options: argparse.Namespace) -> None:
    for entry in found.entries:
        print(msgspec.json.encode(entry).decode() if options.json else _line(entry))


def _line(entry: Entry) -> str:
    pairs = " ".join(f"{key}={value}" for key, value in entry.metadata.items())
    return shown(f"{entry.name} {entry.url} {pairs}".rstrip(), 5000)
