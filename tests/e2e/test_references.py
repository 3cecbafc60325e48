"""Objects passed by reference, both ways, over every transport, from threads and from an event loop."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .conftest import IN_PROCESS, TRANSPORTS
from .process import ServerProcess
from .reference_services import Counter, Ear, Hub, Listener, Team, in_loop, in_threads

PATIENCE = 30.0
KINDS: dict[str, Callable[[], list[object]]] = {"threads": in_threads, "loop": in_loop}


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Where the server's methods run."""
    return str(request.param)


@pytest.fixture(scope="module")
def hubs(runtime_dir: Path) -> Iterator[Callable[[str, str], str]]:
    """Where a hub is, for each transport and kind: started when the first test needs it."""
    urls: dict[tuple[str, str], str] = {}
    with ExitStack() as stack:

        def start(transport: str, kind: str) -> str:
            if (transport, kind) not in urls:
                group = [name for name in TRANSPORTS if (name in IN_PROCESS) == (transport in IN_PROCESS)]
                asked = [TRANSPORTS[name](f"r{os.getpid()}-{kind}", runtime_dir) for name in group]
                server: ServerProcess | nearcall.Server
                if transport in IN_PROCESS:
                    server = stack.enter_context(nearcall.Server(*KINDS[kind](), *asked))
                else:
                    services = f"tests.e2e.reference_services:in_{kind}"
                    server = stack.enter_context(ServerProcess(*asked, services=services))
                urls.update({(name, kind): url for name, url in zip(group, server.urls, strict=True)})
            return urls[transport, kind]

        yield start


@pytest.fixture
def hub_url(hubs: Callable[[str, str], str], transport: str, kind: str) -> str:
    return hubs(transport, kind)


@pytest.fixture
def hub(hub_url: str) -> Iterator[Hub]:
    with nearcall.connect(hub_url, Hub) as hub:
        hub.forget_counters()
        yield hub


def until(condition: Callable[[], bool]) -> None:
    """Waits for something that comes about by itself."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.002)


class TestFromTheServer:
    def test_an_object_is_called_where_it_is(self, hub: Hub) -> None:
        counter = hub.counter(5)
        assert isinstance(counter, Counter)
        assert counter.add(2) == 7
        assert counter.add(n=1) == 8
        assert counter.pid() == hub.pid()
        assert list(counter.count_to(11)) == [8, 9, 10]

    def test_each_object_is_itself(self, hub: Hub) -> None:
        one, two = hub.counter(1), hub.counter(2)
        assert one is not two
        assert (one.add(10), two.add(10), one.add(0)) == (11, 12, 11)
        assert hub.again(0) is one
        assert hub.again(7) is None

    def test_an_object_gives_others(self, hub: Hub) -> None:
        assert hub.counter(1).next_one().next_one().add(0) == 3

    def test_a_method_keeps_its_object(self, hub: Hub) -> None:
        add = hub.counter(1).add
        hub.forget_counters()
        gc.collect()
        assert [add(1) for _ in range(20)] == list(range(2, 22))

    def test_one_way(self, hub: Hub) -> None:
        counter = hub.counter()
        counter.note(3)
        until(lambda: counter.add(0) == 3)

    def test_within_values(self, hub: Hub) -> None:
        pair = hub.pair()
        assert pair.right is not None
        assert (pair.left.add(0), pair.right.add(0)) == (1, 2)
        assert hub.pair(alone=True).right is None
        named = hub.named(["a", "bcd"])
        assert {name: entry["counter"].add(0) for name, entry in named.items()} == {"a": 1, "bcd": 3}

    def test_streams_of_objects(self, hub: Hub) -> None:
        counters = list(hub.counters(4))
        assert [counter.add(1) for counter in counters] == [1, 2, 3, 4]
        assert hub.sum_of(iter(counters)) == 10

    def test_home_again(self, hub: Hub) -> None:
        counters = [hub.counter(number) for number in range(3)]
        assert [hub.is_that(counter, number) for number, counter in enumerate(counters)] == [True] * 3
        assert not hub.is_that(counters[0], 1)
        assert hub.add_to(counters[2], 5) == 7

    def test_an_object_ends_when_nothing_refers_to_it(self, hub: Hub) -> None:
        before = hub.ended()
        first, second, third = (hub.counter(number) for number in range(3))
        assert hub.again(0) is first  # counted twice
        del first
        until(lambda: hub.ended() == before + 1)
        nearcall.release(second)
        until(lambda: hub.ended() == before + 2)
        assert third.add(1) == 3
        with pytest.raises(nearcall.FailedPrecondition, match=r"Counter.add\(\): the reference was released"):
            second.add(1)

    def test_an_object_ends_with_the_connection(self, hub: Hub, hub_url: str) -> None:
        before = hub.ended()
        with nearcall.connect(hub_url, Hub) as other:
            kept = [other.counter(number) for number in range(5)]
        until(lambda: hub.ended() == before + 5)
        with pytest.raises((nearcall.Unavailable, nearcall.Cancelled)):
            kept[0].add(1)

    def test_an_object_belongs_to_its_connection(self, hub: Hub, hub_url: str) -> None:
        counter = hub.counter(3)
        with nearcall.connect(hub_url, Hub) as other:
            # Passed on over another connection it is an object of this process, which passes its calls on.
            assert other.add_to(counter, 4) == 7
            assert not other.is_that(counter, 0)
        assert counter.add(0) == 7

    def test_what_a_reference_looks_like(self, hub: Hub, hub_url: str) -> None:
        counter = hub.counter()
        assert repr(counter) == f"<reference to a Counter at {hub_url}>"
        assert counter == counter
        assert counter != hub.counter()
        assert "add" in dir(counter)
        with pytest.raises(TypeError, match="cannot be pickled"):
            pickle.dumps(counter)
        with pytest.raises(AttributeError, match="did you mean 'add'"):
            counter.addd(1)  # type: ignore[attr-defined]

    def test_many_threads(self, hub: Hub) -> None:
        counter = hub.counter()

        def use(number: int) -> int:
            own = hub.counter(number)
            return sum(counter.add(1) - counter.add(-1) + own.add(1) for _ in range(20))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(use, range(16)))
        assert counter.add(0) == 0


class TestFromTheClient:
    def test_the_server_calls_while_its_caller_waits(self, hub: Hub) -> None:
        ear = Ear()
        assert hub.tell(ear, "hello") == 5
        assert ear.heard == ["hello"]

    def test_within_values(self, hub: Hub) -> None:
        ears = [Ear() for _ in range(3)]
        assert hub.tell_all(Team("red", ears[0], [ears[1], ears[2], ears[1]]), "go") == [7] * 4
        assert [len(ear.heard) for ear in ears] == [1, 2, 1]
        assert hub.maybe() == -1
        assert hub.maybe(None) == -1
        assert hub.maybe(ears[0]) == 5

    def test_identity(self, hub: Hub) -> None:
        ear = Ear()
        assert hub.echo(ear) is ear
        assert hub.keep(ear) == hub.keep(ear)
        assert list(hub.echoes(iter([ear, Ear(), ear])))[::2] == [ear, ear]
        hub.forget()

    def test_after_the_call(self, hub: Hub) -> None:
        ear = Ear()
        hub.keep(ear)
        assert hub.tell_kept("later") == 5
        hub.note_kept("noted")
        assert ear.noted_all.acquire(timeout=PATIENCE)
        assert ear.heard == ["later", "noted"]
        hub.forget()

    def test_streams(self, hub: Hub) -> None:
        ear = Ear()
        assert hub.numbers_of(ear, 300) == list(range(300))
        assert hub.total_of(ear, list(range(300))) == sum(range(300))
        assert hub.each_of(ear, list(range(300))) == list(range(10, 310))

    def test_errors_arrive_as_themselves(self, hub: Hub) -> None:
        assert hub.fail_in(Ear(), "no such seat") == "NOT_FOUND: no such seat"

    def test_the_deadline_is_inherited(self, hub: Hub) -> None:
        ear = Ear()
        with nearcall.timeout(PATIENCE):
            hub.tell(ear, "x")
        hub.tell(ear, "y")
        assert ear.left[0] is not None
        assert 0 < ear.left[0] <= PATIENCE
        assert ear.left[1] is None

    def test_a_callback_that_is_too_slow(self, hub: Hub) -> None:
        going = threading.Event()

        class Slow(Ear):
            def said(self, text: str) -> int:
                going.wait(PATIENCE)
                return 0

        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(0.2):
            hub.tell(Slow(), "x")
        going.set()
        assert hub.tell(Ear(), "again") == 5

    def test_calls_during_calls_during_calls(self, hub: Hub) -> None:
        class Deep(Ear):
            def said(self, text: str) -> int:
                left = int(text)
                return 0 if left == 0 else 1 + hub.tell(self, str(left - 1))

        assert hub.tell(Deep(), "12") == 12

    def test_many_threads(self, hub: Hub) -> None:
        ears = [Ear() for _ in range(8)]

        def use(ear: Ear) -> None:
            for number in range(25):
                assert hub.tell(ear, str(number)) == len(str(number))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(use, ears))
        assert [len(ear.heard) for ear in ears] == [25] * 8

    def test_an_object_ends_when_the_server_lets_go_of_it(self, hub: Hub) -> None:
        ended = threading.Semaphore(0)

        class Closing(Ear):
            def close(self) -> None:
                ended.release()

        hub.keep(Closing())
        assert hub.tell_kept("x") == 1
        hub.forget()
        assert ended.acquire(timeout=PATIENCE)

    def test_an_object_ends_with_the_connection(self, hub_url: str) -> None:
        ended = threading.Semaphore(0)

        class Closing(Ear):
            def close(self) -> None:
                ended.release()

        with nearcall.connect(hub_url, Hub) as hub:
            hub.keep(Closing())
        assert ended.acquire(timeout=PATIENCE)

    def test_nothing_is_kept(self, hub: Hub) -> None:
        ears = [Ear() for _ in range(20)]
        known = [weakref.ref(ear) for ear in ears]
        for ear in ears:
            hub.tell(ear, "x")
        del ears, ear

        def all_gone() -> bool:
            gc.collect()
            hub.maybe()  # what the server lets go of may travel with a reply
            return all(each() is None for each in known)

        until(all_gone)

    def test_what_is_no_listener(self, hub: Hub) -> None:
        with pytest.raises(
            nearcall.InvalidArgument, match=r"Hub.tell\(\): argument 'listener' cannot be sent: expected"
        ):
            hub.tell(7, "x")  # type: ignore[arg-type]
        with pytest.raises(nearcall.InvalidArgument, match="of the service Listener, got one of the service Counter"):
            hub.tell(hub.counter(), "x")  # type: ignore[arg-type]


def test_passing_on_a_client(hub: Hub, kind: str) -> None:
    heard: list[str] = []

    class Here(Ear):
        def said(self, text: str) -> int:
            heard.append(text)
            return 7

    # This process serves a listener as well, and passes its own client of it on.
    with nearcall.Server(Here(), f"inproc://here-{kind}"), nearcall.connect(f"inproc://here-{kind}", Listener) as here:
        assert isinstance(here, Ear) is False
        assert hub.tell(here, "through") == 7
        assert hub.echo(here) is here
        assert heard == ["through"]
    with pytest.raises(nearcall.InvalidArgument, match="of the service Listener, got one of the service Hub"):
        hub.tell(hub, "x")  # type: ignore[arg-type]


async def _use_in_a_loop(url: str, interceptor: Any) -> None:
    async with nearcall.aio.connect(url, Hub, interceptors=[interceptor]) as hub:
        assert await (await hub.counter(1)).add(2) == 3


def test_nothing_is_kept_of_a_client_that_has_received_an_object(hub_url: str) -> None:
    """Its interceptors go with the last that knows them: what calls the objects."""
    known = []
    for loops in (False, True):

        def watch(call: nearcall.ClientCall, proceed: Callable[..., Any]) -> Any:
            return proceed(call)

        known.append(weakref.ref(watch))
        if loops:
            asyncio.run(_use_in_a_loop(hub_url, watch))
        else:
            with nearcall.connect(hub_url, Hub, interceptors=[watch]) as hub:
                assert hub.counter(1).add(2) == 3
            del hub
        del watch

    def all_gone() -> bool:
        gc.collect()
        return all(each() is None for each in known)

    until(all_gone)


def test_forwarded_through_a_third_process(hubs: Callable[[str, str], str], transport: str, kind: str) -> None:
    """What one server gives is passed to another one, and called through this process, both ways."""
    other_kind = "loop" if kind == "threads" else "threads"
    with (
        nearcall.connect(hubs(transport, kind), Hub) as first,
        nearcall.connect(hubs("unix", other_kind), Hub) as second,
    ):
        first.forget_counters()
        counter = first.counter(5)
        assert second.add_to(counter, 2) == 7
        assert counter.add(0) == 7
        ear = Ear()
        assert second.echo(ear) is ear
        assert first.sum_of(iter([counter, second.counter(3)])) == 10


@pytest.mark.slow
def test_after_a_reconnect_a_reference_is_unavailable(outside_url: str, kind: str) -> None:
    services = f"tests.e2e.reference_services:in_{kind}"
    with ServerProcess(outside_url, services=services) as server:
        url = server.url
        hub = nearcall.connect(url, Hub, wait_for_ready=True)
        counter = hub.service.counter(1)
        ear = Ear()
        hub.service.keep(ear)
        server.kill()
    with pytest.raises(nearcall.Unavailable):
        counter.add(1)
    with ServerProcess(url, services=services):
        assert hub.service.counter(3).add(0) == 3
        with pytest.raises(nearcall.Unavailable):
            counter.add(1)
        assert hub.service.tell(ear, "back") == 4
        # On the new connection it is an object of this process that passes its calls on: to nowhere.
        with pytest.raises(nearcall.Unavailable):
            hub.service.add_to(counter, 1)
    hub.close()


@pytest.mark.slow
def test_a_server_that_dies_in_a_callback(outside_url: str, kind: str) -> None:
    services = f"tests.e2e.reference_services:in_{kind}"
    with ServerProcess(outside_url, services=services) as server:
        hub = nearcall.connect(server.url, Hub)
        killed = threading.Event()

        class Killer(Ear):
            def said(self, text: str) -> int:
                server.kill()
                killed.set()
                return 0

        with pytest.raises(nearcall.Unavailable):
            hub.service.tell(Killer(), "x")
        assert killed.wait(PATIENCE)
        hub.close()
    # The next server clears up behind the dead one.
    with ServerProcess(server.url, services=services) as server, nearcall.connect(server.url, Hub) as again:
        assert again.tell(Ear(), "again") == 5


def test_more_than_may_be_passed(outside_url: str, kind: str) -> None:
    services = f"tests.e2e.reference_services:in_{kind}"
    few = ServerProcess(outside_url, services=services, max_references=3)
    with few as server, nearcall.connect(server.url, Hub) as hub:
        kept = [hub.counter(number) for number in range(3)]
        with pytest.raises(nearcall.ResourceExhausted, match="max_references"):
            hub.counter(3)
        with pytest.raises(nearcall.ResourceExhausted, match="max_references"):
            hub.pair()
        assert hub.again(0) is kept[0]
        nearcall.release(kept.pop())
        assert hub.counter(4).add(0) == 4


class AsyncEar(Ear):
    """A client's object, for an event loop."""

    async def said(self, text: str) -> int:  # type: ignore[override]
        self.heard.append(text)
        self.left.append(nearcall.context().time_left)
        await asyncio.sleep(0)
        return len(text)

    async def noted(self, text: str) -> None:  # type: ignore[override]
        self.heard.append(text)
        self.noted_all.release()

    async def numbers(self, n: int) -> AsyncIterator[int]:  # type: ignore[override]
        for number in range(n):
            yield number

    async def total(self, xs: AsyncIterator[int]) -> int:  # type: ignore[override]
        return sum([x async for x in xs])

    async def each(self, xs: AsyncIterator[int], *, plus: int = 0) -> AsyncIterator[int]:  # type: ignore[override]
        async for x in xs:
            yield x + plus

    async def fail(self, why: str) -> None:  # type: ignore[override]
        raise nearcall.NotFound(why)


@pytest.fixture(params=[Ear, AsyncEar])
def make_ear(request: pytest.FixtureRequest) -> type[Ear]:
    return request.param  # type: ignore[no-any-return]


class TestAsyncio:
    def test_from_the_server(self, hub_url: str) -> None:
        async def main() -> None:
            async with nearcall.aio.connect(hub_url, Hub) as hub:
                await hub.forget_counters()
                counter = await hub.counter(5)
                assert await counter.add(2) == 7
                assert [n async for n in counter.count_to(10)] == [7, 8, 9]
                assert await hub.again(0) is counter
                assert await (await counter.next_one()).add(0) == 8
                assert await hub.is_that(counter, 0)
                await counter.note(1)
                assert await counter.add(0) == 8
                assert await asyncio.gather(*(counter.add(1) for _ in range(20)))
                counters = [each async for each in hub.counters(3)]
                assert await hub.sum_of(counters) == 3
                before = await hub.ended()
                nearcall.release(counter)
                while await hub.ended() == before:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
                with pytest.raises(nearcall.FailedPrecondition):
                    await counter.add(1)

        asyncio.run(main())

    def test_from_the_client(self, hub_url: str, make_ear: type[Ear]) -> None:
        async def main() -> None:
            async with nearcall.aio.connect(hub_url, Hub) as hub:
                ear = make_ear()
                assert await hub.tell(ear, "hello") == 5
                assert await hub.echo(ear) is ear
                assert await hub.tell_all(Team("red", ear, [ear]), "go") == [7, 7]
                assert await hub.numbers_of(ear, 100) == list(range(100))
                assert await hub.total_of(ear, [1, 2, 3]) == 6
                assert await hub.each_of(ear, [1, 2]) == [11, 12]
                assert await hub.fail_in(ear, "no") == "NOT_FOUND: no"
                await hub.keep(ear)
                assert await hub.tell_kept("later") == 5
                await hub.forget()
                assert await asyncio.gather(*(hub.tell(ear, "x" * n) for n in range(20))) == list(range(20))

        asyncio.run(main())

    def test_a_first_call_that_has_to_wait_for_room(self, hub_url: str) -> None:
        """It waits before the worker that receives for the connection has taken that on."""

        async def main() -> None:
            async with nearcall.aio.connect(hub_url, Hub) as hub:
                text = "x" * 20_000_000
                assert await asyncio.wait_for(hub.tell(AsyncEar(), text), PATIENCE) == len(text)

        asyncio.run(main())

    def test_forwarded_through_a_third_process(
        self, hubs: Callable[[str, str], str], transport: str, kind: str
    ) -> None:
        other = "loop" if kind == "threads" else "threads"

        async def main() -> None:
            async with (
                nearcall.aio.connect(hubs(transport, kind), Hub) as first,
                nearcall.aio.connect(hubs("unix", other), Hub) as second,
            ):
                await first.forget_counters()
                counter = await first.counter(5)
                assert await second.add_to(counter, 2) == 7
                assert await counter.add(0) == 7
                assert await first.sum_of([counter, await second.counter(3)]) == 10

        asyncio.run(main())

    def test_an_asynchronous_object_of_a_client_for_threads(self, hub: Hub) -> None:
        ear = AsyncEar()
        assert hub.tell(ear, "hello") == 5
        assert hub.numbers_of(ear, 10) == list(range(10))

    def test_the_deadline_is_inherited(self, hub_url: str) -> None:
        async def main() -> None:
            async with nearcall.aio.connect(hub_url, Hub) as hub:
                ear = AsyncEar()
                with nearcall.timeout(PATIENCE):
                    await hub.tell(ear, "x")
                assert ear.left[0] is not None
                assert 0 < ear.left[0] <= PATIENCE

        asyncio.run(main())


class TestWithoutTheClass:
    def test_objects_of_the_server(self, hub_url: str) -> None:
        with nearcall.connect(hub_url) as hub:
            hub.forget_counters()
            counter = hub.counter(5)
            assert repr(counter) == f"<reference to a Counter at {hub_url}>"
            assert counter.add(2) == 7
            assert list(counter.count_to(9)) == [7, 8]
            assert hub.again(0) is counter
            assert hub.again(5) is None
            assert hub.is_that(counter, 0)
            assert counter.next_one().add(0) == 8
            pair = hub.pair()
            assert (pair["left"].add(0), pair["right"].add(0)) == (1, 2)
            assert hub.pair(alone=True)["right"] is None
            assert hub.named(["ab"])["ab"]["counter"].add(0) == 2
            assert [each.add(0) for each in hub.counters(3)] == [0, 1, 2]

    def test_objects_of_the_client(self, hub_url: str) -> None:
        class Alike:
            """Of no service, but with its methods."""

            def __init__(self) -> None:
                self.heard: list[str] = []

            def said(self, text: str) -> int:
                self.heard.append(text)
                return len(text)

            def noted(self, text: str) -> None: ...

            def numbers(self, n: int) -> Iterator[int]:
                yield from range(n)

            def total(self, xs: Iterator[int]) -> int:
                return sum(xs)

            async def each(self, xs: AsyncIterator[int], *, plus: int = 0) -> AsyncIterator[int]:
                async for x in xs:
                    yield x + plus

            def fail(self, why: str) -> None:
                raise nearcall.NotFound(why)

        with nearcall.connect(hub_url) as hub:
            for ear in (Alike(), Ear()):
                assert hub.tell(ear, "hello") == 5
                assert ear.heard == ["hello"]
                assert hub.echo(ear) is ear
                assert hub.tell_all({"name": "red", "lead": ear, "others": [ear]}, "go") == [7, 7]
                assert hub.numbers_of(ear, 5) == [0, 1, 2, 3, 4]
                assert hub.total_of(ear, [1, 2]) == 3
                assert hub.each_of(ear, [1, 2]) == [11, 12]
                assert hub.fail_in(ear, "no") == "NOT_FOUND: no"
            with pytest.raises(nearcall.InvalidArgument, match="has no method 'said'"):
                hub.tell(object(), "x")
