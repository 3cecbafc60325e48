"""One connection for the clients of several services, for threads and for event loops alike."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

import nearcall
from nearcall.introspection import Introspection

from .channels import PATIENCE, LaterRight, Left, Right
from .process import ServerProcess

FACES = ["threads", "loop"]
EARLY, LATE = "tests.e2e.channels:early", "tests.e2e.channels:late"


class Face:
    """A channel of either face, used as if it were one for threads."""

    def __init__(self, url: str, face: str, **options: Any) -> None:
        self.loop = asyncio.new_event_loop() if face == "loop" else None
        self.channel: Any
        if self.loop is None:
            self.channel = nearcall.Channel(url, **options)
        else:
            self._thread = threading.Thread(target=self.loop.run_forever)
            self._thread.start()
            try:
                self.channel = self.run(self._connect(url, options))
            except BaseException:
                self._end_loop()
                raise

    @staticmethod
    async def _connect(url: str, options: dict[str, Any]) -> Any:
        return await nearcall.aio.Channel(url, **options)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        assert self.loop is not None
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(PATIENCE)

    def do(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls something where the channel is used: what it returns is awaited, and a stream is made a list."""
        if self.loop is None:
            result = function(*args)
            return list(result) if isinstance(result, Iterator) else result

        async def there() -> Any:
            result = function(*args)
            if isinstance(result, AsyncIterator):
                return [item async for item in result]
            return await result if hasattr(result, "__await__") else result

        return self.run(there())

    def client(self, service: type | None = None) -> Any:
        return self.do(self.channel.client, service)

    def service(self, service: type | None = None) -> Any:
        return self.client(service).service

    def _end_loop(self) -> None:
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def close(self) -> None:
        self.do(self.channel.close)
        if self.loop is not None:
            self._end_loop()


@pytest.fixture
def faces() -> Iterator[Callable[..., Face]]:
    with ExitStack() as stack:

        def make(url: str, face: str, **options: Any) -> Face:
            made = Face(url, face, **options)
            stack.callback(made.close)
            return made

        yield make


@pytest.fixture
def left() -> Left:
    return Left()


@pytest.fixture
def early_url(new_url: str, left: Left) -> Iterator[str]:
    with nearcall.Server(left, Right(), new_url) as server:
        yield server.urls[0]


def patiently(call: Callable[..., Any], *args: Any) -> Any:
    """A call that may find out that the server is gone, and is then made again."""
    while True:
        try:
            return call(*args)
        except nearcall.Unavailable:
            pass


@pytest.mark.parametrize("face", FACES)
def test_services_share_one_connection(early_url: str, face: str, faces: Callable[..., Face]) -> None:
    channel = faces(early_url, face)
    left, right, plain = channel.service(Left), channel.service(Right), channel.service()
    assert [channel.do(one.name) for one in (left, right, plain.Left, plain.Right)] == [
        "left",
        "right",
        "left",
        "right",
    ]
    assert channel.do(left.count, 3) == [0, 1, 2]
    assert channel.do(left.total, [1, 2, 3]) == 6
    assert channel.do(right.double, [1, 2]) == [2, 4]
    assert channel.do(right.shout, "now") == "NOW"
    assert channel.do(channel.service(Introspection).read).connections == 1


@pytest.mark.parametrize("face", FACES)
def test_a_closed_client_leaves_the_others(early_url: str, face: str, left: Left, faces: Callable[..., Face]) -> None:
    channel = faces(early_url, face)
    closed, open_ = channel.client(Left), channel.client(Left)
    name = closed.service.name
    channel.do(closed.close)
    channel.do(closed.close)
    for call, *args in ((name,), (closed.service.name,), (closed.service.hear, 1), (closed.service.total, [1])):
        with pytest.raises(nearcall.Cancelled, match=f"this client of {early_url} was closed"):
            channel.do(call, *args)
    with pytest.raises(nearcall.Cancelled):
        channel.do(closed.service.count, 1)
    assert (closed.closed, open_.closed, channel.channel.closed) == (True, False, False)
    assert channel.do(open_.service.name) == "left"
    assert channel.do(channel.service(Right).name) == "right"
    assert left.heard == []


@pytest.mark.parametrize("face", FACES)
def test_calls_of_a_closed_client_go_on(
    early_url: str, face: str, key: str, left: Left, faces: Callable[..., Face]
) -> None:
    channel = faces(early_url, face)
    client = channel.client(Left)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.do, client.service.wait, key)
        assert left.begun[key].wait(PATIENCE)
        channel.do(client.close)
        left.go_on[key].set()
        assert waiting.result(PATIENCE) == "waited"


@pytest.mark.parametrize("face", FACES)
def test_a_closed_channel_ends_all_its_clients(
    early_url: str, face: str, key: str, left: Left, faces: Callable[..., Face]
) -> None:
    channel = faces(early_url, face)
    one, other = channel.client(Left), channel.client(Right)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(channel.do, one.service.wait, key)
        assert left.begun[key].wait(PATIENCE)
        channel.do(channel.channel.close)
        with pytest.raises(nearcall.Cancelled):
            waiting.result(PATIENCE)
        left.go_on[key].set()
    channel.do(channel.channel.close)
    assert (one.closed, other.closed, channel.channel.closed) == (True, True, True)
    with pytest.raises(nearcall.Cancelled):
        channel.do(other.service.name)
    with pytest.raises(nearcall.Cancelled, match=r"this channel to .* was closed"):
        channel.client(Left)


@pytest.mark.parametrize("face", FACES)
def test_a_class_that_does_not_fit_leaves_the_channel(early_url: str, face: str, faces: Callable[..., Face]) -> None:
    channel = faces(early_url, face)
    left = channel.service(Left)
    with pytest.raises(nearcall.FailedPrecondition, match="has no parameter 'language'"):
        channel.client(LaterRight)
    with pytest.raises(TypeError, match="connect with the service's class"):
        channel.client(Left())  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="not a service"):
        channel.client(int)
    assert channel.do(left.name) == "left"
    assert channel.do(channel.service(Right).name) == "right"


@pytest.mark.parametrize("face", FACES)
def test_after_another_server_only_what_differs_fails(new_url: str, face: str, faces: Callable[..., Face]) -> None:
    with nearcall.Server(Left(), Right(), new_url) as first:
        url = first.urls[0]
        channel = faces(url, face, wait_for_ready=True, timeout=PATIENCE)
        left, right = channel.service(Left), channel.service(Right)
        assert [channel.do(left.name), channel.do(right.name)] == ["left", "right"]
    with nearcall.Server(LaterRight(), Left(), url):
        assert patiently(channel.do, left.name) == "left"
        with pytest.raises(nearcall.FailedPrecondition) as failure:
            channel.do(right.name)
        assert failure.value.message == (
            "client's Right.name has no parameter 'language' but the server's requires language: str"
        )
        assert channel.do(right.shout, "on") == "ON"
        assert channel.do(left.count, 2) == [0, 1]
        # The class of now goes by the same connection.
        assert channel.do(channel.service(LaterRight).name, "Latin") == "right in Latin"
        with pytest.raises(nearcall.FailedPrecondition):
            channel.client(Right)
    with nearcall.Server(Left(), Right(), url):
        assert [patiently(channel.do, left.name), channel.do(right.name)] == ["left", "right"]


@pytest.mark.parametrize("face", FACES)
def test_what_bounds_the_wait_for_the_first_connection_is_named(
    new_url: str, face: str, faces: Callable[..., Face]
) -> None:
    with nearcall.Server(Left(), new_url) as server:
        url = server.urls[0]
    advice = (
        r"; wait_for_ready waits no longer than handshake_timeout=0\.2 s for a server to connect to: start it within"
    )
    in_vain = (nearcall.Unavailable, nearcall.DeadlineExceeded)
    with pytest.raises(
        in_vain, match=rf"^(cannot connect|there was no connection) to .*{advice} that time, or give a lon"
    ):
        faces(url, face, wait_for_ready=True, handshake_timeout=0.2)
    for options in ({"handshake_timeout": 0.2}, {"wait_for_ready": True}):
        with nearcall.timeout(0.1), pytest.raises(nearcall.RpcError) as caught:
            faces(url, face, **options)
        assert "no longer than" not in caught.value.message


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_a_server_that_was_killed_comes_back_for_all(outside_url: str, face: str, faces: Callable[..., Face]) -> None:
    with ServerProcess(outside_url, services=EARLY) as first:
        url = first.url
        channel = faces(url, face, wait_for_ready=True, timeout=PATIENCE)
        left, right = channel.service(Left), channel.service(Right)
        assert channel.do(left.pid) == first.pid
        first.kill()
        with ServerProcess(url, services=LATE) as second, ThreadPoolExecutor(4) as pool:
            shouted = [pool.submit(patiently, channel.do, right.shout, "x") for _ in range(3)]
            pids = [pool.submit(patiently, channel.do, left.pid) for _ in range(3)]
            assert {one.result(PATIENCE) for one in shouted} == {"X"}
            assert {one.result(PATIENCE) for one in pids} == {second.pid}


def test_a_method_that_outlives_its_client(new_url: str) -> None:
    with nearcall.Server(Left(), Right(), new_url) as first:
        url = first.urls[0]
        channel = nearcall.Channel(url, wait_for_ready=True, timeout=PATIENCE)
        name = channel.client(Left).service.name
        gc.collect()
    with nearcall.Server(LaterRight(), Left(), url):
        assert patiently(name) == "left"
    channel.close()


def test_clients_that_were_dropped_are_forgotten(early_url: str) -> None:
    with nearcall.Channel(early_url) as channel:
        for _ in range(100):
            assert channel.client(Left).service.name() == "left"
        gc.collect()
        assert len(channel._agreements._agreements) == 0


def test_many_threads(early_url: str) -> None:
    with nearcall.Channel(early_url) as channel, ThreadPoolExecutor(8) as pool:

        def work(number: int) -> bool:
            left, right = channel.client(Left), channel.client(Right)
            said = [left.service.name() + right.service.name() for _ in range(20)]
            if number % 2:
                left.close()
            return set(said) == {"leftright"}

        assert all(pool.map(work, range(40)))
        assert channel.client(Left).service.name() == "left"


def test_a_forked_child_connects_once_for_all(outside_url: str) -> None:
    with ServerProcess(outside_url, services=EARLY) as server, nearcall.Channel(server.url) as channel:
        left, right = channel.client(Left).service, channel.client(Right).service
        look = channel.client(Introspection).service
        assert left.name() + right.name() == "leftright"
        child = os.fork()
        if child == 0:
            signal.alarm(int(PATIENCE))  # it must not outlive the test
            fine = left.name() + right.name() == "leftright"
            os._exit(0 if fine and look.read().connections == 2 else 1)
        _, status = os.waitpid(child, 0)
        assert status == 0
        assert left.name() + right.name() == "leftright"


def test_a_channel_says_what_it_is(early_url: str) -> None:
    with nearcall.Channel(early_url) as channel:
        assert repr(channel) == f"<channel to {early_url}>"
        assert channel.url == early_url
        assert channel.connected
        assert not channel.closed
        assert channel.dropped == {}
        assert channel.ping(PATIENCE) > 0
        assert channel.peer == channel.client(Left).peer
        assert [service["name"] for service in channel.description["services"]] == ["Left", "Right"]
        with channel.client(Left) as left:
            assert left.name() == "left"
        assert not channel.closed
    assert repr(channel) == f"<closed channel to {early_url}>"
    assert channel.closed


def test_a_channel_of_an_event_loop(early_url: str) -> None:
    asyncio.run(_use_in_a_loop(early_url))


async def _use_in_a_loop(early_url: str) -> None:
    channel = nearcall.aio.Channel(early_url)
    assert repr(channel) == f"<asynchronous channel to {early_url}>"
    with pytest.raises(RuntimeError, match="not connected yet"):
        channel.client(Left)
    first, second = await asyncio.gather(channel, channel)
    assert first is second is channel
    client = channel.client(Left)
    assert await client is client
    async with client as left:
        assert await left.name() == "left"
    assert client.closed
    assert not channel.closed
    async with channel:
        assert await channel.client(Right).service.name() == "right"
        assert await channel.client(Introspection).service.read()
    assert repr(channel) == f"<closed asynchronous channel to {early_url}>"


@pytest.mark.parametrize("face", FACES)
def test_what_connect_gives_closes_its_channel(early_url: str, face: str) -> None:
    if face == "threads":
        client = nearcall.connect(early_url, Left)
        with client as left:
            assert left.name() == "left"
        assert client._channel.closed
    else:

        async def use() -> None:
            client = nearcall.aio.connect(early_url, Left)
            async with client as left:
                assert await left.name() == "left"
            assert client._channel.closed

        asyncio.run(use())


@pytest.mark.parametrize("make", [nearcall.Channel, nearcall.connect, nearcall.aio.Channel, nearcall.aio.connect])
def test_an_option_that_there_is_not(make: Callable[..., Any], new_url: str) -> None:
    with pytest.raises(TypeError, match=r"there is no option 'time_out': did you mean 'timeout'\?"):
        make(new_url, time_out=1)
    with pytest.raises(TypeError, match=r"there is no option 'speed': there are timeout, spin, .*"):
        make(new_url, speed=1)


def test_nobody_is_there(new_url: str) -> None:
    for make in (nearcall.Channel, nearcall.connect):
        with pytest.raises(nearcall.Unavailable):
            make(new_url)
