"""Handlers of nodes that fail, and who hears of it."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import route

from .conftest import TRANSPORTS
from .test_route import PATIENCE, nodes, table_of, until


@pytest.fixture(params=["shm", "unix", "tcp", "inproc"])
def url_of(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> Callable[[str], str]:
    return lambda name: TRANSPORTS[request.param](f"f{key}{name}", runtime_dir)


@route.message(7_301)
@dataclass
class Wanted:
    cell: int


def failing(node: route.Node | route.aio.Node) -> None:
    """Adds handlers that fail."""

    def plainly(message: Any) -> None:
        raise ValueError("bad")

    def with_a_status(message: Any) -> None:
        raise nearcall.NotFound("no such cell", details={"cell": 7})

    def typed(message: Any) -> None:
        raise AssertionError("a payload that does not fit gets nowhere")

    node.on(1)(plainly)
    node.on(2)(with_a_status)
    node.on(Wanted)(typed)


def check(errors: list[BaseException], name: str) -> None:
    plain, status, misfit, nobody = errors
    assert isinstance(plain, nearcall.Unknown)
    assert str(plain) == "ValueError: bad"
    assert isinstance(status, nearcall.NotFound)
    assert (str(status), status.details) == ("no such cell", {"cell": 7})
    assert isinstance(misfit, nearcall.InvalidArgument)
    assert str(misfit) == "the payload must be Wanted: expected object, got int"
    assert isinstance(nobody, nearcall.Unimplemented)
    assert str(nobody) == f"the node {name} has no handler for messages of type 5"


ASKED = [(1, b""), (2, b""), (7_301, b"\x01"), (5, b"")]


def test_a_caller_hears_of_a_handler_that_fails(url_of: Callable[[str], str]) -> None:
    node, asker = route.Node(url_of("node")), route.Node(url_of("asker"))
    failing(node)
    with nodes(node, asker):
        errors: list[BaseException] = []
        for number, payload in ASKED:
            with pytest.raises(nearcall.RpcError) as raised:
                asker.call(number, payload, to=node.urls[0], timeout=PATIENCE)
            errors.append(raised.value)
        check(errors, node.name)


@pytest.mark.slow
def test_in_event_loops(url_of: Callable[[str], str]) -> None:
    async def main() -> None:
        async with route.aio.Node(url_of("asker")) as asker, route.aio.Node(url_of("other")) as other:
            node = route.aio.Node(url_of("node"))
            failing(node)
            async with node:
                calls = [asker.call(*each, to=node.urls[0], timeout=PATIENCE) for each in ASKED]
                found = await asyncio.gather(*calls, return_exceptions=True)
                check([each for each in found if isinstance(each, BaseException)], node.name)
                with pytest.raises(TimeoutError):  # a node without handlers may still receive it
                    await asker.call(1, to=other.urls[0], timeout=0.01)
                await other.close(grace=0)

    asyncio.run(main())


def test_if_one_of_several_fails_the_others_may_reply(key: str) -> None:
    replies, heard = threading.Event(), threading.Event()
    bad, worse, good = (route.Node(f"shm://f{key}{name}") for name in ("bad", "worse", "good"))

    @bad.on(1, 2)
    def fails(message: route.Message[object]) -> None:
        raise ValueError("bad")

    @worse.on(2)
    def fails_too(message: route.Message[object]) -> None:
        raise ValueError("worse")

    @good.on(1)
    def answers(message: route.Message[object]) -> None:
        heard.set()
        replies.wait(PATIENCE)
        message.reply(b"good")

    with nodes(bad, worse, good), route.Node(f"shm://f{key}asker") as asker:
        asker.install(
            table_of(
                f"rte | 1 | shm://f{key}bad; shm://f{key}good",
                f"rte | 2 | shm://f{key}bad; shm://f{key}worse",
            )
        )
        asker.ready(PATIENCE)
        found: list[bytes] = []
        thread = threading.Thread(target=lambda: found.append(asker.call(1, timeout=PATIENCE).payload))
        thread.start()
        heard.wait(PATIENCE)
        until(lambda: bad.status().failed == 1, "the failure")
        replies.set()
        thread.join(PATIENCE)
        assert found == [b"good"]
        with pytest.raises(nearcall.Unknown, match=r"^ValueError: (bad|worse)$"):
            asker.call(2, timeout=PATIENCE)


def test_nobody_else_hears_of_it(key: str) -> None:
    node, sender = route.Node(f"shm://f{key}node"), route.Node(f"shm://f{key}sender")
    failing(node)

    @node.on(3)
    def answer(message: route.Message[object]) -> None:
        message.reply(b"here")

    with nodes(node, sender):
        sender.send(1, transaction=b"t", to=node.urls[0])
        sender.send(5, to=node.urls[0])
        # It goes the same way as the failures before it.
        assert sender.call(3, to=node.urls[0], timeout=PATIENCE).payload == b"here"
        assert sender.receive(0) is None
        assert sender.status().waiting == 0


def test_a_node_may_take_its_time_to_end(key: str) -> None:
    node = route.Node(f"shm://f{key}node").start()
    with pytest.raises(nearcall.InvalidArgument, match="grace must be a number of seconds"):
        node.close(grace=-1)
    node.close(grace=math.inf)

    async def main() -> None:
        other = await route.aio.Node(f"shm://f{key}other").start()
        with pytest.raises(nearcall.InvalidArgument, match="grace must be a number of seconds"):
            await other.close(grace=math.nan)
        await other.close(grace=math.inf)

    asyncio.run(main())
