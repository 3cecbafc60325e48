"""``nearcall dev-certs DIR [NAME...]``"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

from .. import _core
from . import UsageError

__all__ = ["add_to", "run"]

NAMES = ["localhost", "127.0.0.1", "::1"]
"""The names that the server's certificate is for, unless the user says otherwise."""


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "dev-certs",
        help="make certificates to try tls:// out",
        description="Make an authority, a server's and a client's certificate, to try tls:// out. The authority's key "
        "is not kept: nothing more can be signed with it.",
        epilog="example: nearcall dev-certs certs localhost 127.0.0.1",
    )
    parser.add_argument("directory", type=Path, metavar="DIR", help="where to put them; made if it is not there")
    parser.add_argument(
        "names",
        nargs="*",
        default=[],  # without one, argparse calls it required
        metavar="NAME",
        help=f"host names and addresses the server is reached by (default: {' '.join(NAMES)})",
    )
    parser.add_argument("--days", type=int, default=90, metavar="N", help="how long they last (default: 90)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Writes the files and says how to use them."""
    if not 1 <= options.days <= 3650:
        raise UsageError(f"--days {options.days}: it must be from 1 to 3650")
    directory: Path = options.directory
    ca, server, server_key, client, client_key = _core.dev_certs(options.names or NAMES, options.days)
    files = {
        "ca.pem": ca,
        "server.pem": server,
        "server.key": server_key,
        "client.pem": client,
        "client.key": client_key,
    }
    for name in files:
        if os.path.lexists(directory / name):
            raise UsageError(f"{directory / name} exists already, and nothing is overwritten: name another directory")
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        mode = 0o600 if name.endswith(".key") else 0o644
        descriptor = os.open(directory / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(text)
    at = f"{directory}/"
    print(f"made {', '.join(files)} in {directory}, for {options.days} days; for development only")
    print()
    print(f'server:  nearcall.Server(..., tls=nearcall.TLS(cert="{at}server.pem", key="{at}server.key"))')
    print(f'client:  nearcall.connect(..., tls=nearcall.TLS(ca="{at}ca.pem"))')
    print()
    print(f'To have clients show who they are, add client_ca="{at}ca.pem" at the server')
    print(f'and cert="{at}client.pem", key="{at}client.key" at the client.')
