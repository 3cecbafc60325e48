"""What users write, and the types it has. Both checkers must agree with every line."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import aclosing, asynccontextmanager, closing, contextmanager
from functools import partial
from typing import Any, Protocol

from typing_extensions import Unpack, assert_type

import nearcall
import nearcall.testing
from tests.typing.calculator import (
    Animals,
    AsyncCalculator,
    AsyncEar,
    AsyncListener,
    AsyncRoom,
    Calculator,
    CalculatorForThreads,
    Ear,
    Listener,
    Pages,
    Room,
)


def clients() -> None:
    client = nearcall.connect("shm://calc", Calculator)
    assert_type(client, nearcall.Client[Calculator])
    assert_type(client.service, Calculator)
    assert_type(client.ping(), float)
    assert_type(client.url, str)
    assert_type(client.closed, bool)
    assert_type(client.description, dict[str, Any])
    assert_type(client.add, Any)
    client.close()


def blocks() -> None:
    with nearcall.connect("shm://calc", Calculator) as calc:
        assert_type(calc, Calculator)
        assert_type(calc.add(1), int)
        assert_type(calc.countdown(3), Iterator[int])
        assert_type(calc.listen(), Iterator[int])
        assert_type(calc.get("x"), bytes | None)
        calc.log("line")


def published() -> None:
    with nearcall.Topic[int](max_buffer=1 << 16, when_full="drop_oldest", keep_last=True) as topic:
        assert_type(topic.publish(1), int)
        assert_type(topic.subscribe(), nearcall.Subscription[int])
        for item in topic.subscribe():
            assert_type(item, int)


def started() -> None:
    with nearcall.connect("shm://calc", Calculator) as calc:
        call = nearcall.start(calc.add, 1, b=2)
        assert_type(call, nearcall.StartedCall[int])
        assert_type(call.result(), int)
        assert_type(call.result(timeout=1.0), int)
        assert_type(call.exception(), BaseException | None)
        assert_type(call.done(), bool)
        assert_type(call.cancel(), bool)
        for ended in nearcall.as_completed([call, nearcall.start(calc.add, 2)], timeout=1):
            assert_type(ended, nearcall.StartedCall[int])


def interfaces() -> None:
    with nearcall.connect("shm://zoo", Animals) as animals:
        assert_type(animals, Animals)
        assert_type(animals.names(), list[str])


def dynamic() -> None:
    assert_type(nearcall.connect("shm://calc"), nearcall.Client[Any])
    with nearcall.connect("shm://calc", timeout=1.0, spin=0) as anything:
        assert_type(anything, Any)
        assert_type(anything.whatever(1), Any)


def streams() -> None:
    with nearcall.connect("shm://calc", CalculatorForThreads) as calc:
        with calc.countdown(3) as items:
            assert_type(items, nearcall.Stream[int])
            assert_type(next(items), int)
        with closing(calc.countdown(3)) as closed:
            assert_type(list(closed), list[int])
        all_items: Iterator[int] = calc.countdown(3)
        del all_items
        stream = calc.countdown(3)
        assert_type(sum(stream), int)
        stream.close()


async def streams_in_loops() -> None:
    async with nearcall.aio.connect("shm://calc", AsyncCalculator) as calc:
        async with calc.countdown(3) as items:
            assert_type(items, nearcall.aio.AsyncStream[int])
            async for item in items:
                assert_type(item, int)
        async with aclosing(calc.countdown(3)) as closed:
            assert_type([item async for item in closed], list[int])
        all_items: AsyncIterator[int] = calc.countdown(3)
        assert_type(await calc.total(all_items), int)
        assert_type(await calc.total(calc.countdown(3)), int)
        assert_type(await anext(calc.countdown(3)), int)
        stream = calc.countdown(3)
        await stream.aclose()


def options() -> None:
    nearcall.connect("shm://calc", Calculator, timeout=None, spin="auto", max_message_size=1, ring_size=4096)
    nearcall.serve(Calculator(), "shm://calc", "tcp://127.0.0.1:7000")


def servers() -> None:
    with nearcall.Server(Calculator(), "shm://calc", max_concurrency=3) as server:
        assert_type(server, nearcall.Server)
        assert_type(server.urls, list[str])
    assert_type(server.stop(grace=1), bool)


@nearcall.service
class Bracketed:
    @nearcall.oneway()
    def log(self, line: str) -> None: ...

    @nearcall.idempotent()
    def get(self, key: str) -> bytes | None: ...

    @nearcall.no_side_effects()
    def look(self, key: str) -> str | None: ...


def decorators() -> None:
    assert_type(Bracketed().look("x"), str | None)
    assert_type(Calculator(), Calculator)
    assert_type(Calculator().add(1, 2), int)
    assert_type(Calculator().get("x"), bytes | None)


def several_services() -> None:
    with nearcall.Channel("shm://calc", timeout=1.0, oneway="drop") as channel:
        assert_type(channel, nearcall.Channel)
        calc = channel.client(Calculator)
        assert_type(calc, nearcall.Client[Calculator])
        assert_type(calc.service.add(1), int)
        with channel.client(Animals) as animals:
            assert_type(animals, Animals)
        assert_type(channel.client(), nearcall.Client[Any])


def passes_on(**options: Unpack[nearcall.ChannelOptions]) -> nearcall.Client[Calculator]:
    return nearcall.connect("shm://calc", Calculator, **options)


def came(connection: nearcall.ServerConnection) -> None:
    assert_type(connection.session, nearcall.Session)
    assert_type(connection.peer, dict[str, Any])
    connection.session.user = 7


@nearcall.service(instance="session")
class Basket:
    def __init__(self, shop: str = "") -> None: ...
    def add(self, item: str) -> int:
        assert_type(nearcall.context().session.user, Any)
        return 1


def make_basket() -> Basket:
    return Basket("x")


def per_client() -> None:
    nearcall.Server(Basket, make_basket, partial(Basket, "x"), on_connect=came, on_disconnect=lambda gone: None)
    with nearcall.connect("shm://shop", Basket) as basket:
        assert_type(basket.add("x"), int)


def errors() -> None:
    try:
        with nearcall.timeout(0.5):
            pass
    except nearcall.NotFound as error:
        assert_type(error.code, nearcall.StatusCode)
        assert_type(error.message, str)
        assert_type(error.details, Any)
        assert_type(error.remote_traceback, str | None)
        raise nearcall.Aborted("no", details={"a": 1}) from error


def note(call: nearcall.CallInfo, proceed: nearcall.Proceed) -> Any:
    assert_type(call.method, str)
    assert_type(call.args, tuple[Any, ...])
    return proceed(call)


def send(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
    call.metadata["key"] = "value"
    call.metadata["key-bin"] = b"value"
    return proceed(call)


async def demand(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    assert_type(call.context, nearcall.Context)
    return await proceed(call)


def interceptors() -> None:
    nearcall.connect("shm://calc", Calculator, interceptors=[note, send, nearcall.auth.token("secret")])
    nearcall.aio.connect("shm://calc", Calculator, interceptors=(note, send, nearcall.auth.token("secret")))
    nearcall.Server(Calculator(), interceptors=[note, demand, nearcall.auth.token("secret")], tracebacks=True)
    nearcall.auth.token(check=lambda token: token == "secret")


def references() -> None:
    with nearcall.connect("shm://room", Room) as room:
        seat = room.join(Ear())
        assert_type(seat, Listener)
        assert_type(seat.said("hello"), None)
        nearcall.release(seat)


async def event_loops() -> None:
    async with nearcall.aio.connect("shm://calc", Calculator) as calc:
        assert_type(calc, Any)
        assert_type(await calc.add(1, 2), Any)
    channel = await nearcall.aio.Channel("shm://calc", spin=0)
    assert_type(channel, nearcall.aio.Channel)
    assert_type(channel.client(Calculator), nearcall.aio.AsyncClient)
    client = await nearcall.aio.connect("shm://calc", Calculator)
    assert_type(client, nearcall.aio.AsyncClient)
    assert_type(client.closed, bool)
    client.close()
    assert_type(await client.close(), None)
    await channel.close()


async def numbers() -> AsyncIterator[int]:
    yield 1


async def typed_event_loops() -> None:
    assert_type(nearcall.aio.connect("shm://calc", AsyncCalculator), nearcall.aio.AsyncClient[AsyncCalculator])
    async with nearcall.aio.connect("shm://calc", AsyncCalculator, timeout=1.0) as calc:
        assert_type(calc, AsyncCalculator)
        assert_type(await calc.add(1), int)
        assert_type(await calc.add(a=1, b=2), int)
        assert_type(await calc.total([1, 2]), int)
        assert_type(await calc.total(numbers()), int)
        assert_type(await calc.log("line"), None)
        async for number in calc.count(3):
            assert_type(number, int)
        assert_type([number async for number in calc.listen()], list[int])
    client = await nearcall.aio.connect("shm://calc", AsyncCalculator)
    assert_type(client.service, AsyncCalculator)
    async with nearcall.aio.Channel("shm://calc") as channel:
        assert_type(channel.client(AsyncCalculator).service, AsyncCalculator)
        assert_type(channel.client(Animals).service, Any)
    async with nearcall.aio.spawn(["calc"], AsyncCalculator, cwd="/") as calc:
        assert_type(calc, AsyncCalculator)
    async with nearcall.testing.serving(Calculator(), interface=AsyncCalculator) as calc:
        assert_type(calc, AsyncCalculator)
    async with nearcall.testing.faulty(Pages()) as (pages, proxy):
        assert_type(pages, Pages)
        assert_type(proxy, nearcall.testing.FaultyProxy)
    async with nearcall.testing.serving(Calculator()) as anything:
        assert_type(anything, Any)
    async with nearcall.aio.connect("shm://pages", Pages) as pages:
        assert_type(await pages.fetch(1), str)


async def untyped_event_loops() -> None:
    async with nearcall.aio.connect("shm://calc", CalculatorForThreads) as calc:
        assert_type(calc, Any)
    assert_type(nearcall.aio.connect("shm://calc"), nearcall.aio.AsyncClient)
    assert_type(nearcall.aio.spawn(["calc"], Calculator), nearcall.aio.AsyncChild)


async def references_in_event_loops() -> None:
    async with nearcall.aio.connect("shm://room", AsyncRoom) as room:
        seat = await room.join(AsyncEar())
        assert_type(seat, AsyncListener)
        assert_type(await seat.said("hello"), None)
        nearcall.release(seat)


def threads_of_coroutines() -> None:
    with nearcall.connect("shm://calc", CalculatorForThreads) as calc:
        assert_type(calc.add_in_loop(1, 2), int)
        assert_type(calc.total([1, 2]), int)
        assert_type(list(calc.count(3)), list[int])


class Connection:
    pass


def plain() -> Connection:
    return Connection()


def surrounds() -> Iterator[Connection]:
    yield Connection()


async def awaited() -> Connection:
    return Connection()


async def surrounds_in_loop(given: Connection = nearcall.depends(awaited)) -> AsyncIterator[Connection]:
    yield given


@contextmanager
def lifespan(server: nearcall.Server) -> Generator[Connection, None, None]:
    assert_type(server.urls, list[str])
    yield Connection()


@asynccontextmanager
async def lifespan_in_loop(server: nearcall.Server) -> AsyncGenerator[Connection, None]:
    yield Connection()


async def undecorated(server: nearcall.Server) -> AsyncIterator[Connection]:
    yield Connection()


@nearcall.service
class Depending:
    def get(self, n: int, *, c: Connection = nearcall.depends(surrounds)) -> int:
        return n

    async def get_in_loop(self, *, c: Connection = nearcall.depends(surrounds_in_loop)) -> int:
        return 1


def dependencies() -> None:
    assert_type(nearcall.depends(plain), Connection)
    assert_type(nearcall.depends(surrounds), Connection)
    assert_type(nearcall.depends(awaited), Connection)
    assert_type(nearcall.depends(surrounds_in_loop), Connection)
    assert_type(nearcall.depends(lifespan), Connection)
    assert_type(nearcall.depends(lifespan_in_loop), Connection)
    assert_type(nearcall.depends(undecorated), Connection)
    assert_type(nearcall.depends(Connection), Connection)
    with nearcall.connect("shm://x", Depending) as depending:
        assert_type(depending.get(1), int)


def no_connection(error: KeyError) -> Exception:
    return nearcall.NotFound(str(error))


def around_servers() -> None:
    nearcall.Server(Depending(), lifespan=lifespan, overrides={surrounds: plain})
    nearcall.Server(Depending(), lifespan=lifespan_in_loop, error_handlers={KeyError: no_connection})
    nearcall.Server(Depending(), lifespan=undecorated, error_handlers={LookupError: lambda error: error})


def classes_of_which_nothing_is_known(some: type[Any], other: Callable[..., Any]) -> None:
    with nearcall.connect("shm://calc", some) as service:
        service.add(1, 2)
    with nearcall.Channel("shm://calc") as channel:
        channel.client(other).service.add(1, 2)
    nearcall.spawn(["calc"], some).service.add(1, 2)


@nearcall.service
class Shelf:
    def __len__(self) -> int:
        return 1

    def __getitem__(self, title: str) -> int:
        return 1

    def __iter__(self) -> Iterator[str]:
        yield ""

    def __call__(self, by: int) -> float:
        return by / 2

    def __enter__(self) -> Shelf:
        return self

    def __exit__(self, *error: object) -> None: ...


@nearcall.service(name="Shelf")
class AsyncShelf(nearcall.aio.Interface, Protocol):
    async def __len__(self) -> int: ...
    async def __getitem__(self, title: str) -> int: ...
    def __aiter__(self) -> AsyncIterator[str]: ...
    async def __call__(self, by: int) -> float: ...
    async def __aenter__(self) -> AsyncShelf: ...
    async def __aexit__(self, *error: object) -> None: ...


def what_python_calls() -> None:
    with nearcall.connect("shm://x", Shelf) as shelf, shelf as same:
        assert_type(same, Shelf)
        assert_type(len(same), int)
        assert_type(same["Emma"], int)
        assert_type(same(3), float)
        assert_type(list(same), list[str])


async def what_python_calls_in_loops() -> None:
    async with nearcall.aio.connect("shm://x", AsyncShelf) as shelf, shelf as same:
        assert_type(same, AsyncShelf)
        assert_type(await same.__len__(), int)
        assert_type(await same["Emma"], int)
        assert_type(await same(3), float)
        assert_type([title async for title in same], list[str])


def told(call: nearcall.StartedCall[int]) -> None:
    assert_type(call.result(), int)


def callbacks_of_started_calls(call: nearcall.StartedCall[int]) -> None:
    call.add_done_callback(told)
