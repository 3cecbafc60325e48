"""``nearcall openapi MODULE:CLASS ...``, or of a server of gRPC"""

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
        usage="nearcall openapi [options] MODULE:CLASS ... | URL",
        help="print the OpenAPI document of services, for callers in JSON",
        description="Print the OpenAPI document of one service, or of several that one server has: their methods "
        "without streams, as they are called over http:// in JSON. Services are given by their classes, or by a gRPC "
        "server's URL, which needs reflection.",
        epilog="example: nearcall openapi calculator:Calculator > calculator.json",
    )
    parser.add_argument(
        "sources", metavar="MODULE:CLASS", nargs="+", help="a service's class, also FILE.py:CLASS; or a URL"
    )
    parser.add_argument(
        "--api-version", metavar="TEXT", default="1", help="what it says of the version of the services (default: 1)"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the document."""
    from ..codec.protobuf.openapi import openapi_document

    document = openapi_document(_services(options), options.api_version)
    print(json.dumps(document, indent=2, ensure_ascii=False))


def _services(options: argparse.Namespace) -> list[ServiceMessages]:
    sources: list[str] = options.sources
    urls = list(filter(is_url, sources))
    if urls and len(sources) > 1:
        raise UsageError(f"{urls[0]}: give classes, or one URL")
    if urls:
        options.url = urls[0]
        return _of_server(options)
    found: dict[str, ServiceMessages] = {}
    for source in sources:
        service = service_messages(source)
        if found.setdefault(service.full_name, service) is not service:
            raise UsageError(f"{source}: another of the services is called {service.full_name}, and a path is of one")
    return list(found.values())


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
