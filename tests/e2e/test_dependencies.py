"""What handlers depend on, and what becomes of their exceptions: threads and coroutines, over every transport."""

from __future__ import annotations

import asyncio
import gc
import queue
import threading
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

import nearcall
from nearcall.service.service import plan_of

from .conftest import TRANSPORTS

SECONDS = 10.0
SCHEMES = [*TRANSPORTS, "grpc"]

events: queue.SimpleQueue[str] = queue.SimpleQueue()
"""What providers have done. Each test takes out what it has caused."""


class Full(Exception):
    pass


class NotThere(LookupError):
    pass


def noted(count: int) -> list[str]:
    return [events.get(timeout=SECONDS) for _ in range(count)]


def caller() -> str:
    """A provider that asks about the call."""
    return str(nearcall.context().metadata.get("user", "nobody"))


def transaction() -> Iterator[str]:
    events.put("begin")
    try:
        yield "transaction"
    except BaseException as error:
        events.put(f"rollback {type(error).__name__}")
        raise
    events.put("commit")


def twice(first: str = nearcall.depends(transaction), second: str = nearcall.depends(transaction)) -> bool:
    return first is second


async def connection(user: str = nearcall.depends(caller)) -> AsyncIterator[str]:
    await asyncio.sleep(0)
    try:
        yield f"connection of {user}"
    finally:
        await asyncio.sleep(0)
        events.put("closed")


async def number() -> int:
    await asyncio.sleep(0)
    return 7


def swallows() -> Iterator[None]:
    try:
        yield
    except Exception:
        events.put("swallowed")


def refuses() -> Iterator[None]:
    yield
    raise nearcall.Aborted("the commit has failed")


class Pages:
    """Not a function, and a provider all the same."""

    def __init__(self, size: int = 10) -> None:
        self.size = size


@nearcall.service
class Printer:
    """An object that is passed."""

    def show(self, *, user: str = nearcall.depends(caller), done: str = nearcall.depends(transaction)) -> str:
        return f"{user} {done}"


@nearcall.service(errors=[Full])
class Shop:
    def order(
        self, item: str, count: int = 1, *, by: str = nearcall.depends(caller), t: str = nearcall.depends(transaction)
    ) -> str:
        if item == "broken":
            raise KeyError(item)
        return f"{count} {item} for {by} in a {t}"

    async def order_in_loop(
        self, item: str, *, c: str = nearcall.depends(connection), n: int = nearcall.depends(number)
    ) -> str:
        if item == "broken":
            raise KeyError(item)
        return f"{n} {item} over {c}"

    def items(self, count: int, t: str = nearcall.depends(transaction)) -> Iterator[str]:
        for at in range(count):
            yield f"{t} {at}"

    async def items_in_loop(self, count: int, *, c: str = nearcall.depends(connection)) -> AsyncIterator[str]:
        for at in range(count):
            yield f"{c} {at}"

    def total(self, numbers: Iterator[int], *, t: str = nearcall.depends(transaction)) -> int:
        return sum(numbers)

    async def both(self, numbers: AsyncIterator[int], *, n: int = nearcall.depends(number)) -> AsyncIterator[int]:
        async for each in numbers:
            yield each * n

    @nearcall.oneway
    def note(self, line: str, *, t: str = nearcall.depends(transaction)) -> None:
        events.put(line)

    def once(self, *, same: bool = nearcall.depends(twice)) -> bool:
        return same

    def swallowed(self, *, outer: str = nearcall.depends(transaction), inner: None = nearcall.depends(swallows)) -> int:
        raise KeyError("still there")

    def refused(self, *, nothing: None = nearcall.depends(refuses)) -> int:
        return 1

    def size(self, *, pages: Pages = nearcall.depends(Pages)) -> int:
        return pages.size

    def fail(self, how: str) -> None:
        if how == "lookup":
            raise NotThere("no such thing")
        if how == "os":
            raise OSError("a disk")
        if how == "value":
            raise ValueError("a value")
        if how == "type":
            raise TypeError("a type")
        if how == "full":
            raise nearcall.ResourceExhausted("it is full")
        raise Full("as ever")

    async def fail_in_loop(self, how: str) -> None:
        self.fail(how)

    def fail_later(self, how: str) -> Iterator[int]:
        yield 1
        self.fail(how)

    async def fail_later_in_loop(self, how: str) -> AsyncIterator[int]:
        yield 1
        self.fail(how)


@nearcall.service(instance="session")
class Basket:
    def __init__(self) -> None:
        self.items: list[str] = []

    def add(self, item: str, *, user: str = nearcall.depends(caller)) -> str:
        self.items.append(item)
        return f"{len(self.items)} of {user}"


@nearcall.service
class Desk:
    """Passes objects; nearcall's own transports only."""

    def printer(self) -> Printer:
        return Printer()

    def ask(self, printer: Printer) -> str:
        return printer.show()


def no_such(error: LookupError) -> Exception:
    return nearcall.NotFound(f"nothing: {error}", details=[1])


def raises(error: OSError) -> Exception:
    raise nearcall.Unavailable("try again") from error


HANDLERS: dict[type[Exception], Callable[[Any], Exception]] = {
    LookupError: no_such,
    OSError: raises,
    ValueError: lambda error: cast(Exception, f"no exception, {error}"),
    nearcall.ResourceExhausted: lambda error: Full(error.message),
}


@pytest.fixture(scope="module")
def shop_urls(runtime_dir: Path, certificates: Path) -> Iterator[dict[str, str]]:
    """The URLs of one server, by scheme."""
    tls = nearcall.TLS(cert=f"{certificates}/server.pem", key=f"{certificates}/server.key")
    asked = {name: make("dependencies", runtime_dir) for name, make in TRANSPORTS.items()}
    with ExitStack() as stack:
        serving = nearcall.Server(Shop(), Desk(), *asked.values(), tls=tls, error_handlers=HANDLERS)
        urls = dict(zip(asked, stack.enter_context(serving).urls, strict=True))
        grpc = stack.enter_context(nearcall.Server(Shop(), "grpc://127.0.0.1:0", error_handlers=HANDLERS))
        yield urls | {"grpc": grpc.urls[0]}


@pytest.fixture
def trust(certificates: Path) -> Callable[[str], dict[str, Any]]:
    return lambda url: {"tls": nearcall.TLS(ca=f"{certificates}/ca.pem")} if url.startswith("tls:") else {}


@pytest.fixture(params=SCHEMES)
def shop(request: pytest.FixtureRequest, shop_urls: dict[str, str], trust: Any) -> Iterator[Shop]:
    url = shop_urls[request.param]
    with nearcall.connect(url, Shop, **trust(url)) as client:
        yield client
    assert events.empty()


@pytest.fixture(params=TRANSPORTS)
def desk(request: pytest.FixtureRequest, shop_urls: dict[str, str], trust: Any) -> Iterator[Desk]:
    url = shop_urls[request.param]
    with nearcall.connect(url, Desk, **trust(url)) as client:
        yield client
    assert events.empty()


def test_a_call(shop: Shop) -> None:
    with nearcall.metadata({"user": "ada"}):
        assert shop.order("pens", 3) == "3 pens for ada in a transaction"
    assert shop.order("pens", count=2) == "2 pens for nobody in a transaction"
    assert noted(4) == ["begin", "commit"] * 2


def test_a_coroutine(shop: Shop) -> None:
    with nearcall.metadata({"user": "ada"}):
        assert shop.order_in_loop("pens") == "7 pens over connection of ada"
    assert noted(1) == ["closed"]


def test_streams(shop: Shop) -> None:
    assert list(shop.items(2)) == ["transaction 0", "transaction 1"]
    assert noted(2) == ["begin", "commit"]
    assert list(shop.items_in_loop(1)) == ["connection of nobody 0"]  # type: ignore[call-overload]
    assert noted(1) == ["closed"]
    assert shop.total(iter([1, 2, 3])) == 6
    assert noted(2) == ["begin", "commit"]
    assert list(shop.both(cast("AsyncIterator[int]", iter([1, 2])))) == [7, 14]  # type: ignore[call-overload]


def test_a_stream_that_is_left_early(shop: Shop) -> None:
    items = shop.items(1_000_000)
    assert next(items) == "transaction 0"
    cast(Any, items).close()
    assert noted(2) == ["begin", "rollback GeneratorExit"]
    items = cast("Iterator[str]", shop.items_in_loop(1_000_000))
    assert next(items) == "connection of nobody 0"
    cast(Any, items).close()
    assert noted(1) == ["closed"]


def test_what_closes_is_not_cancelled_again(shop_urls: dict[str, str]) -> None:
    """The end of a stream that its client leaves may come to the loop in two ways, one of them in the midst of that."""
    with nearcall.connect(shop_urls["inproc"], Shop) as shop:
        for _ in range(300):
            items = cast("Iterator[str]", shop.items_in_loop(1_000_000))
            next(items)
            cast(Any, items).close()
            assert noted(1) == ["closed"]


def test_one_way(shop: Shop) -> None:
    shop.note("a line")
    assert noted(3) == ["begin", "a line", "commit"]


def test_a_provider_is_asked_once_for_a_call(shop: Shop) -> None:
    assert shop.once() is True
    assert noted(2) == ["begin", "commit"]


def test_an_exception_reaches_the_providers_and_the_caller(shop: Shop) -> None:
    with pytest.raises(nearcall.NotFound, match="broken"):
        shop.order("broken")
    assert noted(2) == ["begin", "rollback KeyError"]
    with pytest.raises(nearcall.NotFound, match="broken"):
        shop.order_in_loop("broken")
    assert noted(1) == ["closed"]


def test_a_provider_cannot_swallow_it(shop: Shop) -> None:
    with pytest.raises(nearcall.NotFound, match="still there"):
        shop.swallowed()
    assert noted(3) == ["begin", "swallowed", "rollback KeyError"]


def test_what_fails_after_the_handler_is_the_calls_error(shop: Shop) -> None:
    with pytest.raises(nearcall.Aborted, match="the commit has failed"):
        shop.refused()


def test_a_class_is_a_provider(shop: Shop) -> None:
    assert shop.size() == 10


def test_callers_cannot_give_them(shop: Shop) -> None:
    wrong: Any = shop
    with pytest.raises(nearcall.InvalidArgument, match=r"unexpected argument 't'; it is order\(item: str, count: int"):
        wrong.order("pens", t="mine")
    with pytest.raises(nearcall.InvalidArgument, match="takes 2 positional arguments, got 3"):
        wrong.order("pens", 1, "mine")


def test_objects_that_are_passed(desk: Desk) -> None:
    """To the client, and to the server: each fills in what its own objects depend on."""
    with nearcall.metadata({"user": "ada"}):
        printer = desk.printer()
        assert printer.show() == "ada transaction"
    assert noted(2) == ["begin", "commit"]
    assert desk.ask(Printer()) == "nobody transaction"
    assert noted(2) == ["begin", "commit"]
    # Back where it is, it is the object itself, and whoever calls its method calls it as any other.
    assert desk.ask(printer) == "nearcall.depends(caller) nearcall.depends(transaction)"


def test_an_object_for_each_client(key: str) -> None:
    with (
        nearcall.Server(Basket, f"inproc://{key}") as server,
        nearcall.connect(server.urls[0], Basket) as basket,
        nearcall.metadata({"user": "ada"}),
    ):
        assert [basket.add("pen"), basket.add("ink")] == ["1 of ada", "2 of ada"]


def test_asyncio(shop_urls: dict[str, str]) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(shop_urls["shm"], Shop) as shop:
            assert await shop.order("pens") == "1 pens for nobody in a transaction"
            with pytest.raises(nearcall.NotFound, match="no such thing"):
                await shop.fail_in_loop("lookup")

    asyncio.run(main())
    assert noted(2) == ["begin", "commit"]


@pytest.mark.parametrize("method", ["fail", "fail_in_loop", "fail_later", "fail_later_in_loop"])
def test_error_handlers(shop: Shop, method: str) -> None:
    def fail(how: str) -> Any:
        result = getattr(shop, method)(how)
        return list(result) if "later" in method else result

    with pytest.raises(nearcall.NotFound) as caught:
        fail("lookup")  # of a subclass
    assert (str(caught.value), caught.value.details) == ("nothing: no such thing", [1])
    with pytest.raises(nearcall.Unavailable, match="try again"):
        fail("os")
    with pytest.raises(nearcall.Unknown, match="TypeError: a type"):
        fail("type")
    with pytest.raises(nearcall.Unknown, match="error handler <lambda> must return the exception to send, not str"):
        fail("value")
    with pytest.raises((Full, nearcall.Unknown), match="it is full"):  # gRPC does not carry declared exceptions
        fail("full")


def test_errors_of_a_handler_keep_nothing_alive(key: str) -> None:
    gone: list[weakref.ref[Exception]] = []

    def again(error: Full) -> Exception:
        gone.append(weakref.ref(error))
        raise nearcall.NotFound("x") from error

    with nearcall.Server(Shop(), f"inproc://{key}", error_handlers={Full: again}) as server:
        gc.disable()
        try:
            with nearcall.connect(server.urls[0], Shop) as shop, pytest.raises(nearcall.NotFound):
                shop.fail("full, but not of memory")
        finally:
            gc.enable()
    assert [each() for each in gone] == [None]


def test_interceptors_come_first(key: str) -> None:
    def guard(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        if "user" not in call.context.metadata:
            raise nearcall.Unauthenticated("who are you?")
        assert "t" not in call.kwargs
        return proceed(call)

    with (
        nearcall.Server(Shop(), f"inproc://{key}", interceptors=[guard]) as server,
        nearcall.connect(server.urls[0], Shop) as shop,
    ):
        with pytest.raises(nearcall.Unauthenticated):
            shop.order("pens")
        assert events.empty()
        with nearcall.metadata({"user": "ada"}):
            assert shop.order("pens") == "1 pens for ada in a transaction"
        assert noted(2) == ["begin", "commit"]


def test_overrides(key: str) -> None:
    def fake(user: str = nearcall.depends(caller)) -> str:
        return f"fake of {user}"

    with (
        nearcall.Server(Shop(), Desk(), f"inproc://{key}", overrides={transaction: fake}) as server,
        nearcall.Channel(server.urls[0]) as channel,
    ):
        assert channel.client(Shop).service.order("pens") == "1 pens for nobody in a fake of nobody"
        assert channel.client(Desk).service.printer().show() == "nobody fake of nobody"


def test_a_timeout_in_a_provider(key: str) -> None:
    stuck = threading.Event()

    async def slow() -> AsyncIterator[int]:
        await asyncio.sleep(60)
        yield 1

    @nearcall.service
    class Slow:
        async def wait(self, *, n: int = nearcall.depends(slow)) -> int:
            stuck.set()
            return n

    with nearcall.Server(Slow(), f"inproc://{key}") as server, nearcall.connect(server.urls[0], Slow) as client:
        with nearcall.timeout(0.05), pytest.raises(nearcall.DeadlineExceeded):
            client.wait()
        assert server.stop(SECONDS) is True
    assert not stuck.is_set()


def test_an_implementation_depends_on_what_its_interface_does_not_know(key: str) -> None:
    @nearcall.service
    class Interface:
        def get(self, n: int) -> str: ...

    class Implementation(Interface):
        def get(self, n: int, *, user: str = nearcall.depends(caller)) -> str:
            return f"{n} {user}"

    with (
        nearcall.Server(Implementation(), f"inproc://{key}") as server,
        nearcall.connect(server.urls[0], Interface) as client,
    ):
        assert client.get(1) == "1 nobody"


def test_it_is_an_ordinary_parameter_for_who_calls_the_method() -> None:
    assert Shop().order("pens", by="me", t="mine") == "1 pens for me in a mine"
    unfilled: Any = nearcall.depends(Pages)
    with pytest.raises(AttributeError, match=r"nearcall.depends\(Pages\) has no 'size': only a server fills it in"):
        _ = unfilled.size


def test_descriptions_do_not_speak_of_them() -> None:
    plan = {method.name: method for method in plan_of(Shop).methods}["order"]
    assert plan.signature == "order(item: str, count: int = ...) -> str"
    assert [slot.name for slot in plan.slots] == ["item", "count"]


def needs(number: int) -> int:
    return number


async def awaits() -> int:
    return 1


def _positional_only() -> type:
    class Wrong:
        def get(self, n: int = nearcall.depends(caller), /) -> int: ...  # type: ignore[assignment]

    return Wrong


def _too_early() -> type:
    class Wrong:
        def get(self, user: str = nearcall.depends(caller), n: int = 0) -> int: ...

    return Wrong


def _of_the_interface() -> type:
    @nearcall.service
    class Interface:
        def get(self, user: str) -> int: ...

    class Wrong(Interface):
        def get(self, user: str = nearcall.depends(caller)) -> int: ...

    return Wrong


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (_positional_only, r"Wrong.get\(\): the dependency 'n' must come after what callers give: write it behind"),
        (_too_early, r"Wrong.get\(\): the dependency 'user' must come after what callers give: write it behind a"),
        (_of_the_interface, r"'user' is given by callers of the interface; a dependency needs another name"),
    ],
)
def test_mistakes_in_a_class(make: Callable[[], type], words: str) -> None:
    with pytest.raises(TypeError, match=words):
        nearcall.service(make())


@pytest.mark.parametrize(
    ("provider", "words"),
    [
        (needs, r"Wrong.get\(\): the dependency 'n': nobody gives needs\(\) its parameter 'number'; give it a default"),
        (awaits, r"the dependency 'n' is asynchronous \(awaits\), and the method is not: make the method 'async def'"),
        (partial(needs, 1), None),
    ],
)
def test_mistakes_in_a_provider(provider: Any, words: str | None) -> None:
    @nearcall.service
    class Wrong:
        def get(self, *, n: int = nearcall.depends(provider)) -> int:
            return n

    if words is None:
        nearcall.Server(Wrong())
        return
    with pytest.raises(TypeError, match=words):
        nearcall.Server(Wrong())


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("error_handlers", [KeyError], "must be a dict from exception classes to functions, not"),
        (
            "error_handlers",
            {"KeyError": no_such},
            "error_handlers are by classes of exceptions, and 'KeyError' is none",
        ),
        ("error_handlers", {SystemExit: no_such}, "are by classes of exceptions, and <class 'SystemExit'> is none"),
        ("error_handlers", {KeyError: 5}, "error_handlers must be functions, and that for KeyError, 5, is none"),
        ("error_handlers", {KeyError: awaits}, "and that for KeyError is 'async def'"),
        ("overrides", [caller], "overrides must be a dict from functions to what is called in their place, not"),
        ("overrides", {caller: 5}, "overrides must be a dict from functions to what is called in their place, not"),
    ],
)
def test_options(option: str, value: Any, words: str) -> None:
    wrong: dict[str, Any] = {option: value}
    with pytest.raises(TypeError, match=words) as caught:
        nearcall.Server(Shop(), "inproc://nobody", **wrong)
    assert cast(Any, caught.value).option == option


@pytest.mark.parametrize("wrong", [5, nearcall.depends(caller), [1]])
def test_depends_takes_a_function(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"depends\(\) takes a function that gives the value, not "):
        nearcall.depends(wrong)
