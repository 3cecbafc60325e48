"""grpc-go's server of the typed call, built here with the Go toolchain."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

from nearcall_lab.adapters.ports import free_port
from nearcall_lab.placement import on_cpus

_START_S = 10.0
_TOOLS = ("google.golang.org/protobuf/cmd/protoc-gen-go", "google.golang.org/grpc/cmd/protoc-gen-go-grpc")


class NoServer(Exception):
    """A server cannot be built or started; the message has the reason."""


def build(folder: Path) -> Path:
    """Build the program in `folder`: takes seconds, the first time a minute. Raises `NoServer`."""
    if shutil.which("go") is None:
        raise NoServer("there is no go on the PATH")
    if find_spec("grpc_tools") is None:
        raise NoServer("protoc is missing: pip install grpcio-tools")
    with as_file(files(__package__) / "go") as source:
        shutil.copytree(source, folder, dirs_exist_ok=True)
    _run(["go", "build", "-o", "bin/", *_TOOLS], folder)
    made = [f"--{kind}_out=. --{kind}_opt=Mlab.proto=./pb".split() for kind in ("go", "go-grpc")]
    plugins = [f"--plugin=bin/{tool.rpartition('/')[2]}" for tool in _TOOLS]
    _run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *plugins, *made[0], *made[1], "lab.proto"], folder)
    _run(["go", "build", "-o", "bin/lab", "."], folder)
    return folder / "bin/lab"


def _run(command: list[str], folder: Path) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise NoServer(f"{' '.join(command[:3])}: {' '.join(done.stderr.split())[:300]}")


@contextlib.contextmanager
def serving(program: Path, cpus: tuple[int, ...]) -> Iterator[tuple[str, list[int]]]:
    """Run the server on these CPUs; yields its address and its processes. Raises `NoServer`."""
    port = free_port()
    # Go makes as many threads as there are CPUs when it starts.
    with on_cpus(cpus):
        started = subprocess.Popen([str(program), str(port)])
    with started as process:
        try:
            end = time.monotonic() + _START_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise NoServer("grpc-go's server does not start")
                time.sleep(0.02)
            yield f"127.0.0.1:{port}", [process.pid]
        finally:
            process.kill()


def _listens(port: int) -> bool:
    import socket

    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
