"""The message router in event loops."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import route

from .conftest import TRANSPORTS

PATIENCE = 30.0


@route.message(2000)
@dataclass
class Step:
    number: int


@pytest.fixture
def url_of(transport: str, key: str, runtime_dir: Path) -> Callable[[str], str]:
    if transport == "tls":
        pytest.skip("a node's connections need a certificate of their own")
    return lambda name: TRANSPORTS[transport](f"a{key}{name}", runtime_dir)


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(main, PATIENCE))


async def until(holds: Callable[[], object]) -> None:
    while not holds():  # noqa: ASYNC110 -- nobody tells
        await asyncio.sleep(0.005)


async def has_room(sender: route.aio.Node, number: int) -> bool:
    try:
        await sender.send(1, b"%8d" % number * 1000, timeout=0.2)
    except nearcall.ResourceExhausted:
        return False
    return True


def table_of(*lines: str) -> str:
    return "\n".join(("newrt | start | t", *lines, f"newrt | end | {len(lines)}", ""))


def test_coroutine_handlers_take_messages_and_reply(url_of: Callable[[str], str]) -> None:
    async def main() -> None:
        server, client = route.aio.Node(url_of("server")), route.aio.Node(url_of("client"))
        seen = list[int]()

        @server.on(5)
        async def answer(message: route.aio.Message[Any]) -> None:
            await asyncio.sleep(0)
            await message.reply(message.payload[::-1], type=6)

        @server.on(Step)
        def step(message: route.aio.Message[Step]) -> None:
            seen.append(message.value.number)

        async with server, client:
            client.install(table_of(f"rte | 5 | {server.urls[0]}", f"rte | 2000 | {server.urls[0]}"))
            await client.ready(PATIENCE)
            for number in range(200):
                await client.send(Step(number))
            await client.send(2000, b"no step")

            async def ask(number: int) -> None:
                text = b"call %d" % number
                reply = await client.call(5, text, trace=text)
                assert (reply.payload, reply.type, reply.trace) == (text[::-1], 6, text)

            await asyncio.gather(*map(ask, range(100)))
            assert seen == list(range(200))
            assert server.status().failed == 1
            assert (await client.call(100, to=server.urls[0])).payload == b"OK\n"
            with pytest.raises(nearcall.NotFound):
                await client.send(7)

    run(main())


def test_messages_are_awaited(url_of: Callable[[str], str]) -> None:
    async def main() -> None:
        node, sender = route.aio.Node(url_of("node")), route.Node(url_of("sender"))
        async with node:
            with sender:
                assert await node.receive(0.01) is None
                asked = asyncio.ensure_future(node.receive())
                await asyncio.sleep(0)
                sender.send(1, b"first", to=node.urls[0])
                message = await asked
                assert message is not None
                assert message.payload == b"first"
                for number in range(10):
                    sender.send(1, b"%d" % number, to=node.urls[0])
                got = list[bytes]()
                async for message in node:
                    got.append(message.payload)
                    if len(got) == 10:
                        break
                assert got == [b"%d" % number for number in range(10)]
                closing = asyncio.ensure_future(node.close())
                assert [message async for message in node] == []
                await closing

    run(main())


@pytest.mark.slow
def test_a_full_queue_is_waited_for_and_the_loop_goes_on(url_of: Callable[[str], str], transport: str) -> None:
    async def main() -> None:
        gate, seen, turns = asyncio.Event(), list[int](), 0
        slow, sender = route.aio.Node(url_of("slow")), route.aio.Node(url_of("sender"), queue=50_000)

        @slow.on(1)
        async def handle(message: route.aio.Message[Any]) -> None:
            await gate.wait()
            seen.append(int(message.payload[:8]))

        async with slow, sender:
            sender.install(table_of(f"rte | 1 | {slow.urls[0]}"))
            await sender.ready(PATIENCE)
            sent = 0
            while await has_room(sender, sent):
                sent += 1
            assert sender.status().endpoints[0].failed_soft == 1

            async def send() -> None:
                for number in range(sent, sent + 100):
                    await sender.send(1, b"%8d" % number * 1000)

            sending = asyncio.ensure_future(send())
            for _ in range(10):
                await asyncio.sleep(0)
                turns += 1
            assert not sending.done()
            gate.set()
            await sending
            await until(lambda: len(seen) == sent + 100)
        assert seen == list(range(sent + 100))

    run(main())


def test_several_messages_are_handled_at_once_and_a_call_ends_with_its_node(key: str) -> None:
    async def main() -> None:
        busy, gate = set[int](), asyncio.Event()
        node = route.aio.Node(f"shm://a{key}node", concurrency=3)
        client = route.aio.Node(f"shm://a{key}client")

        @node.on(1)
        async def handle(message: route.aio.Message[Any]) -> None:
            busy.add(int(message.payload))
            await gate.wait()

        @node.on(2)
        async def wrong(message: route.aio.Message[Any]) -> None:
            raise ValueError("this is what it raises")

        async with node, client:
            for number in range(5):
                await client.send(1, b"%d" % number, to=node.urls[0])
            await until(lambda: len(busy) == 3)
            with pytest.raises(TimeoutError, match=r"no reply to a message of type 1 within 0\.05 s"):
                await client.call(1, b"7", to=node.urls[0], timeout=0.05)
            gate.set()
            await client.send(2, to=node.urls[0])
            await until(lambda: node.status().failed == 1)
            calling = asyncio.ensure_future(client.call(1, b"8", to=node.urls[0]))
            await asyncio.sleep(0)
            await client.close()
            with pytest.raises(nearcall.FailedPrecondition):
                await calling

    run(main())


def test_a_call_that_is_given_up_as_its_node_closes_leaves_no_complaint(key: str) -> None:
    async def main() -> None:
        complaints: list[object] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, about: complaints.append(about))
        node, client = route.aio.Node(f"shm://a{key}node"), route.aio.Node(f"shm://a{key}client")
        async with node, client:
            calling = asyncio.ensure_future(client.call(1, to=node.urls[0]))
            assert await node.receive() is not None
            await client.close()
            calling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await calling
        del calling
        gc.collect()
        await asyncio.sleep(0)
        assert not complaints

    run(main())
