"""A server of the typed call that is compiled here, from source that lies beside this module."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from importlib.resources import as_file, files
from importlib.util import find_spec
from pathlib import Path

from nearcall_lab.adapters.ports import free_port
from nearcall_lab.placement import on_cpus

_START_S = 10.0


class NoServer(Exception):
    """A server cannot be built or started; the message has the reason."""


def source(language: str, tool: str, folder: Path) -> None:
    """Copy the program's source, and the .proto, into `folder`. Raises `NoServer` without the tool or protoc."""
    if shutil.which(tool) is None:
        raise NoServer(f"there is no {tool} on the PATH")
    if find_spec("grpc_tools") is None:
        raise NoServer("protoc is missing: pip install grpcio-tools")
    with as_file(files(__package__)) as here:
        shutil.copytree(here / language, folder, dirs_exist_ok=True)
        shutil.copy(here / "lab.proto", folder)


def protoc(folder: Path, *flags: str) -> None:
    """Run protoc on the .proto in `folder`."""
    run([sys.executable, "-m", "grpc_tools.protoc", "-I.", *flags, "lab.proto"], folder)


def run(command: list[str], folder: Path, environment: Mapping[str, str] | None = None) -> None:
    """Run a step of the build in `folder`. Raises `NoServer` if it fails."""
    done = subprocess.run(
        command, cwd=folder, env=os.environ | (environment or {}), capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NoServer(f"{' '.join(command[:3])}: {' '.join(done.stderr.split())[:300]}")


@contextlib.contextmanager
def serving(program: Path, cpus: tuple[int, ...]) -> Iterator[tuple[str, list[int]]]:
    """Run the server on these CPUs; yields its address and its processes. Raises `NoServer`."""
    port = free_port()
    # Go and tokio make as many threads as there are CPUs when they start.
    with on_cpus(cpus):
        started = subprocess.Popen([str(program), str(port)])
    with started as process:
        try:
            end = time.monotonic() + _START_S
            while not _listens(port):
                if process.poll() is not None or time.monotonic() > end:
                    raise NoServer(f"{program} does not start")
                time.sleep(0.02)
            yield f"127.0.0.1:{port}", [process.pid]
        finally:
            process.kill()


def _listens(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
