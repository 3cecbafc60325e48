"""A name that leads to another address later: clients look it up anew when they connect."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nearcall

from .ports import own_port

NAME = "changing.test"
PATIENCE = 30
"""Seconds after which a test that waits has failed."""


@nearcall.service
class Where:
    def __init__(self, place: str = "") -> None:
        self._place = place

    @nearcall.idempotent
    def where(self) -> str:
        return self._place


CLIENT = """
import sys, nearcall
from tests.e2e.test_name_changes import Where
options = {"balancing": sys.argv[2]} if sys.argv[2] else {}
with nearcall.connect(sys.argv[1], Where, allow_plaintext=True, **options) as client:
    for line in sys.stdin:
        print(client.where() if line == "call\\n" else client.peers, flush=True)
"""


class Names:
    """What the client's own /etc/hosts says, in a mount namespace of its own."""

    def __init__(self, hosts: Path) -> None:
        self._hosts = hosts

    def lead_to(self, *addresses: str) -> None:
        # In its place: a file that replaces it would not be the one that is mounted.
        self._hosts.write_text("".join(f"{address} {NAME}\n" for address in addresses))

    def command(self, *argv: str) -> list[str]:
        mount = f'mount --bind "{self._hosts}" /etc/hosts && exec "$@"'
        return ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", mount, "sh", *argv]


@pytest.fixture
def names(tmp_path: Path) -> Names:
    names = Names(tmp_path / "hosts")
    names.lead_to("127.0.0.9")
    if shutil.which("unshare") is None:
        pytest.skip("there is no unshare")
    tried = subprocess.run(names.command("getent", "hosts", NAME), capture_output=True, text=True, check=False)
    if not tried.stdout.startswith("127.0.0.9"):
        pytest.skip(f"no mount namespace here: {tried.stderr.strip()}")
    return names


class Client:
    def __init__(self, names: Names, url: str, balancing: str) -> None:
        self._process = subprocess.Popen(
            names.command(sys.executable, "-c", CLIENT, url, balancing),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def say(self, word: str) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{word}\n")
        self._process.stdin.flush()
        return self._process.stdout.readline().strip()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE)
        self._process.stdout.close()


def server(scheme: str, number: int, port: int) -> nearcall.Server:
    return nearcall.Server(Where(f"127.0.0.{number}"), f"{scheme}://127.0.0.{number}:{port}")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scheme", "balancing"), [("tcp", ""), ("grpc", ""), ("http", ""), ("tcp", "round_robin"), ("grpc", "round_robin")]
)
def test_a_server_that_moves(names: Names, scheme: str, balancing: str) -> None:
    port = own_port()
    names.lead_to("127.0.0.2")
    with (
        server(scheme, 2, port) as old,
        server(scheme, 3, port),
        Client(names, f"{scheme}://{NAME}:{port}", balancing) as client,
    ):
        assert client.say("call") == "127.0.0.2"
        names.lead_to("127.0.0.3")
        assert client.say("call") == "127.0.0.2", "what is connected stays"
        old.stop()
        assert client.say("call") == "127.0.0.3"


def test_a_server_that_moves_after_it_was_away(names: Names) -> None:
    """The first address that answers counts, also when the name had none for a while."""
    port = own_port()
    names.lead_to("127.0.0.2", "127.0.0.4")
    url = f"grpc://{NAME}:{port}"
    with server("grpc", 2, port) as old, server("grpc", 4, port) as new, Client(names, url, "") as client:
        assert client.say("call") == "127.0.0.2"
        old.stop()
        assert client.say("call") == "127.0.0.4", "the other address of the name"
        names.lead_to("127.0.0.3")
        with server("grpc", 3, port):
            new.stop()
            assert client.say("call") == "127.0.0.3"
