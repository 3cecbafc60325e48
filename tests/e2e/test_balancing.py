"""Several servers behind one URL: the first that can be reached, or all of them in turn."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

import nearcall
import nearcall.aio

from .fleet import Fleet
from .process import ServerProcess, start_program

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
SCHEMES = ["tcp", "grpc"]


def start(
    scheme: str, host: str = "127.0.0.1", port: str = "0", services: str = "fleet", **options: Any
) -> ServerProcess:
    return ServerProcess(f"{scheme}://{host}:{port}", services=f"tests.e2e.fleet:{services}", **options)


def place(server: ServerProcess) -> str:
    return server.url.partition("://")[2]


def listed(scheme: str, *places: str) -> str:
    return f"{scheme}://{','.join(places)}"


def wait_until(check: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < end, "it has not come about"
        time.sleep(0.01)


@pytest.fixture
def dead() -> Iterator[str]:
    """A place that nobody listens at, and nobody else takes."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """A place that accepts connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def rude() -> Iterator[str]:
    """A place that hangs up on everybody."""
    import threading

    listener = socket.create_server(("127.0.0.1", 0))

    def hang_up() -> None:
        while True:
            try:
                listener.accept()[0].close()
            except OSError:
                return

    thread = threading.Thread(target=hang_up)
    thread.start()
    yield f"127.0.0.1:{listener.getsockname()[1]}"
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(PATIENCE)


@pytest.fixture(scope="module", params=SCHEMES)
def scheme(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def three(scheme: str) -> Iterator[list[ServerProcess]]:
    with ExitStack() as stack:
        yield [stack.enter_context(start(scheme, f"127.0.0.{last}")) for last in (2, 3, 4)]


@pytest.fixture
def all_of(scheme: str, three: list[ServerProcess]) -> str:
    return listed(scheme, *map(place, three))


def full(client: Any, servers: int) -> None:
    """Waits until so many are connected. Each call dials who is not."""

    def look() -> bool:
        client.service.pid()
        return len(client.peers) == servers

    wait_until(look)


# The first that can be reached.


@pytest.mark.parametrize("bad", ["dead", "silent", "rude"])
def test_the_next_address_is_taken(
    bad: str, scheme: str, three: list[ServerProcess], request: pytest.FixtureRequest
) -> None:
    url = listed(scheme, request.getfixturevalue(bad), place(three[1]))
    with nearcall.connect(url, Fleet, handshake_timeout=2.0) as client:
        assert [client.pid() for _ in range(3)] == [three[1].pid] * 3

    async def in_loop() -> int:
        async with nearcall.aio.connect(url, Fleet, handshake_timeout=2.0) as client:
            result: int = await client.pid()
            return result

    assert asyncio.run(in_loop()) == three[1].pid


def test_the_first_is_kept(all_of: str, three: list[ServerProcess]) -> None:
    client = nearcall.connect(all_of, Fleet)
    with client as service:
        assert {service.pid() for _ in range(10)} == {three[0].pid}
        assert [peer["address"] for peer in client.peers] == [place(three[0])]


def test_of_a_name_every_address_is_tried(scheme: str) -> None:
    """Where a name has both kinds of addresses, the server listens at the second."""
    with start(scheme, "127.0.0.1") as server:
        port = place(server).rpartition(":")[2]
        with nearcall.connect(f"{scheme}://localhost:{port}", Fleet) as client:
            assert client.pid() == server.pid


def test_when_the_first_dies_the_next_is_taken(scheme: str) -> None:
    with (
        start(scheme, "127.0.0.2") as one,
        start(scheme, "127.0.0.3") as two,
        nearcall.connect(listed(scheme, place(one), place(two)), Fleet) as client,
    ):
        assert client.pid() == one.pid
        one.kill()
        wait_until(lambda: _pid_or_none(client) == two.pid)


def _pid_or_none(client: Any) -> int | None:
    try:
        return int(client.pid())
    except nearcall.Unavailable:
        return None


def test_each_that_cannot_be_used_is_named(scheme: str, dead: str, rude: str) -> None:
    url = listed(scheme, dead, rude)
    with pytest.raises(nearcall.Unavailable) as caught:
        nearcall.connect(url, Fleet)
    said = str(caught.value)
    assert f"none of the servers of {url} can be used" in said
    assert f"cannot connect to {scheme}://{dead}: nobody listens there" in said
    assert f"{scheme}://{rude} hung up during the handshake" in said


def test_a_silent_grpc_server_is_recognized(rude: str) -> None:
    with pytest.raises(nearcall.Unavailable, match=f"if a gRPC server listens there, connect with grpc://{rude}"):
        nearcall.connect(f"tcp://{rude}", Fleet)


def test_a_server_listens_at_one_address_of_each_url(scheme: str) -> None:
    with pytest.raises(Exception, match="give it several URLs"):
        nearcall.Server(Fleet(), f"{scheme}://127.0.0.1:0,127.0.0.2:0").start()


# All of them in turn.


def test_calls_go_to_all_in_turn(all_of: str, three: list[ServerProcess]) -> None:
    client = nearcall.connect(all_of, Fleet, balancing="round_robin")
    with client as service:
        full(client, 3)
        assert sorted(peer["address"] for peer in client.peers) == sorted(map(place, three))
        assert Counter(service.pid() for _ in range(30)) == Counter({server.pid: 10 for server in three})
        # A stream stays where it is.
        assert len(set(service.pids(20))) == 1
        assert {pid for _ in range(6) for pid in service.pids(1)} == {server.pid for server in three}


def test_the_server_with_the_fewest_calls_is_taken(all_of: str, three: list[ServerProcess]) -> None:
    client = nearcall.connect(all_of, Fleet, balancing="least_calls")
    with client as service:
        full(client, 3)
        # As long as all have as few, they are called in turn.
        assert Counter(service.pid() for _ in range(30)) == Counter({server.pid: 10 for server in three})
        # A stream is a call under way: whoever has one is called no more.
        first = iter(service.pids(10**9))
        busy = {next(first)}
        assert {service.pid() for _ in range(20)} == {server.pid for server in three} - busy
        second = iter(service.pids(10**9))
        busy.add(next(second))
        assert len(busy) == 2
        (idle,) = {server.pid for server in three} - busy
        assert {service.pid() for _ in range(20)} == {idle}
        started = [nearcall.start(service.pid) for _ in range(3)]
        assert all(call.result() in {server.pid for server in three} for call in started)


def test_calls_of_a_loop_go_to_all_in_turn(all_of: str, three: list[ServerProcess]) -> None:
    async def who_streams(service: Any) -> set[int]:
        return {pid async for pid in service.pids(20)}

    async def main() -> None:
        client = nearcall.aio.connect(all_of, Fleet, balancing="round_robin")
        async with client as service:
            end = time.monotonic() + PATIENCE
            while len(client.peers) < 3:
                assert time.monotonic() < end
                await service.pid()
                await asyncio.sleep(0.01)
            pids = await asyncio.gather(*(service.pid() for _ in range(300)))
            assert Counter(pids) == Counter({server.pid: 100 for server in three})
            streams = [await who_streams(service) for _ in range(6)]
            assert all(len(pids) == 1 for pids in streams)
            assert set.union(*streams) == {server.pid for server in three}

    asyncio.run(main())


def test_started_calls_go_to_all_in_turn(all_of: str, three: list[ServerProcess]) -> None:
    client = nearcall.connect(all_of, Fleet, balancing="round_robin")
    with client as service:
        full(client, 3)
        started = [nearcall.start(service.pid) for _ in range(30)]
        assert Counter(call.result() for call in started) == Counter({server.pid: 10 for server in three})


def test_who_cannot_be_reached_is_left_out(scheme: str, three: list[ServerProcess], dead: str, silent: str) -> None:
    url = listed(scheme, dead, silent, place(three[0]), place(three[1]))
    client = nearcall.connect(url, Fleet, balancing="round_robin", handshake_timeout=30.0)
    with client as service:
        full(client, 2)
        # Nobody waits for the silent one.
        with nearcall.timeout(PATIENCE):
            assert Counter(service.pid() for _ in range(20)) == Counter({server.pid: 10 for server in three[:2]})


def test_one_dies_and_comes_back(scheme: str) -> None:
    with start(scheme, "127.0.0.2") as one, start(scheme, "127.0.0.3") as two:
        client = nearcall.connect(listed(scheme, place(one), place(two)), Fleet, balancing="round_robin")
        with client as service:
            full(client, 2)
            host, _, port = place(one).partition(":")
            one.kill()
            # One call at most is sent before the loss is known.
            seen = [_pid_or_none(service) for _ in range(10)]
            assert set(seen) - {None} == {two.pid}
            assert seen.count(None) <= 1
            with start(scheme, host, port) as again:
                full(client, 2)
                assert {service.pid() for _ in range(4)} == {again.pid, two.pid}


def test_where_nobody_is_all_are_named(scheme: str, dead: str, rude: str) -> None:
    url = listed(scheme, dead, rude)
    with pytest.raises(nearcall.Unavailable) as caught:
        nearcall.connect(url, Fleet, balancing="round_robin")
    said = str(caught.value)
    assert f"none of the servers of {url}" in said
    assert dead in said
    assert "hung up" in said
    with pytest.raises(nearcall.Unavailable):
        asyncio.run(_connect_in_loop(url))


async def _connect_in_loop(url: str) -> None:
    async with nearcall.aio.connect(url, Fleet, balancing="round_robin"):
        raise AssertionError("nobody is there")


def test_waiting_for_the_first_server(scheme: str, dead: str) -> None:
    with start(scheme) as server:
        where = place(server)
    host, _, port = where.partition(":")
    url = listed(scheme, dead, where)
    client: Any
    with start(scheme, "127.0.0.2") as first:
        client = nearcall.connect(f"{url},{place(first)}", Fleet, balancing="round_robin", wait_for_ready=True)
        assert client.pid() == first.pid
    with start(scheme, host, port) as later, client as service, nearcall.timeout(PATIENCE):
        assert service.pid() == later.pid


def test_closing_ends_it(all_of: str) -> None:
    client = nearcall.connect(all_of, Fleet, balancing="round_robin")
    full(client, 3)
    client.close()
    assert client.closed
    assert not client.connected
    assert client.peers == []
    with pytest.raises(nearcall.Cancelled):
        client.service.pid()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_child_by_fork_has_connections_of_its_own(all_of: str, three: list[ServerProcess]) -> None:
    from .process import run_program

    code = """
import os, sys, nearcall
from tests.e2e.fleet import Fleet
client = nearcall.connect(sys.argv[1], Fleet, balancing="round_robin")
first = client.service.pid()
child = os.fork()
seen = client.service.pid()
if child == 0:
    os._exit(0 if isinstance(seen, int) else 1)
print(os.waitpid(child, 0)[1])
client.close()
"""
    said, complained, status = run_program(code, all_of)
    assert (said, status) == ("0\n", 0), complained


def test_one_that_describes_itself_otherwise_is_left_out() -> None:
    with start("tcp", "127.0.0.2") as one, start("tcp", "127.0.0.3", services="with_other") as other:
        client = nearcall.connect(listed("tcp", place(one), place(other)), Fleet, balancing="round_robin")
        with client as service:
            used = service.pid()
            assert {service.pid() for _ in range(20)} == {used}
            # When none of those is left, it is taken.
            (one if used == one.pid else other).kill()
            left = other if used == one.pid else one
            wait_until(lambda: _pid_or_none(service) == left.pid)


def test_what_has_one_server_has_no_turns() -> None:
    with pytest.raises(ValueError, match=r"at shm://calc there is one server") as caught:
        nearcall.connect("shm://calc", Fleet, balancing="round_robin")
    assert caught.value.option == "balancing"  # type: ignore[attr-defined]
    with pytest.raises(nearcall.InvalidArgument, match='must be "pick_first", "round_robin" or "least_calls"'):
        nearcall.connect("tcp://127.0.0.1:1", Fleet, balancing="random")  # type: ignore[arg-type]


def test_servers_of_grpcios() -> None:
    program = "from tests.e2e.fleet import grpcio; grpcio()"
    with start_program(program, "1", "0") as one, start_program(program, "2", "0") as two:
        assert one.stdout is not None
        assert two.stdout is not None
        ports = [int(process.stdout.readline()) for process in (one, two) if process.stdout is not None]
        client = nearcall.connect(
            listed("grpc", *(f"127.0.0.1:{port}" for port in ports)), Fleet, balancing="round_robin"
        )
        with client as service:
            full(client, 2)
            assert Counter(service.pid() for _ in range(10)) == {1: 5, 2: 5}
        for process in (one, two):
            process.communicate("", timeout=PATIENCE)
