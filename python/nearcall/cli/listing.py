"""``nearcall list URL``"""

from __future__ import annotations

import argparse
from typing import Any

import msgspec

from ..service.description import Description
from ..types.shown import shown, shown_json
from .flags import add_client_options
from .remote import connected

__all__ = ["add_to", "listing", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "list",
        usage="nearcall list [options] URL",
        help="list the services and methods of a server",
        description="List the services and methods of a server.",
        epilog="example: nearcall list shm://calc",
    )
    parser.add_argument("url", metavar="URL", help="where the server is")
    parser.add_argument("--json", action="store_true", help="print the server's whole description as JSON")
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints what the server serves."""
    with connected(options) as (_, description):
        if options.json:
            print(shown_json(msgspec.json.format(msgspec.json.encode(description)).decode()))
        else:
            print("\n".join(shown(line) for line in listing(description)))


def listing(description: Description) -> list[str]:
    """The lines that tell a person what a server serves."""
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
