"""Out of descriptors, out of disk: the call or the connection that needed it fails, with a reason, and nothing else."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall

from ..e2e.process import ServerProcess, run_program
from .conftest import SERVICES
from .observing import Holdings, comes_back_to, eventually
from .services import LARGE, SMALL, Target

pytestmark = pytest.mark.crash

CLIENT = """
import contextlib, json, os, resource, sys
import nearcall
from tests.survival.services import LARGE, SMALL, Target

url = sys.argv[1]
outcomes = []

def attempt(call):
    try:
        outcomes.append([type(call()).__name__, ""])
    except nearcall.RpcError as error:
        outcomes.append([type(error).__name__, error.message])

client = nearcall.connect(url, Target)
target = client.service
target.echo(SMALL)
most = resource.getrlimit(resource.RLIMIT_NOFILE)
# Every number up to the limit is taken.
resource.setrlimit(resource.RLIMIT_NOFILE, (64, most[1]))
taken = []
with contextlib.suppress(OSError):
    while True:
        taken.append(os.dup(0))
attempt(lambda: target.length(memoryview(bytes(LARGE))))
attempt(lambda: target.echo(SMALL))
attempt(lambda: nearcall.connect(url, Target))
attempt(lambda: target.make(LARGE))
for one in taken:
    os.close(one)
attempt(lambda: target.echo(SMALL))
attempt(lambda: target.length(memoryview(bytes(LARGE))))
attempt(lambda: target.make(LARGE))
client.close()
print(json.dumps(outcomes))
"""


@pytest.mark.slow
def test_a_client_without_descriptors(server: ServerProcess, transport: str) -> None:
    with nearcall.connect(server.url, Target) as target:
        assert target.echo(bytes(LARGE)) == bytes(LARGE)
    before = Holdings.of(server.pid)
    said, complained, status = run_program(CLIENT, server.url)
    assert (complained, status) == ("", 0)
    outcomes = json.loads(said)
    names = [name for name, _ in outcomes]
    if transport == "shm":
        assert names == [
            "ResourceExhausted",  # only the call that needed a descriptor
            "bytes",
            "Unavailable",
            "ResourceExhausted",  # the answer's memory was lost, and the connection with it
            "bytes",
            "int",
            "bytes",
        ]
        assert "Too many open files" in outcomes[0][1]
        assert "ulimit -n" in outcomes[3][1]
    else:
        assert names == ["int", "bytes", "Unavailable", "bytes", "bytes", "int", "bytes"]
    assert server.url in outcomes[2][1]
    assert "Too many open files" in outcomes[2][1]
    comes_back_to(server.pid, before)


@pytest.fixture
def cramped(new_url: str, tmp_path: Path) -> Iterator[tuple[ServerProcess, Path]]:
    """A server that may have few descriptors more than it has, and its log."""
    log = tmp_path / "log"
    with (
        log.open("w") as stderr,
        ServerProcess(new_url, services="tests.survival.test_exhaustion:cramped_services", stderr=stderr) as server,
    ):
        yield server, log


def cramped_services() -> list[object]:
    import logging
    import resource

    logging.basicConfig(format="%(levelname)s %(message)s")
    resource.setrlimit(resource.RLIMIT_NOFILE, (24, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    return [Target()]


@pytest.mark.slow
def test_a_server_without_descriptors(cramped: tuple[ServerProcess, Path], transport: str) -> None:
    server, log = cramped
    with nearcall.connect(server.url, Target) as first:
        assert first.echo(bytes(LARGE)) == bytes(LARGE)
        before = Holdings.of(server.pid)
        others = []

        def one_more_is_refused() -> bool:
            assert len(others) < 30
            # A handshake that a busy machine made too slow is no proof: the server must have said why.
            with contextlib.suppress(nearcall.RpcError):
                others.append(nearcall.connect(server.url, Target, handshake_timeout=0.5))
            return "descriptor" in log.read_text() or "open files" in log.read_text()

        eventually(one_more_is_refused, "nothing in the log")
        # Those who are in are served on; over shared memory also with what needs no new descriptor.
        assert first.echo(SMALL) == SMALL
        assert [other.service.echo(SMALL) for other in others] == [SMALL] * len(others)
        assert first.length(memoryview(bytes(LARGE))) == LARGE
        for other in others:
            other.close()
        others.clear()
        comes_back_to(server.pid, before)
        with nearcall.connect(server.url, Target) as next_one:
            assert next_one.echo(bytes(LARGE)) == bytes(LARGE)
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_a_long_reply_without_descriptors(cramped: tuple[ServerProcess, Path], transport: str) -> None:
    """Only the call whose answer needs one fails, and it says why."""
    server, _ = cramped
    with nearcall.connect(server.url, Target) as target:
        target.take_descriptors()
        if transport == "shm":
            with pytest.raises(nearcall.ResourceExhausted, match="Too many open files"):
                target.make(LARGE)
        else:
            assert len(target.make(LARGE)) == LARGE
        assert target.echo(SMALL) == SMALL
        target.give_descriptors()
        assert len(target.make(LARGE)) == LARGE


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system without room for one more byte, though for names."""
    place = tmp_path / "d"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4k,mode=0700", "tmpfs", str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip(f"cannot mount a small file system here: {mounted.stderr.strip()}")
    try:
        place.joinpath("full").write_bytes(bytes(4096))
        yield place
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_full_disk_does_not_keep_a_server_from_serving(full_disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sockets and locks take no room; who holds the lock is a courtesy."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(full_disk))
    for url in ("shm://full", f"unix://{full_disk}/s"):
        with ServerProcess(url, services=SERVICES) as server, nearcall.connect(url, Target) as target:
            assert target.pid() == server.pid
            with pytest.raises(nearcall.AlreadyExists, match="another process already does") as caught:
                nearcall.Server(Target(), url).start()
            assert url in caught.value.message
    assert sorted(path.name for path in full_disk.rglob("*") if not path.is_dir()) == ["full"]


@pytest.mark.parametrize("free", [0, 1], ids=["nothing_fits", "the_socket_alone_does_not_fit"])
def test_a_disk_without_room_for_names_is_said_so(full_disk: Path, monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    """Where the lock file was made already, it does not stay."""
    names = 2  # of the disk itself and of the file that fills it
    if free:
        full_disk.joinpath("nearcall").mkdir(mode=0o700)
        names += 1
    remounted = subprocess.run(
        ["mount", "-o", f"remount,nr_inodes={names + free}", str(full_disk)],
        capture_output=True,
        text=True,
        check=False,
    )
    if remounted.returncode != 0:
        pytest.skip(f"cannot take the names away: {remounted.stderr.strip()}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(full_disk))
    for url in ("shm://full", f"unix://{full_disk}/s"):
        with pytest.raises(OSError, match="No space left on device") as caught:
            nearcall.Server(Target(), url).start()
        assert url in str(caught.value)
        assert sorted(path.name for path in full_disk.rglob("*") if not path.is_dir()) == ["full"]


@pytest.mark.slow
def test_what_dead_servers_left_is_replaced(new_url: str, transport: str, runtime_dir: Path) -> None:
    """A socket without a lock, a lock without a socket, a lock with nonsense in it."""
    if transport == "tcp":
        pytest.skip("no files")
    name = new_url.removeprefix(f"{transport}://")
    path = Path(name) if transport == "unix" else runtime_dir / "nearcall" / f"{name}.sock"
    lock = Path(f"{path}.lock")
    for keep in ("both", "socket", "lock", "nonsense"):
        with ServerProcess(new_url, services=SERVICES) as dead:
            dead.kill()
        assert path.is_socket()
        assert lock.read_text() == str(dead.pid)
        if keep == "socket":
            lock.unlink()
        elif keep == "lock":
            path.unlink()
        elif keep == "nonsense":
            lock.write_bytes(os.urandom(100_000))
        with pytest.raises(nearcall.Unavailable) as caught:
            nearcall.connect(new_url, Target)
        assert new_url in caught.value.message
        with ServerProcess(new_url, services=SERVICES) as next_one, nearcall.connect(new_url, Target) as target:
            assert target.pid() == next_one.pid
        assert not path.exists()
        assert not lock.exists()
