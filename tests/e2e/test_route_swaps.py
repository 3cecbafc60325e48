"""Tables that take each other's place, and what is left of messages that were handled."""

from __future__ import annotations

import asyncio
import gc
import time

from nearcall import route

from .test_route import PATIENCE, table_of, until


def test_new_receivers_are_connected_before_a_table_takes_anothers_place(key: str) -> None:
    first, second = route.Node(f"shm://{key}-first"), route.Node(f"shm://{key}-second")
    got: list[str] = []
    were_ready = 0
    first.on(1)(lambda message: got.append("first"))
    second.on(1)(lambda message: got.append("second"))
    with first, second, route.Node(f"shm://{key}-sender") as sender:
        sender.install(table_of(f"rte | 1 | {first.urls[0]}"))
        sender.ready(PATIENCE)
        for turn in range(20):
            receiver = (second, first)[turn % 2]
            sender.install(table_of(f"rte | 1 | {receiver.urls[0]}", name=f"t{turn}"))
            were_ready += sender.is_ready()
            sender.send(1)
        until(lambda: len(got) == 20, "all messages arrive")
    # On a machine that is busy enough it may be the time that was over.
    assert were_ready > 10, "messages wait for connections"
    assert sorted(got) == ["first"] * 10 + ["second"] * 10


def test_a_receiver_that_is_not_there_does_not_keep_a_table_from_force(key: str) -> None:
    with route.Node(f"shm://{key}-here") as here, route.Node(f"shm://{key}-sender", allow_plaintext=True) as sender:
        sender.install(table_of(f"rte | 1 | {here.urls[0]}"))
        sender.ready(PATIENCE)
        # Nobody listens at the one; the other, of a network for documentation, answers never.
        sender.install(table_of(f"rte | 1 | shm://{key}-nowhere", "rte | 2 | tcp://192.0.2.1:9", name="other"))
        assert sender.status().table == "other"
        sender.send(1, b"waits")
        (queued,) = [each.queued for each in sender.status().endpoints if each.name.endswith("nowhere")]
        assert queued == 1


def test_an_event_loop_does_not_wait_for_the_connections_of_a_table(key: str) -> None:
    async def main() -> float:
        async with route.aio.Node(f"shm://{key}-sender", allow_plaintext=True) as sender:
            sender.install(table_of(f"rte | 1 | shm://{key}-a"))
            begin = time.monotonic()
            sender.install(table_of("rte | 1 | tcp://192.0.2.1:9", name="other"))
            assert sender.status().table == "other"
            return time.monotonic() - begin

    # Often some may have been slow by chance, but not each time.
    assert min(asyncio.run(main()) for _ in range(5)) < 0.2


def test_a_message_that_a_handler_keeps_stays_what_it_was(key: str) -> None:
    kept: list[route.Message[object]] = []
    views: list[memoryview] = []
    payloads: list[bytes] = []
    node = route.Node(f"shm://{key}-node")

    @node.on(1)
    def take(message: route.Message[object]) -> None:
        match message.subscription % 4:
            case 0:
                kept.append(message)
            case 1:
                views.append(message.view)
            case 2:
                payloads.append(message.payload)

    sent = [bytes([number % 256]) * (number * 37 % 5000) for number in range(400)]
    with node, route.Node(f"shm://{key}-sender") as sender:
        for number, payload in enumerate(sent):
            sender.send(1, payload, subscription=number, transaction=b"%d" % number, to=node.urls[0])
        sender.call(100, to=node.urls[0], timeout=PATIENCE)
        assert [message.subscription for message in kept] == list(range(0, 400, 4))
        assert [message.transaction for message in kept] == [b"%d" % number for number in range(0, 400, 4)]
        assert [message.payload for message in kept] == sent[::4]
        assert [bytes(view) for view in views] == sent[1::4]
        assert payloads == sent[2::4]
        assert len({id(message) for message in kept}) == len(kept)


def test_nothing_is_left_of_a_message_that_was_handled(key: str) -> None:
    gc.collect()  # what others have kept
    node = route.Node(f"shm://{key}-node")
    node.on(1)(lambda message: None)
    with node, route.Node(f"shm://{key}-sender") as sender:
        for _ in range(10):
            sender.send(1, b"x", to=node.urls[0])
        sender.call(100, to=node.urls[0], timeout=PATIENCE)
        until(lambda: not [each for each in gc.get_objects() if isinstance(each, route.Message)], "all are freed")
