"""Building the programs in other languages, from source beside this module and packages from their registries.

Each is built in a directory of its own beside the environments of `environments.manage`, and is removed with them.
Its versions are those of the lock file that lies with its source.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from nearcall_lab.environments import manage
from nearcall_lab.environments.manage import InstallFailed

_HERE = Path(__file__).parent
PROTO = _HERE / "lab.proto"
_MARK = "built-from"
"""File with a digest of the source; written last, since it marks a program as complete."""
_PROTOC_GEN_GO = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")


@dataclass(frozen=True)
class Language:
    """One of the programs."""

    why: str
    tools: tuple[str, ...]
    """What must be on the PATH, to build the program or to run it."""
    steps: Callable[[Path], None]
    """Builds it in the directory that its source was copied to. Raises `InstallFailed`."""
    modules: tuple[str, ...] = ()
    """What this Python must be able to import for it."""


def source(name: str) -> Path:
    """Where a program's source is."""
    return _HERE / name


def missing(name: str) -> str:
    """Why a program cannot be run here, in one line; empty if it can."""
    absent = lacks(name)
    if absent:
        return absent
    mark = manage.home(name) / _MARK
    how = f"nearcall-lab install {name}"
    if not mark.is_file():
        return f"a program that is to be built first: {how}"
    return "" if mark.read_text() == _digest(name) else f"a program whose source has changed since it was built: {how}"


def build(name: str) -> Path:
    """Build a program, or build it anew, and return its directory. Takes up to some minutes.

    Raises `InstallFailed`, and `KeyError` for an unknown name.
    """
    language, directory = LANGUAGES[name], manage.home(name)
    if absent := lacks(name):
        raise InstallFailed(absent)
    shutil.rmtree(directory, ignore_errors=True)
    shutil.copytree(source(name), directory)
    shutil.copy(PROTO, directory)
    language.steps(directory)
    (directory / _MARK).write_text(_digest(name))
    return directory


def run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a step of a build in `folder`. Raises `InstallFailed` with what it said."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=os.environ | (environment or {}),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = " ".join((done.stderr.strip() or done.stdout).split())
        raise InstallFailed(f"{' '.join(command[:3])}: {said[:300] or f'ended with status {done.returncode}'}")


def protoc(folder: Path, *flags: str) -> None:
    """Run protoc, which comes with grpcio-tools, on the .proto in `folder`. Raises `InstallFailed`."""
    run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *flags, PROTO.name], folder)


def lacks(name: str) -> str:
    """What this machine lacks to build a program, in one line; empty if nothing."""
    language = LANGUAGES[name]
    tools = [tool for tool in language.tools if shutil.which(tool) is None]
    if tools:
        return f"there is no {' and no '.join(tools)} on the PATH"
    modules = [module for module in language.modules if importlib.util.find_spec(module) is None]
    return "protoc is missing: pip install grpcio-tools" if modules else ""


def _digest(name: str) -> str:
    found = hashlib.sha256()
    for path in (PROTO, *sorted(path for path in source(name).rglob("*") if path.is_file())):
        found.update(hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def _go(folder: Path) -> None:
    run(["go", "build", "-o", "bin/", *_PROTOC_GEN_GO], folder)
    made = [flag for kind in ("go", "go-grpc") for flag in (f"--{kind}_out=.", f"--{kind}_opt=Mlab.proto=./pb")]
    protoc(folder, *(f"--plugin=bin/{tool.rpartition('/')[2]}" for tool in _PROTOC_GEN_GO), *made)
    run(["go", "build", "-o", "grpc-go-lab", "."], folder)


def _node(folder: Path) -> None:
    run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts"], folder)


def _rust(folder: Path) -> None:
    protoc(folder, "--descriptor_set_out=descriptors")
    command = ["cargo", "build", "-q", "--release", "--locked", "--target-dir", "target"]
    run(command, folder, {"DESCRIPTORS": str(folder / "descriptors")})
    shutil.copy(folder / "target/release/lab", folder / "tonic-lab")
    shutil.rmtree(folder / "target")


def _java(folder: Path) -> None:
    run(["mvn", "-q", "-B", "package"], folder)


LANGUAGES: dict[str, Language] = {
    "go": Language("grpc-go is a program in Go", ("go",), _go, ("grpc_tools",)),
    "node": Language("grpc-js is a program in Node.js", ("node", "npm"), _node),
    "rust": Language("tonic is a program in Rust", ("cargo",), _rust, ("grpc_tools",)),
    "java": Language("grpc-java is a program in Java", ("java", "mvn"), _java),
}
"""By the name that ``nearcall-lab install`` takes, which is also that of the source's directory."""
