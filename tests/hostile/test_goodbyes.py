"""A server that says goodbye as it likes: twice, in the middle of a stream, before answers that it gives all the same.

Its clients call from threads and from event loops, with an honest server beside it. No answer reaches another call,
none comes twice, and each call ends in time: with its own answer, or with an error of ours.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import threading
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import nearcall
import nearcall.aio
from nearcall.service.describing import describe
from nearcall.service.service import plan_of

from . import raw
from .frames import (
    CALL,
    DEADLINE,
    END,
    ERROR,
    GOAWAY,
    HEAD,
    ITEM,
    METADATA,
    PING,
    PONG,
    REPLY,
    Frame,
    Received,
    decode,
    encode,
    failure,
    frame,
    pairs,
    welcome,
)
from .meeting import PATIENCE
from .target import SECONDS

UNBEGUN = LAST = 8
TIME = 2.0
"""Seconds that each call has."""
WRONG = -1
"""What no client may ever see."""
ITEMS = 5
TIMES = 1 if not SECONDS else 4
"""How often the server does each of what it does."""


@nearcall.service
class Numbers:
    def same(self, number: int) -> int:
        return number

    def following(self, number: int) -> Iterator[int]:
        yield from range(number, number + ITEMS)


Act = Callable[[raw.Peer, Received, list[Frame]], bool]
"""What comes of a call whose right answer is given; whether the server hangs up then."""
ACTS: list[Act] = []


def act(function: Act) -> Act:
    ACTS.append(function)
    return function


GOODBYE = frame(GOAWAY, call=0)
FAREWELL = frame(GOAWAY, call=0, flags=LAST)


def wrong(one: Received) -> list[Frame]:
    """Answers of every kind that are not the call's."""
    refusal = frame(ERROR, failure(14, b"not begun"), call=one.call, flags=UNBEGUN)
    return [frame(ITEM, encode(WRONG), call=one.call), frame(REPLY, encode(WRONG), call=one.call), refusal]


@act
def parts_and_answers(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    peer.send(GOODBYE, *right)
    return False


@act
def parts_twice(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    peer.send(GOODBYE, GOODBYE, *right, GOODBYE, FAREWELL, FAREWELL, GOODBYE)
    return False


@act
def parts_in_the_middle(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    half = len(right) // 2
    peer.send(*right[:half], GOODBYE, *right[half:])
    return False


@act
def ends_in_the_middle(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    half = len(right) // 2
    peer.send(*right[:half], FAREWELL, *right[half:])
    return False


@act
def ends_and_answers(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    """The call is made once more, on another connection."""
    peer.send(FAREWELL, *wrong(one), *right)
    return True


@act
def ends_behind_metadata(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    peer.send(frame(HEAD, call=one.call, metadata=pairs((b"begun", b"yes"))), FAREWELL, *right)
    return True


@act
def refuses_and_answers(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    refusal, *others = reversed(wrong(one))
    peer.send(refusal, *others, *right)
    return False


@act
def parts_and_refuses(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    peer.send(GOODBYE, *reversed(wrong(one)))
    return False


@act
def answers_and_more(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    peer.send(*right, *wrong(one), GOODBYE, *wrong(one))
    return False


@act
def says_more_than_a_goodbye(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    """What else a goodbye may carry, of which nothing is asked."""
    strange = [frame(GOAWAY, bytes(1000), call=one.call, flags=flags) for flags in (0, 16, LAST | 16)]
    strange.append(frame(GOAWAY, call=one.call, metadata=pairs((b"k", b"v"))))
    peer.send(strange[one.call % 4], *right)
    return False


@act
def says_what_is_malformed(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    peer.send(*right[:-1], frame(GOAWAY, call=0, flags=(METADATA, DEADLINE, 32, 64, 128)[one.call % 5]), *right)
    return False


@act
def answers_those_before(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    """Calls that had the same slot, or another one."""
    others = [frame(REPLY, encode(WRONG), call=(one.call + step) % (1 << 32)) for step in (-1 << 20, 1 << 20, 3 << 20)]
    peer.send(*others, GOODBYE, *others, *right)
    return False


@act
def hangs_up(peer: raw.Peer, one: Received, right: list[Frame]) -> bool:
    peer.send(GOODBYE)
    return True


class Host:
    """Answers most calls as it should, each at once or some together, and every eighth in another way."""

    def __init__(self, transport: str, directory: Path, name: str) -> None:
        self._listener = raw.Listener(transport, directory, name)
        self.url = self._listener.url
        self._welcome = welcome(json.dumps(describe([plan_of(Numbers)])))
        self._over = threading.Event()
        self._came = self._calls = self._acted = 0
        self.enough = threading.Event()
        """It has done all that it does."""
        self.failures: list[str] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                connection = self._listener.accept()
                self._came += 1
                thread = threading.Thread(target=self._serve, args=(connection, self._came))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: Any, came: int) -> None:
        chance = random.Random(came)
        try:
            with contextlib.closing(connection), self._listener.serve(connection, self._greeting(came)) as peer:
                self._begin(peer, came)
                self._answer(peer, chance)
        except (raw.Gone, OSError, TimeoutError):
            pass
        except Exception as error:
            self.failures.append(f"{type(error).__name__}: {error}")

    def _greeting(self, came: int) -> bytes:
        # A goodbye in place of a welcome: that is no handshake.
        return bytes(GOODBYE.head) + self._welcome if came % 11 == 10 else self._welcome

    def _begin(self, peer: raw.Peer, came: int) -> None:
        if came % 7 >= 5:
            peer.send(GOODBYE if came % 7 == 5 else FAREWELL)

    def _answer(self, peer: raw.Peer, chance: random.Random) -> None:
        waiting: list[tuple[Received, list[Frame]]] = []
        while not self._over.is_set():
            try:
                one = peer.receive(0.002 if waiting else 0.05)
            except TimeoutError:
                # In another order.
                for _, right in reversed(waiting):
                    peer.send(*right)
                waiting.clear()
                continue
            if one.kind == PING:
                peer.send(frame(PONG, one.rest, call=one.call))
            if one.kind != CALL:
                continue
            right = answer(one)
            self._calls += 1
            if self._calls % 8 == 0:
                self._acted += 1
                if self._acted == TIMES * len(ACTS):
                    self.enough.set()
                if ACTS[self._acted % len(ACTS)](peer, one, right):
                    return
            elif chance.random() < 0.4:
                waiting.append((one, right))
            else:
                peer.send(*right)

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: object) -> None:
        self.enough.set()
        self._over.set()
        self._listener.close()
        for thread in self._threads:
            thread.join(10)
        assert self.failures == []


def answer(one: Received) -> list[Frame]:
    """The right one: what is asked for says of which method it is."""
    (number,) = decode(one.rest[8 if one.flags & DEADLINE else 0 :])
    if number % 2:
        return [frame(REPLY, encode(number), call=one.call)]
    items = [frame(ITEM, encode(number + step), call=one.call) for step in range(ITEMS)]
    return [*items, frame(END, call=one.call)]


class Checks:
    """How calls ended."""

    def __init__(self) -> None:
        self.right = self.failed = 0
        self.wrong: list[str] = []

    @contextlib.contextmanager
    def call(self, number: int) -> Iterator[list[int]]:
        """Puts what has come into the list that is yielded."""
        found: list[int] = []
        begun, complete = time.monotonic(), True
        try:
            yield found
        except nearcall.RpcError:
            complete = False
        took = time.monotonic() - begun
        should = [number] if number % 2 else list(range(number, number + ITEMS))
        if (found != should) if complete else (found != should[: len(found)]):
            self.wrong.append(f"{number}: {found}, complete: {complete}")
        if took > TIME + PATIENCE:
            self.wrong.append(f"{number} took {took:.2f} s")
        self.right += complete
        self.failed += not complete


def call_by_thread(client: Any, checks: Checks, first: int, enough: threading.Event) -> None:
    for number in count(first):
        if enough.is_set():
            break
        with checks.call(number) as found:
            if number % 2:
                found.append(client.same(number))
            else:
                for item in client.following(number):
                    found.append(item)


async def call_by_task(client: Any, checks: Checks, first: int, enough: threading.Event) -> None:
    for number in count(first):
        if enough.is_set():
            break
        with checks.call(number) as found:
            if number % 2:
                found.append(await client.same(number))
            else:
                async for item in client.following(number):
                    found.append(item)


def by_threads(url: str, checks: Checks, enough: threading.Event) -> None:
    with nearcall.connect(url, Numbers, timeout=TIME, handshake_timeout=TIME) as client:
        firsts = [1_000_000 * number for number in range(1, 5)]
        threads = [threading.Thread(target=call_by_thread, args=(client, checks, first, enough)) for first in firsts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)


def by_tasks(url: str, checks: Checks, enough: threading.Event) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Numbers, timeout=TIME, handshake_timeout=TIME) as client:
            firsts = [1_000_000 * number for number in range(1, 9)]
            await asyncio.gather(*[call_by_task(client, checks, first, enough) for first in firsts])

    asyncio.run(main())


@pytest.mark.parametrize("call", [by_threads, by_tasks])
@pytest.mark.parametrize("transport", ["unix", "shm"])
def test_answers_are_right_whatever_goodbyes_are_said(
    transport: str, call: Callable[[str, Checks, threading.Event], None], runtime_dir: Path
) -> None:
    checks, beside = Checks(), Checks()
    honest_url = f"shm://honest-{transport}-{call.__name__}"
    with (
        Host(transport, runtime_dir, f"g-{call.__name__}") as host,
        nearcall.Server(Numbers(), honest_url),
        nearcall.connect(honest_url, Numbers, timeout=TIME) as honest,
    ):
        thread = threading.Thread(target=call_by_thread, args=(honest, beside, 0, host.enough))
        thread.start()
        call(host.url, checks, host.enough)
        thread.join(60)
    assert checks.wrong == []
    assert checks.right > 2 * TIMES * len(ACTS), "most calls are answered"
    assert (beside.wrong, beside.failed) == ([], 0)
    assert beside.right > 0
