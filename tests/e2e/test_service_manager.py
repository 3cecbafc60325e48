"""What a service manager passes to ``nearcall serve`` and hears from it: listening sockets, and how it goes."""

from __future__ import annotations

import fcntl
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall

APP = """
import nearcall

@nearcall.service
class Hello:
    def hello(self, name: str) -> str:
        return f"Hello, {name}!"
"""
START = """
import os, sys
given = [int(number) for number in sys.argv[1].split(",") if number]
for to, number in enumerate(given, 3):
    os.dup2(number, to)
if given:
    os.environ |= {"LISTEN_FDS": str(len(given)), "LISTEN_PID": str(os.getpid())}
os.execv(sys.executable, [sys.executable, "-m", "nearcall", "serve", *sys.argv[2:]])
"""
"""Does what systemd does before it runs a service."""


@nearcall.service
class Hello:
    def hello(self, name: str) -> str: ...


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


@pytest.fixture
def manager(folder: Path) -> Iterator[socket.socket]:
    """Hears what a service says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as end:
        end.bind(str(folder / "notify"))
        end.settimeout(60)
        yield end


def start(folder: Path, sockets: list[socket.socket], *arguments: str) -> subprocess.Popen[str]:
    """The service, which is passed these sockets."""
    # Above those that they become, and none that this process has.
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD, 100) for each in sockets]
    try:
        return subprocess.Popen(
            [sys.executable, "-c", START, ",".join(map(str, copies)), *arguments],
            cwd=folder,
            env=os.environ | {"NOTIFY_SOCKET": str(folder / "notify")},
            pass_fds=copies,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        for copy in copies:
            os.close(copy)


@pytest.mark.slow
@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
@pytest.mark.parametrize("kind", ["unix", "tcp", "grpc+unix", "shm"])
def test_clients_come_before_the_server(
    folder: Path, manager: socket.socket, kind: str, workers: tuple[str, ...], key: str
) -> None:
    """And find the same socket there when it has ended."""
    if kind == "tcp":
        listening = socket.create_server(("127.0.0.1", 0))
        url = f"tcp://127.0.0.1:{listening.getsockname()[1]}"
    else:
        directory = Path(os.environ["XDG_RUNTIME_DIR"], "nearcall") if kind == "shm" else folder
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / f"passed{key}.sock"
        url = f"shm://passed{key}" if kind == "shm" else f"{kind}://{path}"
        listening = socket.socket(socket.AF_UNIX)
        listening.bind(str(path))
        listening.listen()
    with listening:
        # It waits in the queue of the socket: nobody serves yet.
        early = socket.socket(listening.family)
        early.connect(listening.getsockname())
        with early, start(folder, [listening], "app:Hello", url, *workers) as process:
            try:
                assert manager.recv(100) == b"READY=1"
                with nearcall.connect(url, Hello, timeout=60) as hello:
                    assert hello.hello("you") == "Hello, you!"
                process.send_signal(signal.SIGTERM)
                assert manager.recv(100) == b"STOPPING=1"
                assert process.wait(60) == 0
            finally:
                process.kill()
        with socket.socket(listening.family) as late:
            late.connect(listening.getsockname())
    if kind != "tcp":
        path.unlink()  # it was not the server's


def test_a_socket_for_no_url_is_told(folder: Path, manager: socket.socket) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        with start(folder, [other], "app:Hello", "unix://" + str(folder / "a.sock")) as process:
            said = process.communicate(timeout=60)[1]
        address = f"127.0.0.1:{other.getsockname()[1]}"
    assert process.returncode == 2
    assert f"no URL has the address of the socket passed to this process, {address}" in said, said


def test_sockets_for_another_process_are_left_alone(folder: Path, key: str) -> None:
    environment = os.environ | {"LISTEN_FDS": "1", "LISTEN_PID": "1"}
    command = [sys.executable, "-m", "nearcall", "serve", "app:Hello", f"shm://others{key}"]
    with subprocess.Popen(command, cwd=folder, env=environment, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stderr is not None
            assert process.stderr.readline().startswith("serving app:Hello at ")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("sockets", "kind", "message"),
    [
        ([999], ValueError, "descriptor 999 is no socket of this process"),
        (["3"], TypeError, "sockets takes numbers of descriptors, and '3' is none"),
    ],
)
def test_what_is_no_listening_socket(sockets: list[int], kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message):
        nearcall.Server(Hello(), "tcp://127.0.0.1:0", sockets=sockets)


def test_a_connection_does_not_listen() -> None:
    one, other = socket.socketpair()
    with (
        one,
        other,
        pytest.raises(ValueError, match=rf"does not listen; a connection is served at fd://{one.fileno()}"),
    ):
        nearcall.Server(Hello(), "tcp://127.0.0.1:0", sockets=[one.fileno()])


def test_a_reload_is_told_and_its_end(folder: Path, manager: socket.socket, key: str) -> None:
    with start(folder, [], "app:Hello", f"shm://reloads{key}", "--workers", "1") as process:
        try:
            assert manager.recv(100) == b"READY=1"
            process.send_signal(signal.SIGHUP)
            assert re.fullmatch(rb"RELOADING=1\nMONOTONIC_USEC=\d+", manager.recv(100))
            assert manager.recv(100) == b"READY=1"
            (folder / "app.py").write_text("it is broken")
            process.send_signal(signal.SIGHUP)
            assert manager.recv(100).startswith(b"RELOADING=1\n")
            assert manager.recv(100) == b"READY=1"  # with the workers that were there
            process.send_signal(signal.SIGTERM)
            assert manager.recv(100) == b"STOPPING=1"
            assert process.wait(60) == 0
        finally:
            process.kill()
