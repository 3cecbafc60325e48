"""``nearcall stub FILE.proto``"""

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

from . import UsageError

__all__ = ["add_to", "run"]


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "stub",
        help="print a typed module for services that a .proto describes",
        description="Print a module of Python for what .proto files describe: a dataclass for each message, an "
        "interface for each service, which classes implement and clients are made with. It needs protoc, from the "
        "package grpcio-tools or by itself.",
        epilog="example: nearcall stub -I protos protos/shop.proto > shop.py",
    )
    parser.add_argument("files", metavar="FILE.proto", nargs="+", help="the files")
    parser.add_argument(
        "-I", dest="folders", metavar="FOLDER", action="append", help="where files and imports are; else beside them"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> None:
    """Prints the module."""
    from ..codec.protobuf.module import module_text
    from ..codec.protobuf.sources import read_sources

    files: list[str] = options.files
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
