"""``nearcall stub FILE.proto``, or of a server"""

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
from . import UsageError
from .flags import add_client_options
from .remote import channel

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "stub",
        usage="nearcall stub [options] FILE.proto ... | URL",
        help="print a typed module for services that a .proto describes, or a server",
        description="Print a module of Python for what .proto files describe: a dataclass for each message, an "
        "interface for each service, which classes implement and clients are made with. It needs protoc, from the "
        "package grpcio-tools or by itself. Of a server of gRPC that has reflection, the URL will do.",
        epilog="example: nearcall stub -I protos protos/shop.proto > shop.py",
    )
    parser.add_argument("files", metavar="FILE.proto", nargs="+", help="the files, or the URL of a server of gRPC")
    parser.add_argument(
        "-I", dest="folders", metavar="FOLDER", action="append", help="where files and imports are; else beside them"
    )
    add_client_options(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the module."""
    from ..codec.protobuf.module import module_text
    from ..codec.protobuf.sources import read_sources

    files: list[str] = options.files
    if urls := [file for file in files if "://" in file]:
        if len(files) > 1:
            raise UsageError(f"{urls[0]}: give one URL, or files")
        options.url = urls[0]
        print(_of_server(options), end="")
        return
    folders: list[str] = options.folders or sorted({str(Path(file).parent) for file in files})
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "files.binpb"
        command = [*_protoc(), *(f"-I{each}" for each in folders), f"--descriptor_set_out={out}"]
        command += ["--include_imports", "--include_source_info", *files]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise UsageError(f"protoc refuses: {done.stderr.strip()}")
        sources = read_sources(out.read_bytes())
    print(module_text(sources, _names(files, folders)), end="")


def _of_server(options: argparse.Namespace) -> str:
    from ..codec.protobuf.module import module_text
    from ..reflection.asking import ask

    if not speaks_protobuf(options.url) or speaks_http(options.url):
        raise UsageError(f"{options.url}: only servers of gRPC say what their .proto says, at grpc:// or grpcs://")
    with channel(options) as opened:
        described = ask(opened.client)
    # Everybody has this one: it is nearcall.health.
    wanted = {file for service, file in described.services.items() if service != "grpc.health.v1.Health"}
    if not wanted:
        raise UsageError(f"{options.url}: the server has no services")
    return module_text(described.files, wanted)


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
