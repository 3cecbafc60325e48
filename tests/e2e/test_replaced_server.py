"""A server that was replaced by another one, and perhaps by itself again: what its clients find."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nearcall

from ..survival.observing import eventually

PATIENCE = 30.0


@nearcall.service
class Old:
    def one(self) -> int:
        return 1

    @nearcall.oneway
    def note(self) -> None: ...

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)


@nearcall.service
class New:
    def two(self) -> int:
        return 2


@nearcall.service
class Booth:
    """Its handler does its work, and then fails by itself."""

    def __init__(self) -> None:
        self.calls = 0
        self.began = threading.Event()
        self.may_end = threading.Event()

    def book(self) -> None:
        self.calls += 1
        self.began.set()
        assert self.may_end.wait(PATIENCE)
        raise nearcall.Unavailable("no seat is left")


class Place:
    """One URL, and whoever serves there."""

    def __init__(self, url: str) -> None:
        self.server: nearcall.Server | None = None
        self.url = url

    def serve(self, *services: object) -> None:
        self.leave()
        self.server = nearcall.Server(*services, self.url).start()
        self.url = self.server.urls[0]  # the port that the system chose, the next time too

    def leave(self) -> None:
        if self.server is not None:
            self.server.stop()


def is_refused(call: Callable[..., Any], *args: Any) -> bool:
    """The first call may still meet the end of the server before."""
    try:
        call(*args)
    except nearcall.FailedPrecondition as error:
        return "does not serve Old" in error.message
    except nearcall.Unavailable:
        pass
    return False


@pytest.fixture
def place(new_url: str) -> Iterator[Place]:
    place = Place(new_url)
    place.serve(Old())
    yield place
    place.leave()


@pytest.mark.parametrize(
    "call",
    [lambda old: old.one(), lambda old: old.note(), lambda old: list(old.count(2))],
    ids=["unary", "oneway", "stream"],
)
def test_a_wrong_server_that_was_there_for_a_while_is_forgotten(place: Place, call: Callable[[Any], Any]) -> None:
    """What it has said of itself counts no longer than its connection: nothing else notices that it is gone."""
    with nearcall.connect(place.url, Old) as old:
        right = call(old)
        place.serve(New())
        eventually(lambda: is_refused(call, old), "nobody is refused")
        place.serve(Old())
        assert call(old) == right


def is_served(place: Place, *services: object) -> bool:
    """Clients may find that the server before takes no more of them a moment before its place is free."""
    try:
        place.server = nearcall.Server(*services, place.url).start()
    except nearcall.AlreadyExists:
        return False
    return True


def refuses(url: str) -> bool:
    try:
        nearcall.connect(url, Booth, timeout=PATIENCE).close()
    except nearcall.Unavailable:
        return True
    return False


def test_a_handler_that_fails_while_its_server_stops_is_not_run_again(place: Place) -> None:
    """Only what the server has not begun with is sent to the next one: the method is not idempotent."""
    first, second = Booth(), Booth()
    second.may_end.set()
    place.serve(first)
    old = place.server
    assert old is not None
    failures: list[BaseException] = []
    with nearcall.connect(place.url, Booth, timeout=PATIENCE) as booth:

        def book() -> None:
            try:
                booth.book()
            except nearcall.RpcError as failure:
                failures.append(failure)

        booking = threading.Thread(target=book)
        booking.start()
        assert first.began.wait(PATIENCE)
        stopping = threading.Thread(target=old.stop)
        stopping.start()
        eventually(lambda: refuses(place.url), "the server does not stop")
        eventually(lambda: is_served(place, second), "the place does not get free")
        first.may_end.set()
        for thread in (booking, stopping):
            thread.join(PATIENCE)
    assert [str(failure) for failure in failures] == ["no seat is left"]
    assert (first.calls, second.calls) == (1, 0)


@pytest.mark.slow
def test_without_a_server_a_refused_call_says_that(place: Place) -> None:
    client = nearcall.connect(place.url, Old)
    place.serve(New())
    eventually(lambda: is_refused(client.service.one), "nobody is refused")
    place.leave()
    assert not client.connected
    with pytest.raises(nearcall.Unavailable):
        client.one()
    client.close()


@pytest.mark.slow
def test_a_client_is_judged_by_the_server_of_now(place: Place) -> None:
    with nearcall.Channel(place.url) as channel:
        assert channel.client(Old).one() == 1
        place.serve(Old(), New())
        assert channel.client(New).two() == 2
        with pytest.raises(nearcall.FailedPrecondition, match="does not serve Later"):
            channel.client(Later)
        place.leave()
        with pytest.raises(nearcall.Unavailable):
            channel.client(Later)


@nearcall.service
class Later:
    def three(self) -> int:
        return 3


def test_in_a_loop_the_channel_is_awaited_for_that(place: Place) -> None:
    async def main() -> None:
        async with nearcall.aio.Channel(place.url) as channel:
            assert await channel.client(Old).one() == 1
            await asyncio.to_thread(place.serve, Old(), New())
            await asyncio.to_thread(eventually, lambda: not channel.connected, "the end is not seen")
            with pytest.raises(nearcall.Unavailable, match="await the channel"):
                channel.client(New)
            await channel
            assert await channel.client(New).two() == 2

    asyncio.run(main())


def test_a_ping_goes_to_the_server_of_now(place: Place) -> None:
    with nearcall.Channel(place.url) as channel:
        assert channel.ping() > 0
        place.serve(Old())
        assert channel.ping() > 0


@pytest.mark.slow
def test_a_server_that_is_back_is_found_by_the_next_calls(place: Place) -> None:
    """However often clients have called before: what they are told of the past says when that was."""
    with nearcall.connect(place.url, Old) as old:
        place.leave()
        messages = set()
        for _ in range(30):
            with pytest.raises(nearcall.Unavailable) as caught:
                old.one()
            messages.add(caught.value.message)
        assert any("last tried" in message and "next attempt" in message for message in messages)
        place.serve(Old())

        def is_found() -> bool:
            try:
                return old.one() == 1
            except nearcall.Unavailable as error:
                messages.add(error.message)
                return False

        messages.clear()
        eventually(is_found, "the server is not found")
        # None of them claimed to know it of that very moment.
        assert all("last tried" in message for message in messages)


async def give_up_at_once(client: Any) -> None:
    """Calls, and does not wait; what looks for a server looks on for a moment."""
    with contextlib.suppress(nearcall.DeadlineExceeded, nearcall.Unavailable), nearcall.timeout(0.001):
        await client.one()


def test_a_connection_that_was_made_when_nobody_waited_any_more(new_url: str) -> None:
    place = Place(new_url)
    place.serve(Old())

    async def main() -> None:
        client: Any = await nearcall.aio.connect(place.url, Old, wait_for_ready=True)
        assert await client.one() == 1
        place.leave()
        await give_up_at_once(client)
        await give_up_at_once(client)
        place.serve(Old())
        for tries in itertools.count(1):
            if client.connected:
                break
            await asyncio.sleep(0.001)
            if tries % 200 == 0:
                await give_up_at_once(client)
        assert await asyncio.wait_for(client.one(), 10) == 1
        client.close()

    asyncio.run(main())
    place.leave()
