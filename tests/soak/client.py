"""One client of the soak: calls of every kind, at random, for a while. Every call is in the journal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import random
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import nearcall

from .journal import FIELDS, Journal
from .services import Ear, Passing, Soaked, answer, news

(BEGUN, REPLIED, FAILED, CANCELLED, LATE, ONEWAY_BEGUN, ONEWAY_SENT, ONEWAY_FAILED, DONE, WRONG) = range(len(FIELDS))
LONGEST = 50 << 20
LATEST = 30.0
"""Seconds. Calls that are meant to be late have some milliseconds; one that had all this was forgotten by somebody."""
PATIENCE = 5.0
"""Seconds that a client asks after its one-way calls at its end."""
SIZES = [0, 1, 15, 100, 1_000, 10_000, 40_000, 100_000, 1_000_000]
NOISE = random.Random(7).randbytes(1 << 20)
PASSING = 0.5
"""Of the clients, the part that passes objects and memory as well."""
LENGTHY = 64
"""At most so many items in a stream."""


class Soaker:
    """What threads and tasks of a client share."""

    def __init__(self, number: int, seed: int, journal: Journal, large: Path) -> None:
        self.number = number
        self.random = random.Random(seed)
        self.journal = journal
        self._large = large
        self._nonce = number << 20
        self._lock = threading.Lock()

    def nonce(self) -> int:
        with self._lock:
            self._nonce += 1
            return self._nonce

    def count(self, field: int) -> int:
        with self._lock:
            return self.journal.add(self.number, field)

    def wrong(self, what: str) -> None:
        self.count(WRONG)
        print(f"client {self.number}: WRONG {what}", flush=True)

    def data(self) -> bytes:
        size = self.random.choice(SIZES)
        at = self.random.randrange(1 << 10)
        return NOISE[at : at + size]

    def blocks(self) -> list[bytes]:
        return [self.data()[:20_000] for _ in range(self.random.randrange(12))]

    @contextlib.contextmanager
    def a_large_one(self) -> Iterator[bytes | None]:
        """A few tens of megabytes, for one client at a time: fifty at once would be a test of the machine."""
        with self._large.open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            yield NOISE * self.random.randrange(2, (LONGEST >> 20) + 1)

    @contextlib.contextmanager
    def accounted(self) -> Iterator[None]:
        """Counts a call, and how it ended."""
        begun = time.monotonic()
        self.count(BEGUN)
        try:
            yield
        except (nearcall.Unavailable, nearcall.ResourceExhausted) as error:
            if isinstance(error, nearcall.ResourceExhausted):
                self.wrong(repr(error))
            self.count(FAILED)
        except nearcall.DeadlineExceeded as error:
            if time.monotonic() - begun > LATEST:
                self.wrong(f"no outcome for too long: {error}")
            self.count(LATE)
        except (nearcall.Cancelled, asyncio.CancelledError):
            self.count(CANCELLED)
        except Exception as error:
            self.wrong(f"{type(error).__name__}: {error}")
            self.count(FAILED)
        else:
            self.count(REPLIED)

    def in_order(self, items: list[tuple[int, int]]) -> None:
        """Makes sure of what a topic has sent."""
        numbers = [number for number, _ in items]
        if sorted(set(numbers)) != numbers or [tuple(each) for each in items] != list(map(news, numbers)):
            self.wrong(f"news: {items}")

    def same(self, got: object, expected: object, what: str) -> None:
        if got != expected:
            self.wrong(f"{what}: {str(got)[:200]} instead of {str(expected)[:200]}")


def try_in_vain(soaker: Soaker, url: str) -> None:
    """A server that hangs in its handshake is given up in time."""
    begun = time.monotonic()
    try:
        nearcall.connect(url, Soaked, handshake_timeout=0.1)
        soaker.wrong("a server without a handshake was connected to")
    except (nearcall.Unavailable, nearcall.DeadlineExceeded):
        if time.monotonic() - begun > LATEST:
            soaker.wrong("a handshake was not given up in time")


def soak_in_threads(soaker: Soaker, url: str, until: float, threads: int) -> None:
    client: Any = nearcall.connect(url, Soaked, wait_for_ready=True, timeout=60, handshake_timeout=60)
    notes = Notes(soaker)
    server = 0
    with contextlib.suppress(nearcall.RpcError):
        server = client.service.pid()
    # One-way calls have an order only within a thread: one thread sends them.
    passing: Any = None
    if soaker.random.random() < PASSING:
        passing = nearcall.connect(url, Passing, wait_for_ready=True, timeout=60, handshake_timeout=60)
    target, objects = client.service, passing.service if passing else None
    others = [threading.Thread(target=_soak, args=(soaker, target, objects, until, None)) for _ in range(threads - 1)]
    for thread in others:
        thread.start()
    _soak(soaker, target, objects, until, notes)
    for thread in others:
        thread.join()
    if passing:
        passing.close()
    for sent in notes.asking():
        with contextlib.suppress(nearcall.RpcError):
            if client.service.noted(soaker.number) >= sent or client.service.pid() != server:
                break
        time.sleep(0.01)
    client.close()


class Notes:
    """One-way calls: numbered, sent in order, and asked after."""

    def __init__(self, soaker: Soaker) -> None:
        self.soaker = soaker
        self._number = 0

    def some(self) -> Iterator[tuple[int, int, bytes]]:
        """The arguments of the next ones."""
        for _ in range(self.soaker.random.randrange(1, 50)):
            self._number += 1
            yield self.soaker.number, self._number, self.soaker.data()[:50_000]

    @contextlib.contextmanager
    def counted(self) -> Iterator[None]:
        """Counts one that is being sent."""
        self.soaker.count(ONEWAY_BEGUN)
        try:
            yield
        except nearcall.RpcError:
            self.soaker.count(ONEWAY_FAILED)
        else:
            self.soaker.count(ONEWAY_SENT)

    def asking(self) -> Iterator[int]:
        """How many must have come, again and again, as long as it is worth asking: what a dead server had is lost."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            yield self.soaker.journal.get(self.soaker.number, ONEWAY_SENT)


class OwnEar(Ear):
    def __init__(self, number: int) -> None:
        self._number = number

    def hear(self, nonce: int) -> int:
        return heard(self._number, nonce)


class EarInLoop(Ear):
    def __init__(self, number: int) -> None:
        self._number = number

    async def hear(self, nonce: int) -> int:  # type: ignore[override]
        await asyncio.sleep(0)
        return heard(self._number, nonce)


def heard(number: int, nonce: int) -> int:
    """What an ear answers."""
    return number * 1_000_033 ^ nonce


def lent(data: bytes) -> memoryview:
    """The same in memory that can be handed over."""
    memory = nearcall.buffer(len(data))
    memory[:] = data
    return memory


def _soak(soaker: Soaker, target: Any, passing: Any, until: float, notes: Notes | None) -> None:
    while time.monotonic() < until:
        kind = soaker.random.random()
        if passing is not None and kind > 0.8:
            with soaker.accounted():
                _pass_one(soaker, passing, soaker.random.random())
            continue
        if notes is not None and kind < 0.2:
            for note in notes.some():
                with notes.counted():
                    target.note(*note)
            continue
        with soaker.accounted():
            _one_call(soaker, target, soaker.random.random())


def _pass_one(soaker: Soaker, passing: Any, kind: float) -> None:
    """A call that passes an object or memory."""
    me, nonce, n = soaker.number, soaker.nonce(), soaker.random.randrange(8)
    if kind < 0.5:
        ask = passing.heard if soaker.random.random() < 0.5 else passing.heard_in_loop
        soaker.same(ask(OwnEar(me), nonce, n), [heard(me, nonce + number) for number in range(n)], "heard")
    elif kind < 0.6:
        ear = OwnEar(me)
        soaker.same(passing.again(ear) is ear, True, "an object that came home")
    elif kind < 0.8:
        seat, data = passing.seat(me), soaker.data()
        soaker.same(seat.say(nonce, data), answer(me, nonce, data), "seat")
        if n < 4:
            nearcall.release(seat)  # the others are let go of when they are collected
    else:
        data = soaker.data()
        soaker.same(bytes(passing.mirror(lent(data))) == data, True, "mirror")


def _one_call(soaker: Soaker, target: Any, kind: float) -> None:
    me, nonce, chance = soaker.number, soaker.nonce(), soaker.random
    if kind < 0.30:
        data = soaker.data()
        check = target.check if chance.random() < 0.5 else target.check_in_loop
        soaker.same(check(me, nonce, data), answer(me, nonce, data), "check")
    elif kind < 0.50:
        data = soaker.data()
        soaker.same(target.echo(me, nonce, data) == data, True, "echo")
    elif kind < 0.56:
        try:
            target.refuse(me, nonce)
            soaker.wrong("refuse did not refuse")
        except nearcall.NotFound as error:
            soaker.same(error.message, f"{me} {nonce}", "refuse")
    elif kind < 0.66:
        n = chance.randrange(LENGTHY)
        count = target.count if chance.random() < 0.5 else target.count_in_loop
        soaker.same(list(count(me, nonce, n)), _numbers(me, nonce, n), "count")
    elif kind < 0.74:
        blocks = soaker.blocks()
        soaker.same(target.total(me, nonce, iter(blocks)), answer(me, nonce, b"".join(blocks)), "total")
    elif kind < 0.84:
        blocks = soaker.blocks()
        mirrored = target.mirrored if chance.random() < 0.5 else target.mirrored_in_loop
        soaker.same(list(mirrored(me, nonce, iter(blocks))) == blocks, True, "mirrored")
    elif kind < 0.87:
        with nearcall.timeout(5):
            stream = target.news()
            soaker.in_order([next(stream) for _ in range(5)])
        stream.close()
        raise nearcall.Cancelled("left early")
    elif kind < 0.90:
        # Left early: given up in the middle.
        numbers = target.count(me, nonce, 1_000_000)
        soaker.same([next(numbers) for _ in range(10)], _numbers(me, nonce, 10), "count left early")
        numbers.close()
        raise nearcall.Cancelled("left early")
    elif kind < 0.96:
        nap = target.nap if chance.random() < 0.5 else target.nap_in_loop
        with nearcall.timeout(0.01):
            nap(0.03)  # late, unless this process was kept waiting until the answer was there
    elif kind < 0.995:
        target.nap_in_loop(chance.random() * 0.02)
    else:
        with soaker.a_large_one() as large:
            if large is not None:
                soaker.same(tuple(target.check(me, nonce, large)), answer(me, nonce, large), "a large one")


def _numbers(client: int, nonce: int, n: int) -> list[int]:
    return [client * 1_000_003 + nonce + number for number in range(n)]


async def soak_in_tasks(soaker: Soaker, url: str, until: float, tasks: int) -> None:
    client: Any = await nearcall.aio.connect(url, Soaked, wait_for_ready=True, timeout=60, handshake_timeout=60)
    notes = Notes(soaker)
    server = 0
    with contextlib.suppress(nearcall.RpcError):
        server = await client.pid()
    passing: Any = None
    if soaker.random.random() < PASSING:
        passing = await nearcall.aio.connect(url, Passing, wait_for_ready=True, timeout=60, handshake_timeout=60)
    ways = [notes, *[None] * (tasks - 1)]
    await asyncio.gather(*[_soak_in_task(soaker, client, passing, until, way) for way in ways])
    if passing:
        passing.close()
    for sent in notes.asking():
        with contextlib.suppress(nearcall.RpcError):
            if await client.noted(soaker.number) >= sent or await client.pid() != server:
                break
        await asyncio.sleep(0.01)
    client.close()


async def _soak_in_task(soaker: Soaker, target: Any, passing: Any, until: float, notes: Notes | None) -> None:
    while time.monotonic() < until:
        if passing is not None and soaker.random.random() < 0.2:
            with soaker.accounted():
                await _pass_one_in_task(soaker, passing, soaker.random.random())
            continue
        if notes is not None and soaker.random.random() < 0.2:
            for note in notes.some():
                with notes.counted():
                    await target.note(*note)
            continue
        with soaker.accounted():
            await _one_call_in_task(soaker, target, soaker.random.random())


async def _pass_one_in_task(soaker: Soaker, passing: Any, kind: float) -> None:
    me, nonce, n = soaker.number, soaker.nonce(), soaker.random.randrange(8)
    if kind < 0.5:
        ask = passing.heard if soaker.random.random() < 0.5 else passing.heard_in_loop
        soaker.same(await ask(EarInLoop(me), nonce, n), [heard(me, nonce + number) for number in range(n)], "heard")
    elif kind < 0.7:
        seat, data = await passing.seat(me), soaker.data()
        soaker.same(await seat.say(nonce, data), answer(me, nonce, data), "seat")
    else:
        data = soaker.data()
        soaker.same(bytes(await passing.mirror(lent(data))) == data, True, "mirror")


async def _one_call_in_task(soaker: Soaker, target: Any, kind: float) -> None:
    me, nonce, chance = soaker.number, soaker.nonce(), soaker.random
    if kind < 0.5:
        data = soaker.data()
        check = target.check if chance.random() < 0.5 else target.check_in_loop
        soaker.same(await check(me, nonce, data), answer(me, nonce, data), "check")
    elif kind < 0.55:
        with nearcall.timeout(5):
            stream = target.news()
            soaker.in_order([await anext(stream) for _ in range(5)])
        await stream.aclose()
        raise nearcall.Cancelled("left early")
    elif kind < 0.65:
        n = chance.randrange(LENGTHY)
        count = target.count if chance.random() < 0.5 else target.count_in_loop
        soaker.same([number async for number in count(me, nonce, n)], _numbers(me, nonce, n), "count")
    elif kind < 0.80:
        blocks = soaker.blocks()
        mirrored = target.mirrored if chance.random() < 0.5 else target.mirrored_in_loop
        got = [block async for block in mirrored(me, nonce, _each(blocks))]
        soaker.same(got == blocks, True, "mirrored")
    elif kind < 0.90:
        task = asyncio.ensure_future(target.nap_in_loop(0.5))
        await asyncio.sleep(chance.random() * 0.005)
        task.cancel()
        await task
    else:
        with nearcall.timeout(0.01):
            await target.nap_in_loop(5.0)
        soaker.wrong("a nap was not late")


async def _each(blocks: list[bytes]) -> AsyncIterator[bytes]:
    for block in blocks:
        yield block
