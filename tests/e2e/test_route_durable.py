"""Messages that a NATS server keeps (JetStream): they wait, and come again until they were handled."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import route

from . import nats, ports
from .process import start_program

pytestmark = pytest.mark.skipif(nats.PROGRAM is None, reason="there is no nats-server: make nats-server")

PATIENCE = 30.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[nats.NatsServer]:
    with nats.NatsServer("-js", "--store_dir", str(tmp_path_factory.mktemp("kept"))) as server:
        yield server


@pytest.fixture
def url(store: nats.NatsServer, key: str) -> str:
    return f"jetstream://127.0.0.1:{store.port}/kept.{key}"


def until(done: Callable[[], bool], what: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE
    while not done():
        assert time.monotonic() < end, what()
        time.sleep(0.005)


def collector(url: str, seen: list[bytes], **options: Any) -> route.Node:
    node = route.Node(url, **options)
    node.on(1)(lambda message: seen.append(message.payload))
    return node


def sender(url: str, key: str) -> route.Node:
    node = route.Node(f"shm://{key}-sender")
    node.install(f"newrt | start | t\nrte | 1 | {url}\nnewrt | end | 1\n")
    return node


def test_messages_wait_for_their_groups_and_each_group_gets_all(url: str, key: str) -> None:
    sent = [b"%d" % number for number in range(200)]
    with sender(url, key) as node:
        node.ready(PATIENCE)
        for data in sent:
            node.send(1, data)
    # All that was sent was acknowledged before the node was closed, and nobody has taken it yet.
    (endpoint,) = node.status().endpoints
    assert (endpoint.sent, endpoint.queued, endpoint.dropped) == (200, 0, 0)
    shared: list[list[bytes]] = [[], []]
    late: list[bytes] = []
    with ExitStack() as stack:
        for seen in shared:
            stack.enter_context(collector(url, seen, group="both", name=f"{key}-{id(seen)}"))
        until(lambda: sum(map(len, shared)) >= 200, lambda: shared)
    assert sorted(shared[0] + shared[1]) == sorted(sent)
    with collector(url, late, group="later"):  # replay: a group of a new name begins with all that is kept
        until(lambda: len(late) >= 200, lambda: late)
    assert late == sent
    again: list[bytes] = []
    with collector(url, again, group="later"), sender(url, key) as node:  # what was handled does not come again
        node.send(1, b"new")
        until(lambda: bool(again), lambda: again)
    assert again == [b"new"]


def test_a_handler_that_fails_gets_the_message_again(url: str, key: str) -> None:
    tries: list[bytes] = []
    node = route.Node(url)

    @node.on(1)
    def take(message: route.Message[object]) -> None:
        tries.append(message.payload)
        if len(tries) < 3:
            raise ValueError("not yet")

    with node, sender(url, key) as other:
        other.send(1, b"x")
        until(lambda: node.status().failed == 2 and len(tries) == 3, lambda: tries)


def test_in_an_event_loop(url: str, key: str) -> None:
    async def main() -> list[bytes]:
        tries: list[bytes] = []
        done = asyncio.Event()
        node = route.aio.Node(url)

        @node.on(1)
        async def take(message: route.aio.Message[object]) -> None:
            tries.append(message.payload)
            if len(tries) == 1:
                raise ValueError("not yet")
            done.set()

        async with node:
            await asyncio.wait_for(done.wait(), PATIENCE)
        return tries

    with sender(url, key) as other:
        other.send(1, b"x")
        assert asyncio.run(main()) == [b"x", b"x"]


DIES = """
import os, sys
from nearcall import route
node = route.Node(sys.argv[1], group="workers")
@node.on(1)
def take(message):
    if message.payload == b"3":
        os._exit(1)
    print(message.payload.decode(), flush=True)
with node:
    sys.stdin.read()
"""


def test_a_handler_that_dies_leaves_the_message_to_another(url: str, key: str) -> None:
    with sender(url, key) as node, start_program(DIES, url) as program:
        for number in range(6):
            node.send(1, b"%d" % number)
        assert program.stdout is not None
        handled = program.stdout.read().split()
        assert handled == ["0", "1", "2"]
        rest: list[bytes] = []
        with collector(url, rest, group="workers"):
            # What had come to the dead program comes again once the NATS server has heard nothing of it for a while.
            until(lambda: {b"3", b"4", b"5"} <= set(rest), lambda: rest)


def test_nothing_is_lost_when_the_nats_server_restarts_under_load(key: str, tmp_path: Path) -> None:
    with nats.NatsServer("-js", "--store_dir", str(tmp_path)) as server:
        url = f"jetstream://127.0.0.1:{server.port}/kept.{key}"
        seen: list[bytes] = []
        with collector(url, seen, group="g"), sender(url, key) as node:
            node.ready(PATIENCE)

            def send_all() -> None:
                for number in range(3000):
                    node.send(1, b"%d" % number)

            sending = threading.Thread(target=send_all)
            sending.start()
            until(lambda: len(seen) > 100, lambda: len(seen))
            server.kill()
            server.start()
            sending.join(PATIENCE)
            assert not sending.is_alive()

            def arrived() -> bool:
                return len(set(seen)) == 3000

            until(arrived, lambda: (len(set(seen)), node.status()))
            (endpoint,) = node.status().endpoints
            assert (endpoint.sent + endpoint.queued, endpoint.dropped) == (3000, 0)
            # Handed out twice may be what the killed server had not yet written as handled; kept twice is nothing.
            node.send(1, b"last")
            kept: list[bytes] = []
            with collector(url, kept, group="replay"):
                until(lambda: b"last" in kept, lambda: len(kept))
            assert Counter(kept) == Counter([*(b"%d" % number for number in range(3000)), b"last"])


def test_what_cannot_be_kept_is_refused(store: nats.NatsServer, url: str, key: str) -> None:
    with sender(url, key) as node:
        node.ready(PATIENCE)
        with pytest.raises(nearcall.InvalidArgument, match="keeps messages of at most"):
            node.send(1, bytes(2 << 20))
    plain = f"jetstream://127.0.0.1:{nats.port()}/kept.{key}"
    with pytest.raises(nearcall.Unavailable, match="-js"), route.Node(plain):
        pass
    with pytest.raises(ValueError, match="jetstream:// is nobody's own"):
        route.Node(url, manager="shm://manager")
    with pytest.raises(nearcall.InvalidArgument, match="without wildcards"):
        sender(f"jetstream://127.0.0.1:{store.port}/a.*", key)


def test_a_server_that_is_not_there_is_told_by_the_status(key: str) -> None:
    """As at URLs of other schemes, a message is queued, and what prevents it is told."""
    port = ports.own_port()
    url = f"jetstream://127.0.0.1:{port}/images"
    with route.Node(f"inproc://{key}") as node:
        node.send(1, b"x", to=url)
        until(lambda: [each.failure for each in node.status().endpoints] != [None], node.status)
        [endpoint] = node.status().endpoints
        assert endpoint.queued == 1
        assert endpoint.failure is not None
        assert endpoint.failure.startswith(f"cannot connect to {url}: no NATS server listens there; start it first")
        node.close(0)


class Loses:
    """Stands before a NATS server, and loses the first wish for messages; use it in a ``with`` statement."""

    WISH = b".CONSUMER.MSG.NEXT."

    def __init__(self, port: int) -> None:
        self._server = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.lost = 0
        self._sockets = [self._listener]
        self._threads = [threading.Thread(target=self._accept)]

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, server = self._listener.accept()[0], socket.create_connection(self._server)
                self._sockets += [client, server]
                for copy in (partial(self._forth, client, server), partial(self._back, client, server)):
                    thread = threading.Thread(target=copy)
                    self._threads.append(thread)
                    thread.start()

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as commands:
            while command := commands.readline():
                if command.startswith((b"PUB ", b"HPUB ")):
                    command += commands.read(int(command.split()[-1]) + 2)
                if self.WISH in command and not self.lost:
                    self.lost += 1
                else:
                    server.sendall(command)
            server.shutdown(socket.SHUT_RDWR)

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while some := server.recv(1 << 16):
                client.sendall(some)
            client.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> Loses:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(PATIENCE)
        for each in self._sockets:
            each.close()


@pytest.mark.slow
def test_a_wish_for_messages_that_is_lost_is_noticed(store: nats.NatsServer, url: str, key: str) -> None:
    seen: list[bytes] = []
    with sender(url, key) as other:
        other.send(1, b"x")
        with Loses(store.port) as loses, collector(url.replace(str(store.port), str(loses.port), 1), seen):
            until(lambda: bool(seen), lambda: loses.lost)
            assert loses.lost == 1
    assert seen == [b"x"]
