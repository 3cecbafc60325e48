"""Servers that are found by name: in a directory that is served, and in a file."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import nearcall
import nearcall.aio
from nearcall import cli
from nearcall.directory import Directory, Entry, Found, MemoryDirectory

from .fleet import Fleet
from .ports import own_port
from .process import ServerProcess
from .test_balancing import PATIENCE, wait_until
from .warm import ROOT

FLEET = "tests.e2e.fleet:fleet"


def directories() -> list[object]:
    return [MemoryDirectory()]


def serve_directory(url: str) -> ServerProcess:
    return ServerProcess(url, services="tests.e2e.test_directory:directories")


class Place:
    """A directory in a process of its own, which can be killed and started again, and who looks around in it."""

    def __init__(self, stack: ExitStack) -> None:
        self.url = f"tcp://127.0.0.1:{own_port()}"
        self._stack = stack
        self.begin()

    def begin(self) -> None:
        self.process = self._stack.enter_context(serve_directory(self.url))

    def name(self, name: str) -> str:
        return f"directory+{self.url}/{name}"

    def server(self, name: str, **options: Any) -> ServerProcess:
        return self._stack.enter_context(
            ServerProcess("tcp://127.0.0.1:0", services=FLEET, register=self.name(name), **options)
        )

    def lookup(self, name: str = "", **metadata: str) -> Found:
        with nearcall.connect(self.url, Directory, wait_for_ready=True) as directory:
            return directory.lookup(name, metadata)

    def has(self, name: str, count: int) -> None:
        wait_until(lambda: len(self.lookup(name).entries) == count)


def looking_at(served: MemoryDirectory, stack: ExitStack) -> Any:
    """A client of a directory in this process."""
    server = stack.enter_context(nearcall.Server(served, "tcp://127.0.0.1:0"))
    return stack.enter_context(nearcall.connect(server.urls[0], Directory))


@pytest.fixture
def place() -> Iterator[Place]:
    with ExitStack() as stack:
        yield Place(stack)


def test_a_server_is_found_by_name_and_followed(place: Place) -> None:
    first = place.server("fleet")
    place.has("fleet", 1)
    with nearcall.connect(place.name("fleet"), Fleet, wait_for_ready=True) as client:
        assert client.pid() == first.pid
        second = place.server("fleet")
        place.has("fleet", 2)
        first.kill()
        # The entry ends with its server, and nobody has to clean up.
        place.has("fleet", 1)
        assert client.number() == 0
        assert client.pid() == second.pid
        assert repr(client).find(place.name("fleet")) > 0


def test_servers_of_one_name_take_turns_and_new_ones_join(place: Place) -> None:
    servers = [place.server("fleet") for _ in range(2)]
    place.has("fleet", 2)
    with nearcall.connect(place.name("fleet"), Fleet, balancing="round_robin") as client:
        wait_until(lambda: {client.pid() for _ in range(4)} == {server.pid for server in servers})
        third = place.server("fleet")
        wait_until(lambda: third.pid in {client.pid() for _ in range(6)})
        assert third.close() == 0  # it takes its entry back, and no call fails
        for _ in range(200):
            assert client.pid() != third.pid


def test_clients_share_the_servers_without_balancing(place: Place) -> None:
    servers = {place.server("fleet").pid for _ in range(2)}
    place.has("fleet", 2)
    found: set[int] = set()

    def ask() -> bool:
        with nearcall.connect(place.name("fleet"), Fleet) as client:
            found.add(client.pid())
        return found == servers

    wait_until(ask)


def test_clients_go_on_without_the_directory_and_servers_come_back(place: Place) -> None:
    servers = [place.server("fleet") for _ in range(2)]
    pids = {server.pid for server in servers}
    place.has("fleet", 2)
    with (
        nearcall.connect(place.name("fleet"), Fleet, balancing="round_robin") as client,
        nearcall.connect(place.name("fleet"), Fleet) as other,
    ):
        wait_until(lambda: {client.pid() for _ in range(4)} == pids)
        assert other.pid() in pids
        place.process.kill()
        last = other.pid()
        with pytest.raises(nearcall.Unavailable, match=r"cannot find directory.*nobody listens there"):
            nearcall.connect(place.name("fleet"), Fleet)
        # Also a client that lost its server knows the others.
        next(server for server in servers if server.pid == last).kill()
        left = (pids - {last}).pop()
        assert other.number() == 0
        assert other.pid() == left
        wait_until(lambda: {client.number() for _ in range(4)} == {0})
        place.begin()
        # At first the directory does not know the server that is alive; nobody forgets it because of that.
        for _ in range(100):
            assert client.number() == other.number() == 0
        place.has("fleet", 1)
        third = place.server("fleet")
        wait_until(lambda: third.pid in {client.pid() for _ in range(4)})


def test_a_directory_that_does_not_answer_leaves_time_for_the_servers(place: Place) -> None:
    servers = {server.pid: server for server in (place.server("fleet"), place.server("fleet"))}
    place.has("fleet", 2)
    with nearcall.connect(place.name("fleet"), Fleet) as client:
        os.kill(place.process.pid, signal.SIGSTOP)
        servers.pop(client.pid()).kill()
        assert client.number() == 0
        assert client.pid() in servers
        os.kill(place.process.pid, signal.SIGCONT)


def test_a_wrong_entry_keeps_nobody_from_the_others(place: Place) -> None:
    with nearcall.connect(place.url, Directory) as directory:
        wrong: Any = directory.register(Entry("fleet", "tcp://127.0.0.1:99999"))
        nowhere: Any = directory.register(Entry("fleet", "tcp://nobody.invalid:1"))
        assert next(wrong).url
        assert next(nowhere).url
        with pytest.raises(nearcall.Unavailable, match=r"nobody\.invalid"):
            nearcall.connect(place.name("fleet"), Fleet)
        server = place.server("fleet")
        place.has("fleet", 3)
        for balancing in ("pick_first", "round_robin"):
            with nearcall.connect(place.name("fleet"), Fleet, balancing=balancing) as client:  # type: ignore[arg-type]
                assert client.pid() == server.pid


def test_servers_register_in_each_directory_of_a_list(place: Place) -> None:
    other = Place(place._stack)
    hosts = ",".join(each.url.removeprefix("tcp://") for each in (place, other))
    name = f"directory+tcp://{hosts}/fleet"
    server = place._stack.enter_context(ServerProcess("tcp://127.0.0.1:0", services=FLEET, register=name))
    for each in (place, other):
        each.has("fleet", 1)
    place.process.kill()
    with nearcall.connect(name, Fleet) as client:
        assert client.pid() == server.pid


def test_workers_are_one_server_and_leave_together(place: Place) -> None:
    command = [
        sys.executable,
        "-m",
        "nearcall",
        "serve",
        "tests.e2e.fleet:Fleet",
        "tcp://127.0.0.1:0",
        "--workers",
        "2",
    ]
    with subprocess.Popen([*command, "--register", place.name("fleet")], cwd=ROOT) as process:
        try:
            place.has("fleet", 1)
            with nearcall.connect(place.name("fleet"), Fleet) as client:
                assert client.pid() != process.pid
            process.terminate()
            place.has("fleet", 0)
            assert process.wait(20) == 0
        finally:
            process.kill()


def test_the_command_runs_a_directory_and_registers_with_a_token(tmp_path: Path) -> None:
    url = f"tcp://127.0.0.1:{own_port()}"
    (tmp_path / "token").write_text("secret")
    programs = [
        ["directory", "serve", url, "--token-file", f"{tmp_path}/token"],
        ["serve", "tests.e2e.fleet:Fleet", "tcp://127.0.0.1:0", "--register", f"directory+{url}/fleet"],
    ]
    programs[1] += ["--register-token-file", f"{tmp_path}/token"]
    asks: nearcall.ChannelOptions = {"interceptors": [nearcall.auth.token("secret")]}
    with ExitStack() as stack:
        running = [
            stack.enter_context(subprocess.Popen([sys.executable, "-m", "nearcall", *words], cwd=ROOT))
            for words in programs
        ]
        try:
            with nearcall.connect(
                f"directory+{url}/fleet", Fleet, wait_for_ready=True, handshake_timeout=PATIENCE, directory=asks
            ) as client:
                assert client.pid() == running[1].pid
            for process in running:
                process.terminate()
            assert [process.wait(20) for process in running] == [0, 0]
        finally:
            for process in running:
                process.kill()


def test_metadata_says_which_servers_are_meant(place: Place) -> None:
    eu, us = place.server("fleet?zone=eu&kind=a"), place.server("fleet?zone=us&kind=a")
    place.has("fleet", 2)
    for name, pid in (("fleet?zone=eu", eu.pid), ("?zone=us", us.pid), ("fleet?kind=a&zone=us", us.pid)):
        with nearcall.connect(place.name(name), Fleet) as client:
            assert client.pid() == pid
    assert [entry.metadata for entry in place.lookup("", zone="eu").entries] == [{"zone": "eu", "kind": "a"}]
    with pytest.raises(nearcall.Unavailable, match="no server is registered as 'fleet' with zone=asia: there is"):
        nearcall.connect(place.name("fleet?zone=asia"), Fleet)
    for balancing in ("pick_first", "round_robin"):
        with pytest.raises(nearcall.Unavailable, match=r"no server is registered as 'fleed': did you mean fleet?"):
            nearcall.connect(place.name("fleed"), Fleet, balancing=balancing)  # type: ignore[arg-type]


def test_a_client_waits_for_a_name(place: Place) -> None:
    for balancing in ("pick_first", "least_calls"):
        name = f"late-{balancing}"
        thread = threading.Timer(0.3, place.server, [name])
        thread.start()
        with nearcall.connect(
            place.name(name),
            Fleet,
            balancing=balancing,  # type: ignore[arg-type]
            wait_for_ready=True,
            handshake_timeout=20,
        ) as client:
            assert client.number() == 0
        thread.join()


def test_event_loops_find_servers_by_name(place: Place) -> None:
    servers = {place.server("fleet").pid for _ in range(2)}
    place.has("fleet", 2)

    async def work() -> None:
        async with nearcall.aio.connect(place.name("fleet"), Fleet, balancing="round_robin") as client:
            found: set[int] = set()
            while found != servers:
                found.add(await client.pid())
        async with nearcall.aio.connect(place.name("fleet"), Fleet) as client:
            assert await client.pid() in servers
        with pytest.raises(nearcall.Unavailable, match="did you mean fleet"):
            await nearcall.aio.connect(place.name("flet"), Fleet)

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_child_finds_servers_with_the_client_of_its_parent(place: Place) -> None:
    server = place.server("fleet")
    place.has("fleet", 1)
    with nearcall.connect(place.name("fleet"), Fleet) as client:
        assert client.pid() == server.pid
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if client.pid() == server.pid else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0


def test_a_file_says_where_servers_are_and_is_read_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "services.toml"
    name = f"directory+file://{file}/fleet"

    def write(*servers: ServerProcess, **metadata: str) -> None:
        new = tmp_path / "new"
        pairs = ", ".join(f'{key} = "{value}"' for key, value in metadata.items())
        new.write_text("".join(f'[[fleet]]\nurl = "{each.url}"\nmetadata = {{ {pairs} }}\n' for each in servers))
        new.replace(file)

    with pytest.raises(nearcall.Unavailable, match=r"services.toml cannot be read: No such file"):
        nearcall.connect(name, Fleet)
    with ExitStack() as stack:
        one, two = (stack.enter_context(ServerProcess("tcp://127.0.0.1:0", services=FLEET)) for _ in range(2))
        write(one, zone="eu")
        client = stack.enter_context(nearcall.connect(f"{name}?zone=eu", Fleet, balancing="round_robin"))
        failed: list[BaseException] = []
        seen: list[int] = []
        ended = threading.Event()

        def load() -> None:
            while not ended.is_set():
                try:
                    seen.append(client.pid())
                except BaseException as error:
                    failed.append(error)
                    return

        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: one.pid in seen)
            write(one, two, zone="eu")
            wait_until(lambda: two.pid in seen)
            write(two, zone="eu")
            wait_until(lambda: one.pid not in seen[-20:] and len(seen) > 20)
            file.write_text("[[fleet]\n")  # half written: the last good one holds
            seen.clear()
            wait_until(lambda: "go on to the servers that are known" in caplog.text and len(seen) > 0)
        finally:
            ended.set()
            for thread in threads:
                thread.join()
        assert failed == []
        assert set(seen) == {two.pid}
        with pytest.raises(nearcall.InvalidArgument, match=r"services.toml is no TOML"):
            nearcall.connect(name, Fleet)
        file.write_text('[[fleet]]\nurl = "tcp://127.0.0.1:1"\ncolour = "red"\n')
        with pytest.raises(nearcall.InvalidArgument, match=r"\[\[fleet\]\] has a url.*colour"):
            nearcall.connect(name, Fleet)


def test_what_a_peer_registers_is_bounded() -> None:
    with ExitStack() as stack:
        directory = looking_at(MemoryDirectory(max_entries=2, max_bytes=300), stack)

        def register(name: str, url: str = "tcp://127.0.0.1:1", **metadata: str) -> Any:
            stream: Any = directory.register(Entry(name, url, metadata))
            return next(stream), stream

        for name, url, metadata, text in (
            ("a b", "tcp://h:1", {}, "no name for a directory"),
            ("a", "tcp://h:1", {"key": "x" * 5000}, "4096 is the most"),
            ("a", "tcp://h:1", {"key": "\n"}, "printable"),
            ("a", "inproc://a", {}, "no URL at which other processes"),
            ("a", "tcp://nowhere", {}, "does not name one host and a port"),
            ("a", "http", {}, "no URL at which other processes"),
            ("a", "tcp://127.0.0.1:0", {}, "no port yet"),
        ):
            with pytest.raises(nearcall.InvalidArgument, match=text):
                register(name, url, **metadata)
        with pytest.raises(nearcall.ResourceExhausted, match="the directory is full"):
            register("a", "tcp://h:1", key="x" * 400)
        entry, _kept = register("a", "tcp://0.0.0.0:7")
        assert entry.url == "tcp://127.0.0.1:7"  # where the caller was seen
        _, stream = register("b")
        with pytest.raises(nearcall.ResourceExhausted, match="max_entries=2"):
            register("c")
        stream.close()
        wait_until(lambda: len(directory.lookup("", {}).entries) == 1)
        register("c")


def test_a_name_may_be_one_servers_alone_and_not_everybodys(place: Place) -> None:
    with nearcall.connect(place.url, Directory) as directory:
        mine: Any = directory.register(Entry("mine", "tcp://127.0.0.1:1"), True)
        next(mine)
        again: Any = directory.register(Entry("mine", "tcp://127.0.0.1:1"), True)  # another worker of that server
        next(again)
        with pytest.raises(nearcall.AlreadyExists, match=r"'mine' is registered at tcp://127.0.0.1:1, and was"):
            next(directory.register(Entry("mine", "tcp://127.0.0.1:2")))  # type: ignore[call-overload]

    def may(context: nearcall.Context, entry: Entry) -> bool:
        return entry.name.startswith("public-") or context.peer.get("pid") == 0

    with ExitStack() as stack:
        directory = looking_at(MemoryDirectory(may_register=may), stack)
        next(directory.register(Entry("public-a", "tcp://127.0.0.1:1")))  # type: ignore[call-overload]
        with pytest.raises(nearcall.PermissionDenied, match="may not register 'private'"):
            next(directory.register(Entry("private", "tcp://127.0.0.1:1")))  # type: ignore[call-overload]


def test_a_directory_may_demand_a_token(key: str, runtime_dir: Path) -> None:
    asks = {"interceptors": [nearcall.auth.token("secret")]}
    with nearcall.Server(MemoryDirectory(), f"unix://{runtime_dir}/{key}.d", **asks) as server:  # type: ignore[arg-type]
        name = f"directory+{server.urls[0]}/fleet"
        registration = nearcall.Registration(name, interceptors=[nearcall.auth.token("secret")])
        with nearcall.Server(Fleet(), "tcp://127.0.0.1:0", register=registration):
            with pytest.raises(nearcall.Unauthenticated, match=r"cannot find directory.*needs a token"):
                nearcall.connect(name, Fleet)
            with nearcall.connect(
                name, Fleet, directory={"interceptors": [nearcall.auth.token("secret")]}, wait_for_ready=True
            ) as client:
                assert client.pid() == os.getpid()


def test_only_servers_of_nearcalls_protocol_are_reached_by_name(place: Place) -> None:
    with nearcall.Server(Fleet(), "grpc://127.0.0.1:0", register=place.name("web")) as server:
        place.has("web", 1)
        with pytest.raises(nearcall.FailedPrecondition, match=f"a server of that name is at {server.urls[0]}"):
            nearcall.connect(place.name("web"), Fleet)


@pytest.mark.parametrize(
    ("url", "text"),
    [
        ("directory+tcp://127.0.0.1:1", "a slash and the name"),
        ("directory+tcp://127.0.0.1:1/a b", "no name for a directory"),
        ("directory+tcp://127.0.0.1:1/a?zone", "key=value"),
        ("directory+tcp://127.0.0.1:1/a?z=1&z=2", "stands there twice"),
        ("directory+file://etc/x/a", "begins with a slash"),
        ("directory+directory+tcp://h:1/a/b", "a slash and the name"),
        ("directory+tpc://127.0.0.1:1/a", "did you mean tcp"),
    ],
)
def test_wrong_urls_say_what_to_write(url: str, text: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=text):
        nearcall.connect(url, Fleet)


def test_wrong_options_are_refused() -> None:
    with pytest.raises(ValueError, match="nothing registers in a file"):
        nearcall.Server(Fleet(), "tcp://127.0.0.1:0", register="directory+file:///etc/x/a")
    with pytest.raises(nearcall.InvalidArgument, match="no name to register"):
        nearcall.Registration("directory+tcp://127.0.0.1:1/?zone=eu")
    with pytest.raises(ValueError, match="no other process reaches"):
        nearcall.Server(Fleet(), "inproc://x", register="directory+tcp://127.0.0.1:1/a")
    with pytest.raises(ValueError, match="directory is for directory"):
        nearcall.connect("tcp://127.0.0.1:1", Fleet, directory={})
    with pytest.raises(ValueError, match="is a file"):
        nearcall.connect("directory+file:///etc/x/a", Fleet, directory={})
    with pytest.raises(nearcall.InvalidArgument, match="directory\\+tcp"):
        nearcall.Server(Fleet(), "directory+tcp://127.0.0.1:1/a").start()


def test_the_command_lists_and_looks_up(place: Place, capsys: pytest.CaptureFixture[str]) -> None:
    server = place.server("fleet?zone=eu")
    place.has("fleet", 1)
    line = f"fleet {server.url} zone=eu\n"
    assert cli.main(["directory", "list", place.url]) == 0
    assert capsys.readouterr().out == line
    assert cli.main(["directory", "lookup", place.name("fleet?zone=eu")]) == 0
    assert capsys.readouterr().out == line
    assert cli.main(["directory", "lookup", "--json", f"{place.url}/fleet"]) == 0
    assert f'"url":"{server.url}"' in capsys.readouterr().out
    assert cli.main(["directory", "lookup", place.name("flet")]) == 1
    assert "did you mean fleet" in capsys.readouterr().err
    assert cli.main(["call", place.name("fleet"), "number"]) == 0
    assert capsys.readouterr().out == "0\n"
