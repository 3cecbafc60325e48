"""A server of one build, for ``make test-builds``: serves at the URLs of its arguments until its input ends.

Usage: python server.py CERTIFICATES URL...
"""

from __future__ import annotations

import json
import sys
from typing import Any

from exchanged import Arrays, Basics, ServedMoved, Streams, services

import nearcall


def serve(given: list[Any], directory: str, *urls: str) -> nearcall.Server:
    options: dict[str, Any] = {}
    if any(url.startswith(("tls://", "grpcs://", "https://")) for url in urls):
        options["tls"] = nearcall.TLS(cert=f"{directory}/server.pem", key=f"{directory}/server.key")
    return nearcall.Server(*given, *urls, **options)


def main(directory: str, *urls: str) -> None:
    own = [url for url in urls if not url.startswith(("grpc", "http"))]
    foreign = [url for url in urls if url not in own]
    servers = [serve(services(), directory, *own)] if own else []
    if foreign:
        # Without what Protobuf has no type for.
        servers.append(serve([Basics(), Arrays(), Streams(), ServedMoved()], directory, *foreign))
    for server in servers:
        server.start() if hasattr(server, "start") else server.__enter__()
    print(json.dumps([url for server in servers for url in server.urls]), flush=True)
    sys.stdin.read()
    for server in servers:
        server.__exit__(None, None, None)


if __name__ == "__main__":
    main(*sys.argv[1:])
