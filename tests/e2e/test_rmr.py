"""Nodes of the router among programs of RMR: what they say to a peer that is written from the documented format."""

from __future__ import annotations

import asyncio
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nearcall
from nearcall import route

from .rmr_peer import CALL, Frame, Peer, encoded, peer, read

PATIENCE = 30.0
ANY = "rmr://127.0.0.1:0"


def until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"it takes too long: {what}"
        time.sleep(0.005)


def table_of(*lines: str, name: str = "t") -> str:
    return "\n".join((f"newrt | start | {name}", *lines, f"newrt | end | {len(lines)}", ""))


@pytest.fixture
def program() -> Iterator[Peer]:
    with peer() as made:
        yield made


def echo(*urls: str, **options: Any) -> tuple[route.Node, list[route.Message[Any]]]:
    """A node that keeps messages of type 1000 and sends them back."""
    node, seen = route.Node(*(urls or (ANY,)), **options), list[route.Message[Any]]()

    @node.on(1000)
    def take(message: route.Message[Any]) -> None:
        seen.append(message)
        message.reply(message.payload.upper(), type=1001)

    return node, seen


def test_a_program_gets_all_that_a_message_has(program: Peer) -> None:
    with route.Node(ANY) as node:
        node.install(table_of(f"mse | 1000 | 10 | {program.url}"))
        node.send(1000, b"hello", subscription=10, transaction=b"t1", entity="meid000", trace=b"traced")
        place = node.urls[0].removeprefix("rmr://").encode()
        assert program.receive() == Frame(1000, b"hello", 10, b"t1", b"meid000", place, place, b"traced")
        node.send(7, bytes(100_000), to=program.url)
        assert program.receive() == Frame(7, bytes(100_000), -1, b"", b"", place, place)


def test_a_node_gets_all_that_a_message_has_and_replies(program: Peer) -> None:
    node, seen = echo()
    sent = program.frame(1000, b"hello", subscription=5, transaction=b"\0\1x" * 10, entity=b"m1", trace=b"\0\1\2")
    with node:
        program.send(node.urls[0], sent)
        reply = program.receive()
        (message,) = seen
        assert (message.type, message.payload, bytes(message.view)) == (1000, b"hello", b"hello")
        assert (message.subscription, message.transaction, message.entity) == (5, b"\0\1x" * 10, "m1")
        assert (message.trace, message.source, message.address) == (b"\0\1\2", program.place, program.url)
        assert reply == sent._replace(
            type=1001, payload=b"HELLO", source=reply.source, source_address=reply.source_address
        )
        assert f"rmr://{reply.source.decode()}" == node.urls[0]


def test_a_reply_has_the_number_of_the_call(program: Peer) -> None:
    """RMR finds the thread that waits by it; and only a call has the flag."""
    node, _ = echo()
    with node:
        program.send(node.urls[0], program.frame(1000, b"a", transaction=b"x", call=17, flags=CALL))
        reply = program.receive()
        assert (reply.call, reply.flags, reply.transaction) == (17, 0, b"x")
        program.send(node.urls[0], program.frame(1000, b"a", transaction=b"x", call=17))
        assert program.receive().call == 0


def test_a_reply_goes_to_the_address_if_the_name_is_not_known(program: Peer) -> None:
    node, seen = echo()
    with node:
        program.send(node.urls[0], program.frame(1000, b"a", source=b"no-such-name.invalid:4560"))
        assert program.receive().payload == b"A"
        assert seen[0].address == f"rmr://no-such-name.invalid:4560,{program.place}"
        program.send(node.urls[0], program.frame(1000, b"a", source=b"", source_address=b""))
        until(lambda: len(seen) == 2, "the second message")
        assert seen[1].address == ""
        with pytest.raises(nearcall.FailedPrecondition, match="takes no replies"):
            seen[1].reply(b"")


def answer(program: Peer, *, same_connection: bool) -> None:
    """Sends the next message back, as RMR does."""
    connection = program.accept()
    asked = read(connection)
    back = program.frame(asked.type, asked.payload[::-1], transaction=asked.transaction, call=asked.call)
    if same_connection:
        connection.sendall(encoded(back))
    else:
        program.send(f"rmr://{asked.source.decode()}", back)


@pytest.mark.parametrize("same_connection", [False, True])
def test_calls(program: Peer, same_connection: bool) -> None:
    with route.Node(ANY) as node, ThreadPoolExecutor() as threads:
        done = threads.submit(answer, program, same_connection=same_connection)
        reply = node.call(1000, b"abc", to=program.url, timeout=PATIENCE)
        done.result()
        assert (reply.payload, reply.source) == (b"cba", program.place)


def test_a_node_that_listens_nowhere_calls(program: Peer, key: str) -> None:
    with route.Node(f"shm://r{key}caller") as node, ThreadPoolExecutor() as threads:
        done = threads.submit(answer, program, same_connection=True)
        assert node.call(1000, b"abc", to=program.url, timeout=PATIENCE, transaction=b"ends with \0").payload == b"cba"
        done.result()
        # Only its calls' replies are for it.
        program._accepted[0].sendall(encoded(program.frame(1000, b"unasked")))
        until(lambda: node.status().malformed == 1, "the message is counted")


def test_a_handler_calls_while_others_wait(program: Peer) -> None:
    node, got = route.Node(ANY), list[bytes]()

    @node.on(1000)
    def ask(message: route.Message[Any]) -> None:
        got.append(node.call(2000, message.payload, to=program.url, timeout=PATIENCE).payload)

    with node:
        program.send(node.urls[0], *(program.frame(1000, b"%d" % number) for number in range(50)))
        for _ in range(50):
            asked = program.receive()
            program.send(node.urls[0], program.frame(2001, asked.payload, transaction=asked.transaction))
        until(lambda: len(got) == 50, "all calls")
        assert got == [b"%d" % number for number in range(50)]


def test_nodes_among_themselves_take_turns_and_copies() -> None:
    def noting(seen: Counter[str], name: str) -> route.Node:
        node = route.Node(ANY)

        @node.on(1000, 3000)
        def note(message: route.Message[Any]) -> None:
            seen[name] += 1

        return node

    seen = Counter[str]()
    a, b, logger = (noting(seen, name) for name in ("a", "b", "logger"))
    with a, b, logger, route.Node(ANY) as sender:
        place = {name: node.urls[0].removeprefix("rmr://") for name, node in (("a", a), ("b", b), ("l", logger))}
        # Of a node whose first URL is one of RMR's, host:port alone is a program of RMR.
        sender.install(
            table_of(f"mse | 1000 | -1 | {place['a']}, {place['b']}; {place['l']}", "mse | 3000 | -1 | %meid")
            + f"meid_map | start\nmme_ar | {place['b']} | cell-7\nmeid_map | end | 1\n"
        )
        sender.ready(timeout=PATIENCE)
        for _ in range(100):
            sender.send(1000, b"x")
        until(lambda: seen.total() == 200, "all messages")
        assert seen == {"a": 50, "b": 50, "logger": 100}
        sender.send(3000, b"x", entity="cell-7")
        until(lambda: seen["b"] == 51, "the owner's message")
        assert {each.name: each.sent for each in sender.status().endpoints} == {
            place["a"]: 50,
            place["b"]: 51,
            place["l"]: 100,
        }


@pytest.mark.parametrize("threads", [1, 3])
def test_a_node_is_a_node_and_a_program(program: Peer, key: str, threads: int) -> None:
    """Its handlers run in no more threads than it was told, whoever sends."""
    url = f"shm://r{key}both"
    node, running, most, seen = route.Node(url, ANY, threads=threads), Counter[str](), list[int](), list[bytes]()
    lock = threading.Lock()

    @node.on(1000)
    def take(message: route.Message[Any]) -> None:
        with lock:
            running["now"] += 1
            most.append(running["now"])
        time.sleep(0.0005)
        with lock:
            running["now"] -= 1
            seen.append(message.payload)

    with node, route.Node(f"shm://r{key}near") as near:
        assert node.urls[0] == url
        for number in range(100):
            program.send(node.urls[1], program.frame(1000, b"far %d" % number))
            near.send(1000, b"near %d" % number, to=url)
        until(lambda: len(seen) == 200, "all messages")
        assert max(most) <= threads
        if threads == 1:
            assert [each for each in seen if each.startswith(b"far")] == [b"far %d" % number for number in range(100)]


def test_a_slow_node_slows_its_senders_and_loses_nothing(program: Peer) -> None:
    with route.Node(ANY, queue=10_000) as node:
        connection = program.connection(node.urls[0])
        frames = b"".join(
            encoded(program.frame(1000, struct.pack(">i", number) + bytes(996))) for number in range(1000)
        )
        with ThreadPoolExecutor() as threads:
            sending = threads.submit(connection.sendall, frames)
            until(lambda: node.status().waiting >= 6, "the queue is full")
            assert node.status().waiting <= 7  # each counts for 1,512 bytes, and one more is let in
            got = [node.receive(PATIENCE) for _ in range(1000)]
            sending.result()
        assert [each and struct.unpack(">i", each.payload[:4])[0] for each in got] == list(range(1000))


def test_health_messages_are_answered(program: Peer) -> None:
    with route.Node(ANY) as node, ThreadPoolExecutor() as threads:
        waiting = threads.submit(node.receive, PATIENCE)  # who is asked for messages answers meanwhile
        program.send(node.urls[0], program.frame(100, b"PING", transaction=b"p"))
        reply = program.receive()
        assert (reply.type, reply.payload, reply.transaction) == (101, b"OK\n", b"p")
        program.send(node.urls[0], program.frame(5, b""))
        waiting.result()


WRONG: dict[str, bytes | dict[str, int]] = {
    "nothing": {"total": 0},
    "negative": {"total": -1},
    "huge": {"total": 2**31 - 1},
    "beyond-the-limit": {"total": (1 << 20) + 1},
    "shorter-than-a-header": {"total": 200},
    "payload": {"payload": 6},
    "negative-payload": {"payload": -1},
    "trace": {"trace": 2**31 - 1},
    "data": {"data2": -(2**31)},
    "header": {"header": 12},
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
}


@pytest.mark.parametrize("attack", WRONG)
def test_who_breaks_a_rule_loses_the_connection(program: Peer, attack: str) -> None:
    node, seen = echo(max_message_size=1 << 20)
    wrong = WRONG[attack]
    with node, peer() as attacker:
        program.send(node.urls[0], program.frame(1000, b"before"))
        bad = wrong if isinstance(wrong, bytes) else encoded(attacker.frame(1000, b"hello"), **wrong)
        connection = attacker.connection(node.urls[0])
        connection.sendall(encoded(attacker.frame(1000, b"right")) + bad)
        try:
            ended = connection.recv(1) == b""
        except ConnectionResetError:
            ended = True
        assert ended
        until(lambda: (found := node.status().rmr) and found.broken == 1, "it is counted")
        program.send(node.urls[0], program.frame(1000, b"after"))
        until(lambda: len(seen) == 3, "the honest messages")
        assert sorted(each.payload for each in seen) == [b"after", b"before", b"right"]


def test_what_is_no_text_is_counted_and_the_connection_goes_on(program: Peer) -> None:
    node, seen = echo()
    with node:
        program.send(node.urls[0], program.frame(1000, b"a", entity=b"\xff"), program.frame(1000, b"b"))
        until(lambda: seen, "the second message")
        assert seen[0].payload == b"b"
        status = node.status()
        assert (status.malformed, status.rmr and status.rmr.broken) == (1, 0)


def test_a_program_that_comes_back_gets_what_waited() -> None:
    with peer() as gone:
        url, place = gone.url, gone.place
    node = route.Node(ANY)
    with node:
        node.send(1000, b"early", to=url)
        until(lambda: any(each.failure for each in node.status().endpoints), "an attempt")
        (endpoint,) = node.status().endpoints
        assert endpoint.failure is not None
        assert place in endpoint.failure
        back = route.Node(url)
        with back:
            message = back.receive(PATIENCE)
            assert message is not None
            assert message.payload == b"early"


@pytest.mark.parametrize("comes", ["program", "node"])
def test_what_waits_for_a_member_of_one_kind_goes_to_one_of_the_other(key: str, comes: str) -> None:
    with peer() as gone:
        urls = {"program": gone.url, "node": f"shm://r{key}late"}
    sent = [b"%d" % number + bytes(number % 2 * 5000) for number in range(20)]
    with route.Node(f"shm://r{key}sender") as sender:
        sender.install(table_of(f"mse | 1000 | 7 | {urls['program']}, {urls['node']}"))
        for payload in sent:
            sender.send(1000, payload, subscription=7, transaction=b"t", entity="cell-7", trace=b"traced")
        with route.Node(urls[comes]) as late:
            got = [late.receive(PATIENCE) for _ in sent]
            assert sorted(each.payload for each in got if each) == sorted(sent)
            about = {(each.subscription, each.transaction, each.entity, each.trace) for each in got if each}
            assert about == {(7, b"t", "cell-7", b"traced")}
            until(lambda: sum(each.sent for each in sender.status().endpoints) == len(sent), "the counts")
            counts = {each.name: (each.sent, each.handed_on) for each in sender.status().endpoints}
            (other,) = {*urls} - {comes}
            assert counts == {urls[comes]: (20, 0), urls[other]: (0, 10)}


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, PATIENCE))


def test_a_node_in_an_event_loop_replies_and_calls(program: Peer, key: str) -> None:
    async def main() -> None:
        node = route.aio.Node(f"shm://r{key}loop", ANY)

        @node.on(1000)
        async def take(message: route.aio.Message[Any]) -> None:
            # The program fills the number up with zeros, of which this one has some at its end.
            found = await node.call(2000, message.payload, to=program.url, transaction=b"ends with \0")
            await message.reply(found.payload.upper(), type=1001)

        async with node:
            program.send(node.urls[1], program.frame(1000, b"a", transaction=b"x", call=17, flags=CALL))
            asked = await asyncio.to_thread(program.receive)
            assert asked.type == 2000
            program.send(node.urls[1], program.frame(2001, b"abc", transaction=asked.transaction))
            reply = await asyncio.to_thread(program.receive)
            assert (reply.type, reply.payload, reply.transaction, reply.call) == (1001, b"ABC", b"x", 17)

    run(main())


def test_a_node_in_an_event_loop_replies_to_what_has_come_before_it_ends(program: Peer) -> None:
    async def main() -> None:
        node, closing = route.aio.Node(ANY), list[asyncio.Task[None]]()

        @node.on(1000)
        async def take(message: route.aio.Message[Any]) -> None:
            if not closing:
                while node.status().taken + node.status().waiting < 20:  # noqa: ASYNC110 -- nobody tells
                    await asyncio.sleep(0.005)
                closing.append(asyncio.create_task(node.close()))
                while not node._core.is_over():  # noqa: ASYNC110
                    await asyncio.sleep(0.005)
            await message.reply(message.payload)

        await node.start()
        program.send(node.urls[0], *(program.frame(1000, b"%d" % number) for number in range(20)))
        for number in range(20):
            assert (await asyncio.to_thread(program.receive)).payload == b"%d" % number
        await closing[0]

    run(main())


def test_a_route_manager_pushes_tables(program: Peer) -> None:
    with peer() as manager, route.Node(ANY, manager=manager.url) as node:
        asked = manager.receive()
        assert (asked.type, asked.subscription) == (21, 0)
        assert f"rmr://{asked.source.decode()}" == node.urls[0]

        def push(*pieces: str) -> bytes:
            manager.send(node.urls[0], *(manager.frame(20, piece.encode()) for piece in pieces))
            state = manager.receive()
            assert state.type == 22
            return state.payload

        told = push("newrt | start | rt-1\n", f"rte | 1000 | {program.place}\n", "newrt | end | 1\n")
        assert told == b"OK rt-1 \n\0"
        node.ready(timeout=PATIENCE)
        node.send(1000, b"routed")
        assert program.receive().payload == b"routed"
        told = push(f"newrt|start|rt-2\nrte|7|{program.place}\nnewrt|end|5\n")
        assert told.startswith(b"ERR rt-2 ")
        assert told.endswith(b"\n\0")
        found = node.table()
        assert found is not None
        assert found.id == "rt-1"
        told = push(f"updatert|start|rt-3\nmse|7|-1|{program.place}\nupdatert|end|1\n")
        assert told == b"OK rt-3 \n\0"
        node.send(7, b"updated")
        assert program.receive().payload == b"updated"


def test_nobody_pushes_a_table_unasked(program: Peer) -> None:
    with route.Node(ANY) as node:
        program.send(node.urls[0], program.frame(20, b"newrt|start|x\nnewrt|end|0\n"))
        message = node.receive(PATIENCE)
        assert message is not None
        assert message.type == 20
        assert node.table() is None


def test_what_cannot_be(key: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match="allow_plaintext=True"):
        route.Node("rmr://0.0.0.0:0").start()
    with pytest.raises(nearcall.InvalidArgument, match="rmr://host:port"):
        route.Node("rmr://nowhere").start()
    with pytest.raises(TypeError, match="max_pending counts for other URLs"):
        route.Node(ANY, max_pending=7)
    with pytest.raises(ValueError, match="this node has none"):
        route.Node(f"shm://r{key}x", manager="rmr://127.0.0.1:1")
    with route.Node(ANY) as node:
        with pytest.raises(nearcall.AlreadyExists):
            route.Node(node.urls[0]).start()
        with pytest.raises(nearcall.InvalidArgument, match="write `host:port`"):
            node.send(1, to="rmr://nowhere")


def test_names_are_told_that_others_can_reach() -> None:
    with peer() as program, route.Node("rmr://0.0.0.0:0", name="app1:4560", allow_plaintext=True) as node:
        node.send(1, to=program.url)
        frame = program.receive()
        assert frame.source == b"app1:4560"
        host, _, port = frame.source_address.decode().rpartition(":")
        assert host != "0.0.0.0"
        assert node.urls == [f"rmr://0.0.0.0:{port}"]
