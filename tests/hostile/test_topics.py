"""Subscribers of topics that mean harm: nobody waits for them, and what is kept for them has bounds."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from .frames import CANCEL, END, ERROR, REPLY, credit, decode, encode, frame
from .raw import Gone, Peer
from .target import Attack, Scene, Table, every

TABLE = Table()
ENDLESS = (1 << 63) - (1 << 21)
METHODS = ("news", "latest", "news_in_loop")


def publish(scene: Scene, peer: Peer, size: int, times: int = 1) -> int:
    """How many subscribers there were at last."""
    found = -1
    for call in range(times):
        peer.send(scene.call(peer, "publish", encode([size]), call=call))
        answer = peer.receive(20)
        assert answer.kind == REPLY, answer
        found = decode(answer.rest)
    return found


@contextlib.contextmanager
def somebody_publishes(scene: Scene, size: int) -> Iterator[None]:
    """As fast as it goes, over a connection of its own."""
    peer, over, failures = scene.connect(), threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not over.is_set():
                publish(scene, peer, size)
        except (AssertionError, Gone, TimeoutError) as failure:
            failures.append(failure)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(30)
    assert not failures, failures


def subscribe(scene: Scene, peer: Peer, calls: range, *, reads: bool = False) -> None:
    for call in calls:
        method = METHODS[call % len(METHODS)]
        with contextlib.suppress(Gone):
            peer.send(scene.call(peer, method, call=call), credit(ENDLESS, call), seconds=0.5)


@TABLE.add(terminate=True)
def subscribers_that_do_not_read(scene: Scene) -> None:
    for _ in range(3):
        subscribe(scene, scene.connect(), range(100))
    with somebody_publishes(scene, 60_000):
        time.sleep(scene.seconds * 2)


@TABLE.add()
def subscribers_of_what_is_published_meanwhile(scene: Scene) -> None:
    """Each gets another item as its first one, and takes none."""
    peers = [scene.connect() for _ in range(3)]
    publisher = scene.connect()
    for number in range(scene.amount(60, 300)):
        publish(scene, publisher, 500_000)
        subscribe(scene, peers[number % 3], range(number, number + 1))


@TABLE.add(terminate=True)
def subscriptions_made_and_given_up_at_full_rate(scene: Scene) -> None:
    peer = scene.connect()
    batch = []
    for call in range(60):
        batch += [scene.call(peer, METHODS[call % len(METHODS)], call=call), frame(CANCEL, call=call)]
    end = time.monotonic() + scene.seconds * 2
    with somebody_publishes(scene, 10), contextlib.suppress(Gone):
        while time.monotonic() < end and peer.send(*batch, seconds=0.5):
            while peer.try_receive() is not None:
                pass


@TABLE.add(server={"max_streams": 10_000, "max_pending": 20_000})
def ten_thousand_subscriptions_of_one_client(scene: Scene) -> None:
    """Each item is ten thousand frames for one connection."""
    count, peer, publisher = scene.amount(2000, 10_000), scene.connect(), scene.connect()
    subscribe(scene, peer, range(count))
    # Those of coroutines are there a little later.
    while publish(scene, publisher, 1) < count - 10:
        time.sleep(0.05)
        peer.received_all(0.01)
    publish(scene, publisher, 10, times=scene.amount(3, 30))


@TABLE.add()
def subscribers_that_hang_up_amid_it(scene: Scene) -> None:
    with somebody_publishes(scene, 20_000):
        for _ in range(scene.amount(20, 200)):
            peer = scene.connect()
            subscribe(scene, peer, range(20))
            peer.close()


@TABLE.add()
def subscribers_too_slow_are_told_so(scene: Scene) -> None:
    """The one topic ends their streams, the other leaves items out; both let them read the rest."""
    peer, publisher = scene.connect(), scene.connect()
    subscribe(scene, peer, range(3))
    while publish(scene, publisher, 1) < 3:
        time.sleep(0.01)
    publish(scene, publisher, 100_000, times=80)
    ended = {one.call for one in peer.received_all(0.3) if one.kind in (ERROR, END)}
    assert ended == {0, 2}, ended


@every(TABLE)
def test_subscribers_keep_nobody_waiting(
    attack: Attack, transport: str, attempt: Callable[[Attack, str], None]
) -> None:
    attempt(attack, transport)
