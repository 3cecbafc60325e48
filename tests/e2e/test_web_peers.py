"""Clients of Connect, gRPC-Web and gRPC of others' make, in Node, call our server. `make web-peers` installs them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .process import ServerProcess

FOLDER = Path(__file__).resolve().parents[1] / "web"
NODE = shutil.which("node")

pytestmark = pytest.mark.skipif(
    NODE is None or not (FOLDER / "node_modules").is_dir(), reason="the peers are not here: `make web-peers`, with Node"
)


@nearcall.service(name="test.v1.Web")
class Web:
    @nearcall.no_side_effects
    def add(self, a: int, b: int) -> int:
        return a + b

    def greet(self, name: str) -> str:
        return name

    def fail(self, why: str) -> None:
        raise nearcall.FailedPrecondition(why)

    def metadata(self) -> None:
        context = nearcall.context()
        word, data = context.metadata["x-word"], context.metadata["x-bytes-bin"]
        context.send_metadata([("x-word-back", word)])
        context.add_trailing_metadata([("x-word-tail", word), ("x-bytes-tail-bin", data)])

    def countdown(self, n: int) -> Iterator[int]:
        yield from range(n, 0, -1)

    def breaks(self) -> Iterator[int]:
        yield 1
        raise nearcall.Aborted("enough")

    def hold(self) -> None:
        while not nearcall.context().cancelled:
            time.sleep(0.01)

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    def both(self, xs: Iterator[int]) -> Iterator[int]:
        for x in xs:
            yield -x


def web() -> list[object]:
    return [Web()]


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with ServerProcess("http://127.0.0.1:0", services="tests.e2e.test_web_peers:web") as server:
        yield server


@pytest.fixture(scope="module")
def descriptors(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What protoc makes of our `.proto`."""
    folder = tmp_path_factory.mktemp("descriptors")
    command = [sys.executable, "-m", "nearcall", "proto", "tests.e2e.test_web_peers:Web"]
    text = subprocess.run(command, capture_output=True, text=True, check=True, cwd=FOLDER.parents[1]).stdout
    (folder / "web.proto").write_text(text)
    protoc = [sys.executable, "-m", "grpc_tools.protoc", f"-I{folder}", "--include_imports"]
    subprocess.run([*protoc, f"--descriptor_set_out={folder}/web.bin", "web.proto"], check=True)
    return folder / "web.bin"


def cases(server: ServerProcess, descriptors: Path, *choice: str) -> dict[str, Any]:
    assert NODE is not None
    command = [NODE, "peers.mjs", server.url, str(descriptors), *choice]
    done = subprocess.run(command, cwd=FOLDER, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


CLIENTS = [
    *(("connect", version, codec) for version in ("1.1", "2") for codec in ("proto", "json")),
    *(("grpc-web", version, codec) for version in ("1.1", "2") for codec in ("proto", "json")),
    *(("grpc", "2", codec) for codec in ("proto", "json")),
]


@pytest.mark.parametrize("choice", CLIENTS, ids=" ".join)
def test_clients_of_connects_own_make(server: ServerProcess, descriptors: Path, choice: tuple[str, str, str]) -> None:
    expected: dict[str, Any] = {
        "unary": 3,
        "zeros": 0,
        "text": "Käse 🦀",
        "failure": ["FailedPrecondition", 'not "here"'],
        "metadata": ["hello", "hello", "AP8"],
        "countdown": [3, 2, 1],
        "broken stream": ["Aborted", "enough"],
        "deadline": "DeadlineExceeded",
        "cancel": "Canceled",
        "total": 5050,
    }
    if choice[1] == "2":
        expected["both"] = [-x for x in range(1, 101)]
    if choice[0] == "connect":
        expected |= {"get": 7, "compressed": 10_000}
    assert cases(server, descriptors, *choice) == expected


def test_googles_client(server: ServerProcess, descriptors: Path) -> None:
    assert cases(server, descriptors, "grpc-web-text") == {
        "unary": 3,
        "text": "Käse 🦀",
        "failure": ["FailedPrecondition", 'not "here"'],
        "countdown": [3, 2, 1],
    }
