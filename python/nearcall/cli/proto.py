"""``nearcall proto MODULE:CLASS``"""

from __future__ import annotations

import argparse
from typing import Any

from .check import service_messages

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "proto",
        help="print the .proto of a service, for gRPC's other languages",
        description="Print the .proto of a service, as it is spoken over grpc://. protoc makes clients and servers "
        "of it in other languages.",
        epilog="example: nearcall proto calculator:Calculator > calculator.proto",
    )
    parser.add_argument("target", metavar="MODULE:CLASS", help="the service's class, also FILE.py:CLASS")
    parser.instead = "each class has a .proto of its own, one command each"
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the ``.proto``."""
    from ..codec.protobuf.text import proto_text

    print(proto_text(service_messages(options.target)), end="")
