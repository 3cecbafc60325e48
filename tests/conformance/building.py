"""Connect's conformance runner and the modules that the programs under test need, made in ``target/conformance``.

The runner comes from the Go module proxy, and with it the ``.proto`` files, of which typed modules are made. That takes
a minute or two, once: ``python -m tests.conformance.building``, which ``make`` does before the tests.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

__all__ = ["BUILT", "RUNNER", "build", "is_built", "what_lacks"]

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "target" / "conformance"
RUNNER = BUILT / "connectconformance"
STAMP = BUILT / "stamp"
MODULE = "connectrpc.com/conformance"
VERSION = "v1.0.5"
FILES = ("config", "service", "server_compat", "client_compat")


def what_lacks() -> str | None:
    """What would have to be installed first."""
    if shutil.which("go") is None:
        return "Go"
    return None if find_spec("grpc_tools") else "grpcio-tools"


def _made_of() -> str:
    return json.dumps([VERSION, Path(__file__).read_text(encoding="utf-8")])


def is_built() -> bool:
    """Whether all is there, as this module makes it."""
    return STAMP.is_file() and STAMP.read_text(encoding="utf-8") == _made_of()


def build() -> None:
    """Makes what is not there yet.

    Raises:
        subprocess.CalledProcessError: a tool has failed, and has said why.
    """
    if is_built():
        return
    shutil.rmtree(BUILT, ignore_errors=True)
    BUILT.mkdir(parents=True)
    program = f"{MODULE}/cmd/connectconformance@{VERSION}"
    subprocess.run(["go", "install", program], env=os.environ | {"GOBIN": str(BUILT)}, check=True)
    told = subprocess.run(
        ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"], cwd=BUILT, stdout=subprocess.PIPE, check=True
    )
    source = Path(json.loads(told.stdout)["Dir"]) / "proto"
    _make_descriptors(source)
    _make_types(source)
    STAMP.write_text(_made_of(), encoding="utf-8")


def _paths() -> list[str]:
    return [f"connectrpc/conformance/v1/{file}.proto" for file in FILES]


def _make_descriptors(source: Path) -> None:
    """Google's classes of the messages, in which the runner and the programs talk."""
    out = BUILT / "descriptors"
    out.mkdir()
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{source}", f"--python_out={out}", *_paths()]
    subprocess.run(command, check=True)


def _make_types(source: Path) -> None:
    """Classes of the service, as ``nearcall stub`` makes them."""
    out = BUILT / "types"
    out.mkdir()
    command = [sys.executable, "-m", "nearcall", "stub", "-I", str(source), str(source / _paths()[1])]
    made = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    (out / "service.py").write_bytes(made.stdout)


if __name__ == "__main__":
    lacks = what_lacks()
    try:
        print(f"conformance: skipped, it needs {lacks}") if lacks else build()
    except subprocess.CalledProcessError as error:
        sys.exit(f"conformance: left out, {error}")
