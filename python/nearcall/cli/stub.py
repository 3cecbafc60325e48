"""``nearcall stub MODULE:CLASS``, or of ``.proto`` files, or of a server"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..options.schemes import speaks_http, speaks_protobuf
from ..server.health import HEALTH
from ..types.declared import is_service
from . import FAILED, UsageError
from .finding import find, is_url
from .flags import add_client_options
from .remote import channel, connected

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "stub",
        usage="nearcall stub [options] MODULE:CLASS | FILE.proto ... | URL",
        help="print a module with typed interfaces of a service, for threads or for asyncio",
        description="Print a module of Python with an interface for each service, as clients see it: clients are made "
        "with it, and type checkers and editors know its methods. A service is given by its class; by a server's URL, "
        "with a class for each type of its values; or by .proto files, which needs protoc, from the package "
        "grpcio-tools or by itself. A server of gRPC needs reflection.",
        epilog="example: nearcall stub --async calculator:Calculator > calculator_client.py. With --check the exit "
        "status is 0 if FILE says what the service says now, and 1 if it does not.",
    )
    parser.add_argument("sources", metavar="MODULE:CLASS", nargs="+", help="the service; also FILE.proto ... or a URL")
    parser.add_argument("--async", dest="for_loop", action="store_true", help="for nearcall.aio, not for threads")
    parser.add_argument(
        "--client", action="store_true", help="of .proto files: for clients alone, whose streams can be closed"
    )
    parser.add_argument(
        "--check",
        metavar="FILE",
        help="print no module, but how this one differs from it: in what it says, not in its layout",
    )
    parser.add_argument(
        "-I", dest="folders", metavar="FOLDER", action="append", help="where files and imports are; else beside them"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the module, or how another differs from it; returns the exit status."""
    text = _text(options)
    if options.check is None:
        print(text, end="")
        return 0
    from .module_text import what_differs

    try:
        written = Path(options.check).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or "it is no text"
        raise UsageError(f"{options.check} cannot be read: {why}") from None
    found = what_differs(written, text, options.check)
    print("\n".join(found) or f"{options.check} says what the service says")
    return FAILED if found else 0


def _text(options: argparse.Namespace) -> str:
    sources: list[str] = options.sources
    others = [each for each in sources if is_url(each) or not each.endswith(".proto")]
    if others and len(sources) > 1:
        raise UsageError(f"{others[0]}: give one class or URL, or .proto files")
    if not others:
        return _of_files(options)
    options.url = sources[0]
    if not is_url(options.url):
        return _of_class(options)
    return _of_server_of_grpc(options) if speaks_protobuf(options.url) else _of_server(options)


def _of_class(options: argparse.Namespace) -> str:
    from .interfaces import interfaces_text

    target: str = options.url
    cls = find(target)
    if not (isinstance(cls, type) and is_service(cls)):
        raise UsageError(f"{target} is not a service's class: decorate it with @nearcall.service")
    return interfaces_text(cls, target, for_loop=options.for_loop)


def _of_server(options: argparse.Namespace) -> str:
    from .described import described_text

    with connected(options) as (_, description):
        return described_text(description, for_loop=options.for_loop)


def _of_files(options: argparse.Namespace) -> str:
    from ..codec.protobuf.module import module_text
    from ..codec.protobuf.sources import read_sources

    files: list[str] = options.sources
    folders: list[str] = options.folders or sorted({str(Path(file).parent) for file in files})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "files.binpb"
        command = [*_protoc(), *(f"-I{each}" for each in folders), f"--descriptor_set_out={out}"]
        command += ["--include_imports", "--include_source_info", *files]
        done = subprocess.run(command, capture_output=True, encoding="utf-8", errors="replace", check=False)
        if done.returncode:
            raise UsageError(f"protoc refuses: {done.stderr.strip()}")
        sources = read_sources(out.read_bytes())
    return module_text(sources, _names(files, folders), for_loop=options.for_loop, for_clients=options.client)


def _of_server_of_grpc(options: argparse.Namespace) -> str:
    from ..codec.protobuf.module import module_text
    from ..reflection.asking import ask

    if speaks_http(options.url):
        raise UsageError(f"{options.url}: only servers of gRPC say what their .proto says, at grpc:// or grpcs://")
    with channel(options) as opened:
        described = ask(opened.client)
    # Everybody has this one: it is nearcall.health.
    wanted = {file for service, file in described.services.items() if service != HEALTH}
    if not wanted:
        raise UsageError(f"{options.url}: the server has no services")
    return module_text(described.files, wanted, for_loop=options.for_loop, for_clients=True)


def _names(files: Sequence[str], folders: Sequence[str]) -> list[str]:
    """The files' names as protoc has them: relative to the folder in which it finds them."""
    names: list[str] = []
    for file in files:
        path = Path(file).resolve()
        base = next((base for each in folders if path.is_relative_to(base := Path(each).resolve())), path.parent)
        names.append(path.relative_to(base).as_posix())
    return names


def _protoc() -> list[str]:
    package = find_spec("grpc_tools")
    if package is not None and package.submodule_search_locations:
        known = Path(next(iter(package.submodule_search_locations))) / "_proto"
        return [sys.executable, "-m", "grpc_tools.protoc", f"-I{known}"]
    if (found := shutil.which("protoc")) is not None:
        return [found]
    raise UsageError("there is no protoc here: pip install grpcio-tools")
