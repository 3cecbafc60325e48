"""Nodes whose peers die, vanish, or mean harm by the address that they give for replies."""

from __future__ import annotations

import asyncio
import gc
import itertools
import os
import socket
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import route

from ..hostile import raw
from ..hostile.frames import CALL, ONEWAY, encode, frame
from .conftest import TRANSPORTS
from .test_route import PATIENCE, nodes, noting, table_of, until

OTHERS = """
import os, sys
from nearcall import route
node = route.Node(sys.argv[1])
@node.on(1)
def seen(message): os.write(1, b"1")
@node.on(2)
def answer(message): message.reply(b"here")
with node:
    os.write(1, b"ready\\n")
    sys.stdin.read()
"""
"""A node that takes messages of type 1, and answers those of type 2. It ends with its standard input."""

CALLERS = """
import os, sys
from nearcall import route
for number in range(30):
    with route.Node(f"{sys.argv[1]}{number}") as caller:
        os.write(1, caller.call(1, to=sys.argv[2], timeout=30).payload)
"""

ONE_WAY = """
import nearcall, os, sys
@nearcall.service
class Sink:
    @nearcall.oneway
    def take(self, number: int) -> None: ...
with nearcall.Server(Sink(), sys.argv[1]):
    os.write(1, b"ready\\n")
    sys.stdin.read()
"""


@nearcall.service
class Sink:
    @nearcall.oneway
    def take(self, number: int) -> None: ...


@contextmanager
def another(program: str, *arguments: str) -> Generator[subprocess.Popen[bytes], None, None]:
    command = [sys.executable, "-c", program, *arguments]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        try:
            yield process
        except BaseException:
            process.kill()
            raise
        finally:
            if process.poll() is not None:
                with nearcall.Server(Sink(), arguments[0]):
                    pass  # the files that the dead has left are taken over, and removed


def kill(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(PATIENCE)


@pytest.fixture(params=["shm", "unix", "tcp"])
def outside(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> Callable[[str], str]:
    return lambda name: TRANSPORTS[request.param](f"e{key}{name}", runtime_dir)


def endpoint(node: route.Node | route.aio.Node, name: str) -> route.EndpointStatus:
    return next(each for each in node.status().endpoints if each.name == name)


@pytest.mark.crash
def test_a_one_way_client_notices_that_its_server_was_killed(key: str) -> None:
    url = f"shm://e{key}sink"
    with another(ONE_WAY, url) as server, nearcall.connect(url, Sink) as client:
        client.take(0)
        kill(server)
        numbers = itertools.count()  # the ring has room for more than twice as many
        with pytest.raises(nearcall.Unavailable, match=r"its server has died|was lost"):
            until(lambda: next(numbers) > 200 or client.take(1), "the loss")


@pytest.mark.slow
@pytest.mark.crash
def test_the_death_of_a_receiver_is_noticed_while_nothing_is_sent(outside: Callable[[str], str]) -> None:
    url = outside("dying")
    with another(OTHERS, url) as receiver, route.Node(outside("sender")) as sender:
        sender.install(table_of(f"rte | 1 | {url}"))
        sender.ready(PATIENCE)
        kill(receiver)
        until(lambda: not endpoint(sender, url).connected, "the loss")
        sender.send(1, b"for the next one")
        until(lambda: endpoint(sender, url).failure is not None, "the reason")
        with another(OTHERS, url) as successor:
            assert successor.stdout is not None
            assert successor.stdout.read(1) == b"1"


@pytest.mark.crash
def test_a_receiver_that_is_killed_and_replaced_while_messages_flow_gets_them_again(key: str) -> None:
    """Over shared memory, to which a sender can write though nobody reads."""
    url = f"shm://e{key}dying"
    with route.Node(f"shm://e{key}sender") as sender:
        with another(OTHERS, url) as receiver:
            sender.install(table_of(f"rte | 1 | {url}"))
            sender.ready(PATIENCE)
            sender.send(1)
            kill(receiver)

        def is_lost() -> bool:
            sender.send(1)
            return not endpoint(sender, url).connected

        until(is_lost, "the loss")
        with another(OTHERS, url) as successor:
            assert successor.stdout is not None
            assert successor.stdout.read(1) == b"1"


@pytest.mark.slow
@pytest.mark.crash
def test_a_call_ends_when_its_receiver_dies(outside: Callable[[str], str]) -> None:
    url = outside("dying")
    with another(OTHERS, url) as receiver, route.Node(outside("caller")) as caller:
        caller.install(table_of(f"rte | 1 | {url}", f"rte | 2 | {url}"))
        assert caller.call(2, timeout=PATIENCE).payload == b"here"

        def die() -> None:
            assert receiver.stdout is not None
            receiver.stdout.read(1)
            kill(receiver)

        thread = threading.Thread(target=die)
        thread.start()
        with pytest.raises(nearcall.Unavailable, match="no reply will come: all nodes that have got the message"):
            caller.call(1, timeout=600)
        thread.join(PATIENCE)


@pytest.mark.slow
@pytest.mark.crash
def test_a_call_in_an_event_loop_ends_when_its_receiver_dies(outside: Callable[[str], str]) -> None:
    async def main() -> None:
        url = outside("dying")
        with another(OTHERS, url) as receiver:
            async with route.aio.Node(outside("caller")) as caller:
                caller.install(table_of(f"rte | 1 | {url}"))
                await caller.ready(PATIENCE)
                call = asyncio.ensure_future(caller.call(1, timeout=600))
                assert receiver.stdout is not None
                await asyncio.get_running_loop().run_in_executor(None, receiver.stdout.read, 1)
                kill(receiver)
                with pytest.raises(nearcall.Unavailable, match="no reply will come"):
                    await call
                with pytest.raises(TimeoutError):
                    await caller.call(1, timeout=0.1)  # it waits for the next one
                await caller.close(grace=0)

    asyncio.run(asyncio.wait_for(main(), PATIENCE))


def test_a_call_goes_on_when_one_of_several_receivers_is_gone(key: str) -> None:
    late, gone = route.Node(f"shm://e{key}late"), route.Node(f"shm://e{key}gone")
    asked, closed = threading.Event(), threading.Event()

    @late.on(1)
    def answer(message: route.Message[Any]) -> None:
        asked.set()
        closed.wait(PATIENCE)
        message.reply(b"late")

    with route.Node(f"shm://e{key}caller") as caller, late:
        gone.start()
        caller.install(table_of(f"rte | 1 | {late.urls[0]};{gone.urls[0]}"))
        caller.ready(PATIENCE)

        def leave() -> None:
            asked.wait(PATIENCE)
            gone.close()
            until(lambda: not endpoint(caller, f"shm://e{key}gone").connected, "the loss")
            closed.set()

        thread = threading.Thread(target=leave)
        thread.start()
        assert caller.call(1, timeout=PATIENCE).payload == b"late"
        thread.join(PATIENCE)


class Attacker:
    """Sends messages whose heads say what it likes."""

    def __init__(self, url: str) -> None:
        self._peer = raw.connect(url)

    def __enter__(self) -> Attacker:
        self._peer.__enter__()
        return self

    def __exit__(self, *about: Any) -> None:
        self._peer.__exit__(*about)

    def send(self, kind: int, address: str, *, payload: bytes = b"", trace: bytes = b"") -> None:
        numbers = kind.to_bytes(4, "little") + b"\xff" * 4 + bytes([0, 0, 0, len(address)])
        head = b"\1" + numbers + len(trace).to_bytes(2, "little") + address.encode() + trace
        body = encode([head, payload])
        method = self._peer.methods["deliver"]
        assert self._peer.send(frame(CALL, body, method=method, call=0xFFFFFFFF, flags=ONEWAY))


def replying(url: str) -> route.Node:
    node = route.Node(url)

    @node.on(1)
    def answer(message: route.Message[Any]) -> None:
        message.reply(b"answer")

    return node


@pytest.mark.parametrize(
    "address", ["fd://{fd}", "inproc://e{key}inside", "ssh://host/shm/x", "http://127.0.0.1:{port}"]
)
def test_replies_go_only_where_nodes_are(address: str, key: str, tmp_path: Path) -> None:
    inside, seen = noting(f"inproc://e{key}inside", 1, 101)
    here, there = socket.socketpair()
    listener = socket.create_server(("127.0.0.1", 0))
    with here, there, listener, nodes(inside, replying(f"unix://{tmp_path}/node")):
        there.setblocking(False)
        listener.setblocking(False)
        place = address.format(fd=here.fileno(), key=key, port=listener.getsockname()[1])
        with Attacker(f"unix://{tmp_path}/node") as attacker, route.Node(f"shm://e{key}honest") as honest:
            for kind in (1, 100):
                attacker.send(kind, place)
            until(lambda: honest.call(1, to=f"unix://{tmp_path}/node", timeout=PATIENCE), "an answer")
            with nearcall.connect(f"unix://{tmp_path}/node", route.Route) as client:
                status = client.status()
        assert status.failed == 1
        assert place not in [each.name for each in status.endpoints]
        with pytest.raises(BlockingIOError):
            there.recv(1)
        with pytest.raises(BlockingIOError):
            listener.accept()
    assert seen == []


def test_a_message_goes_only_where_nodes_are(key: str) -> None:
    here, there = socket.socketpair()
    with here, there, route.Node(f"shm://e{key}") as node:
        for send in (node.send, node.call):
            with pytest.raises(nearcall.InvalidArgument, match="its scheme is none of"):
                send(1, to=f"fd://{here.fileno()}")
        with pytest.raises(nearcall.InvalidArgument, match="is no endpoint"):
            node.direct("grpc://127.0.0.1:1")


@pytest.mark.parametrize("kind", [1, 100])
def test_messages_with_dead_addresses_hold_nobody_up(kind: int, key: str, tmp_path: Path) -> None:
    node = replying(f"unix://{tmp_path}/node")
    with node, route.Node(f"shm://e{key}honest") as honest, Attacker(node.urls[0]) as attacker:
        assert honest.call(1, to=node.urls[0], timeout=PATIENCE).payload == b"answer"
        for number in range(400):
            attacker.send(kind, f"shm://e{key}-{number}", trace=bytes(60_000))
        for _ in range(10):
            assert honest.call(1, to=node.urls[0], timeout=PATIENCE).payload == b"answer"
        status = node.status()
        assert len(status.endpoints) <= 20
        assert sum(each.queued_bytes for each in status.endpoints) < 16 << 20
        until(lambda: [each.name for each in node.status().endpoints] == [honest.urls[0]], "the dead to be forgotten")


def test_who_takes_no_replies_holds_nobody_up(key: str, tmp_path: Path) -> None:
    """It listens where it says, and does nothing else."""
    node = replying(f"unix://{tmp_path}/node")
    with socket.socket(socket.AF_UNIX) as deaf, node, route.Node(f"shm://e{key}honest") as honest:
        deaf.bind(f"{tmp_path}/deaf")
        deaf.listen()
        with Attacker(node.urls[0]) as attacker:
            for _ in range(100):
                attacker.send(1, f"unix://{tmp_path}/deaf", trace=bytes(60_000))
            assert honest.call(1, to=node.urls[0], timeout=PATIENCE).payload == b"answer"


@pytest.mark.slow
def test_what_was_answered_is_forgotten_when_the_caller_is_gone(outside: Callable[[str], str], key: str) -> None:
    node = replying(outside("node"))
    with node:
        descriptors = len(os.listdir("/proc/self/fd"))
        command = [sys.executable, "-c", CALLERS, f"shm://e{key}-", node.urls[0]]
        said = subprocess.run(command, check=True, capture_output=True, timeout=PATIENCE).stdout
        assert said == b"answer" * 30
        until(lambda: not node.status().endpoints, "the endpoints")
        names = f"nearcall-route-shm://e{key}-"
        until(lambda: not any(each.name.startswith(names) for each in threading.enumerate()), "the threads")
        until(lambda: len(os.listdir("/proc/self/fd")) <= descriptors, "the descriptors")


def test_a_handler_that_calls_needs_another_thread(key: str) -> None:
    for threads in (1, 2):
        node = route.Node(f"shm://e{key}node{threads}", threads=threads)

        @node.on(7)
        def ask(message: route.Message[Any], node: route.Node = node) -> None:
            try:
                message.reply(node.call(1, to=f"shm://e{key}other", timeout=PATIENCE).payload)
            except nearcall.FailedPrecondition as error:
                message.reply(str(error).encode())

        other, caller = replying(f"shm://e{key}other"), route.Node(f"shm://e{key}caller")
        with nodes(other, node, caller):
            answer = caller.call(7, to=node.urls[0], timeout=PATIENCE).payload
        assert answer == b"answer" if threads == 2 else b"Node(..., threads=2)" in answer


@pytest.mark.parametrize("taking", ["handlers", "asked"])
def test_a_closed_node_is_freed(taking: str, key: str) -> None:
    def used() -> weakref.ref[route.Node]:
        node, other = route.Node(f"shm://{key}-freed"), route.Node(f"shm://{key}-asks")
        if taking == "handlers":
            node.on(1)(lambda message: node.send(2, b"", to=message.address))
        with node, other:
            node.install(table_of(f"rte | 2 | shm://{key}-asks"))
            other.send(1, b"x", to=f"shm://{key}-freed")
            assert (other if taking == "handlers" else node).receive(PATIENCE) is not None
        assert node.urls == [f"shm://{key}-freed"]
        assert node.status().urls == node.urls
        return weakref.ref(node)

    gone = used()
    gc.collect()
    assert gone() is None


def test_a_node_at_all_addresses_tells_one_of_them(key: str) -> None:
    asker = route.Node("tcp://0.0.0.0:0", allow_plaintext=True)
    node = route.Node(f"shm://{key}-answers", allow_plaintext=True)
    node.on(1)(lambda message: message.reply(message.address.encode()))
    with nodes(asker, node):
        address = asker.call(1, to=f"shm://{key}-answers", timeout=PATIENCE).payload.decode()
        assert "0.0.0.0" not in address
        assert address.partition("://")[0] == "tcp"
        assert address.rpartition(":")[2] == asker.urls[0].rpartition(":")[2]
