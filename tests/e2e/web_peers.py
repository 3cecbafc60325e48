"""Implementations of Connect of others' make: how their clients and servers of the test service are started."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["PEERS", "Choice", "Peer"]

ROOT = Path(__file__).resolve().parents[2]
FOLDER = ROOT / "tests" / "web"

Choice = tuple[str, str, str]
"""A protocol, HTTP's version, and a codec."""

_CONNECT_AND_WEB = [
    (protocol, version, codec)
    for protocol in ("connect", "grpc-web")
    for version in ("1.1", "2")
    for codec in ("proto", "json")
]
_GRPC = [("grpc", "2", codec) for codec in ("proto", "json")]


class Peer(ABC):
    """One of them."""

    name: str
    choices: tuple[Choice, ...] = (*_CONNECT_AND_WEB, *_GRPC)
    """What its client can be."""
    versions: tuple[str, ...] = ("1.1", "2")
    """What its server speaks, in the order of its ports."""
    beyond: frozenset[str] = frozenset()
    both_over_http1 = False
    """Whether its server takes streams both ways over HTTP/1.1."""
    """Cases that not all clients have."""

    @property
    @abstractmethod
    def is_here(self) -> bool:
        """Whether it is installed."""

    @abstractmethod
    def client(self, url: str, descriptors: Path, choice: tuple[str, ...]) -> list[str]:
        """The command that calls a server, and prints what came: a line of JSON for each case."""

    @abstractmethod
    def server(self, descriptors: Path) -> list[str]:
        """The command that prints its ports as JSON, and serves until its input ends."""

    def environment(self, descriptors: Path) -> dict[str, str]:
        """What its programs find around them."""
        return dict(os.environ)

    def cases(self, url: str, descriptors: Path, *choice: str) -> dict[str, Any]:
        """What its client got of a server, by the names of the cases."""
        done = subprocess.run(
            self.client(url, descriptors, choice),
            cwd=FOLDER,
            env=self.environment(descriptors),
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return dict(json.loads(line) for line in done.stdout.splitlines())

    @contextlib.contextmanager
    def serving(self, descriptors: Path) -> Iterator[dict[str, str]]:
        """Where its server is, by HTTP's version."""
        with subprocess.Popen(
            self.server(descriptors),
            cwd=FOLDER,
            env=self.environment(descriptors),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            ports = json.loads(process.stdout.readline())
            yield {version: f"http://127.0.0.1:{port}" for version, port in zip(self.versions, ports, strict=True)}
            process.stdin.close()
            process.wait(20)


class Node(Peer):
    """connect-node, and Google's client of gRPC-Web."""

    name = "connect-node"
    beyond = frozenset({"cancel"})

    @property
    def is_here(self) -> bool:
        return shutil.which("node") is not None and (FOLDER / "node_modules").is_dir()

    def client(self, url: str, descriptors: Path, choice: tuple[str, ...]) -> list[str]:
        return ["node", "peers.mjs", url, str(descriptors / "web.bin"), *choice]

    def server(self, descriptors: Path) -> list[str]:
        return ["node", "server.mjs", str(descriptors / "web.bin")]


class Go(Peer):
    """connect-go."""

    name = "connect-go"
    beyond = frozenset({"cancel", "compressed get"})
    _program = ROOT / "target" / "web" / "connect-go"

    @property
    def is_here(self) -> bool:
        return self._program.is_file()

    def client(self, url: str, descriptors: Path, choice: tuple[str, ...]) -> list[str]:
        return [str(self._program), "client", url, str(descriptors / "web.bin"), *choice]

    def server(self, descriptors: Path) -> list[str]:
        return [str(self._program), "server", str(descriptors / "web.bin")]


class Python(Peer):
    """connectrpc for Python, with uvicorn."""

    name = "connectrpc"
    versions = ("1.1",)
    beyond = frozenset({"compressed get"})
    both_over_http1 = True

    @property
    def is_here(self) -> bool:
        return all(importlib.util.find_spec(module) for module in ("connectrpc", "uvicorn"))

    def client(self, url: str, descriptors: Path, choice: tuple[str, ...]) -> list[str]:
        return [sys.executable, "python/peers.py", "client", url, *choice]

    def server(self, descriptors: Path) -> list[str]:
        return [sys.executable, "python/peers.py", "server"]

    def environment(self, descriptors: Path) -> dict[str, str]:
        # Where protoc has written Python.
        return os.environ | {"PYTHONPATH": str(descriptors)}


PEERS: dict[str, Peer] = {peer.name: peer for peer in (Node(), Go(), Python())}
