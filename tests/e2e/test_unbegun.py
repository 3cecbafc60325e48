"""Calls that a server has certainly not begun with go to the next one, and no others do."""

from __future__ import annotations

import asyncio
import contextlib
import json
import struct
import threading
import time
from collections.abc import Callable, Iterator
from operator import gt
from pathlib import Path
from typing import Any

import pytest

import nearcall
import nearcall.aio
from nearcall.service.describing import describe
from nearcall.service.service import plan_of

from ..hostile import raw
from ..hostile.frames import (
    CALL,
    DEADLINE,
    ERROR,
    GOAWAY,
    HEAD,
    REPLY,
    Received,
    encode,
    failure,
    frame,
    pairs,
    welcome,
)
from ..survival.observing import eventually
from .test_retries import Caller

PATIENCE = 30.0
UNBEGUN = LAST = 8


@nearcall.service
class Till:
    """Nothing of it may be done twice."""

    def __init__(self) -> None:
        self.calls = 0
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def pay(self, cents: int) -> int:
        self.calls += 1
        return cents

    def count(self) -> int:
        self.begun.set()
        assert self.may_end.wait(PATIENCE)
        return self.calls


Answer = Callable[[raw.Peer, Received], bool]
"""What becomes of a call; whether the server hangs up then."""


def pays(peer: raw.Peer, call: Received) -> bool:
    peer.send(frame(REPLY, encode(5), call=call.call))
    return False


class Raw:
    """A server whose first calls end as it is told, one after the other, and whose others are answered."""

    def __init__(
        self, transport: str, directory: Path, name: str, *answers: Answer, parts_at_once: bool = False
    ) -> None:
        self._parts_at_once = parts_at_once
        self.connections = 0
        self._listener = raw.Listener(transport, directory, name)
        self.url = self._listener.url
        self._answers = iter(answers)
        self.calls: list[Received] = []
        self._over = False
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        while not self._over:
            with contextlib.suppress(OSError):
                connection = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: Any) -> None:
        description = json.dumps(describe([plan_of(Till)]))
        with contextlib.suppress(raw.Gone), self._listener.serve(connection, welcome(description)) as peer:
            if self._parts_at_once:
                peer.send(frame(GOAWAY, call=0))
            while not self._over:
                with contextlib.suppress(TimeoutError):
                    one = peer.receive(0.05)
                    if one.kind == CALL:
                        self.calls.append(one)
                        if next(self._answers, pays)(peer, one):
                            return

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._listener.close()
        for thread in self._threads:
            thread.join(PATIENCE)


def by_thread(url: str) -> Any:
    with nearcall.connect(url, Till, timeout=PATIENCE) as till:
        return till.pay(5)


def by_started_call(url: str) -> Any:
    with nearcall.connect(url, Till, timeout=PATIENCE) as till:
        return nearcall.start(till.pay, 5).result()


def by_loop(url: str) -> Any:
    async def main() -> Any:
        async with nearcall.aio.connect(url, Till, timeout=PATIENCE) as till:
            return await till.pay(5)

    return asyncio.run(main())


callers = pytest.mark.parametrize("call", [by_thread, by_started_call, by_loop])


@pytest.fixture(params=["unix", "tcp", "shm"])
def serve(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> Callable[..., Raw]:
    return lambda *answers, **options: Raw(request.param, runtime_dir, f"u{key}", *answers, **options)


def leaves_without_it(peer: raw.Peer, call: Received) -> bool:
    peer.send(frame(GOAWAY, call=0), frame(GOAWAY, call=0, flags=LAST))
    return True


def leaves_in_the_middle(peer: raw.Peer, call: Received) -> bool:
    peer.send(frame(GOAWAY, call=0))
    return True


def takes_it_back(peer: raw.Peer, call: Received) -> bool:
    begun = frame(HEAD, call=call.call, metadata=pairs((b"begun", b"yes")))
    peer.send(begun, frame(ERROR, failure(14, b"not begun"), call=call.call, flags=UNBEGUN))
    return False


def refuses_late(peer: raw.Peer, call: Received) -> bool:
    time.sleep(0.2)
    peer.send(frame(ERROR, failure(14, b"not now"), call=call.call, flags=UNBEGUN))
    return False


@callers
def test_what_a_server_left_unbegun_goes_to_the_next_one(serve: Callable[..., Raw], call: Caller) -> None:
    """It said that it answers nothing more: what it has not answered it has not begun."""
    with serve(leaves_without_it) as server:
        assert call(server.url) == 5
        assert len(server.calls) == 2


@callers
def test_a_goodbye_alone_does_not_say_what_was_begun(serve: Callable[..., Raw], call: Caller) -> None:
    with serve(leaves_in_the_middle) as server:
        with pytest.raises(nearcall.Unavailable):
            call(server.url)
        assert len(server.calls) == 1


@callers
def test_a_server_that_has_sent_metadata_has_begun(serve: Callable[..., Raw], call: Caller) -> None:
    with serve(takes_it_back) as server:
        with pytest.raises(nearcall.Unavailable, match="not begun"):
            call(server.url)
        assert len(server.calls) == 1


@callers
def test_a_call_that_is_sent_again_says_what_is_left_of_its_time(serve: Callable[..., Raw], call: Caller) -> None:
    with serve(refuses_late) as server:
        assert call(server.url) == 5
        first, second = (left_of(one) for one in server.calls)
        assert first <= PATIENCE
        assert second <= first - 0.2


@callers
def test_a_server_that_says_goodbye_at_once_is_not_dialled_for_ever(serve: Callable[..., Raw], call: Caller) -> None:
    with serve(parts_at_once=True) as server:
        with contextlib.suppress(nearcall.Unavailable):
            call(server.url)
        assert server.connections < 30


def left_of(call: Received) -> float:
    assert call.flags & DEADLINE
    micros: int = struct.unpack_from("<Q", call.rest)[0]
    return micros / 1e6


def test_a_server_that_stops_says_when_it_is_through(new_url: str, transport: str) -> None:
    """First that it begins nothing more; then what is under way is answered; then that nothing else comes."""
    if transport == "inproc":
        pytest.skip("nobody outside can connect")
    till = Till()
    server = nearcall.Server(till, new_url).start()
    with raw.connect(server.urls[0]) as peer:
        peer.send(frame(CALL, method=peer.methods["count"]))
        assert till.begun.wait(PATIENCE)
        stopping = threading.Thread(target=server.stop, args=(PATIENCE,))
        stopping.start()
        first = peer.receive(PATIENCE)
        till.may_end.set()
        others = peer.received_all(PATIENCE)
        stopping.join(PATIENCE)
    assert (first.kind, first.flags) == (GOAWAY, 0)
    assert [(one.kind, one.flags) for one in others] == [(REPLY, 0), (GOAWAY, LAST)]


@pytest.fixture
def tills(new_url: str) -> Iterator[tuple[str, Callable[[], None], list[Till]]]:
    """A URL, what replaces the server there, and the services so far."""
    tills = [Till()]
    servers = [nearcall.Server(tills[0], new_url).start()]
    url = servers[0].urls[0]  # the port that the system chose, the next time too

    def replace() -> None:
        servers.pop().stop()
        tills.append(Till())
        servers.append(nearcall.Server(tills[-1], url).start())

    yield url, replace, tills
    servers.pop().stop()


@pytest.mark.slow
@pytest.mark.parametrize("pause", [0.0, 0.002])
def test_no_call_fails_while_servers_come_and_go(
    tills: tuple[str, Callable[[], None], list[Till]], pause: float
) -> None:
    """Nor is one made twice, whether the client calls all the time or is idle now and then."""
    url, replace, services = tills
    over, connected = threading.Event(), threading.Barrier(5)
    made = [0] * 4
    failures: list[str] = []

    def call(number: int) -> None:
        with nearcall.connect(url, Till, timeout=PATIENCE) as till:
            connected.wait(PATIENCE)
            while not over.is_set():
                try:
                    made[number] += till.pay(1)
                except nearcall.RpcError as failure:
                    failures.append(str(failure))
                if pause:
                    time.sleep(pause)

    callers = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for caller in callers:
        caller.start()
    connected.wait(PATIENCE)
    for _ in range(10):
        replace()
        before = made.copy()
        # A call is sent three times at the most: nobody is to meet one end after the other.
        eventually(lambda before=before: all(map(gt, made, before)), "a caller does not find the next server")
    over.set()
    for caller in callers:
        caller.join(PATIENCE)
    assert failures == []
    assert sum(till.calls for till in services) == sum(made)
