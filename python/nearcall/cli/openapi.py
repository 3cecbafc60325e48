"""``nearcall openapi MODULE:CLASS``, or of a server of gRPC"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from ..options.schemes import speaks_http, speaks_protobuf
from ..server.health import HEALTH
from . import UsageError
from .check import service_messages
from .finding import is_url
from .flags import add_client_options
from .remote import channel

if TYPE_CHECKING:
    from ..codec.protobuf.service import ServiceMessages

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "openapi",
        help="print the OpenAPI document of a service, for callers in JSON",
        description="Print the OpenAPI document of a service: its methods without streams, as they are called over "
        "http:// in JSON. A service is given by its class, or by a gRPC server's URL, which needs reflection.",
        epilog="example: nearcall openapi calculator:Calculator > calculator.json",
    )
    parser.add_argument("url", metavar="MODULE:CLASS", help="the service's class, also FILE.py:CLASS; or a URL")
    parser.add_argument(
        "--api-version", metavar="TEXT", default="1", help="what it says of the service's version (default: 1)"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the document."""
    from ..codec.protobuf.openapi import openapi_document

    services = _of_server(options) if is_url(options.url) else [service_messages(options.url)]
    document = openapi_document(services, options.api_version)
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _of_server(options: argparse.Namespace) -> list[ServiceMessages]:
    from .reflected import Reflected

    if speaks_http(options.url) or not speaks_protobuf(options.url):
        raise UsageError(
            f"{options.url}: only servers of gRPC say what their .proto says, at grpc:// or grpcs://; or give the class"
        )
    with channel(options) as opened, Reflected(opened) as reflected:
        # Everybody has this one.
        found = [each for name, each in reflected.messages() if name != HEALTH]
    if not found:
        raise UsageError(f"{options.url}: the server has no services that can be described")
    return found
