"""Functions around every call, at the client and at the server, over every transport."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

import nearcall
from nearcall import _core


@nearcall.service
class Sums:
    def __init__(self) -> None:
        self._told = threading.Event()

    def add(self, a: int, b: int = 5, *, c: int = 0) -> int:
        return a + b + c

    async def add_in_loop(self, a: int, b: int = 5, *, c: int = 0) -> int:
        return a + b + c

    def size(self, data: bytes) -> int:
        return len(data)

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    async def count_in_loop(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    async def total_in_loop(self, numbers: AsyncIterator[int]) -> int:
        return sum([number async for number in numbers])

    def double(self, numbers: Iterator[int]) -> Iterator[int]:
        for number in numbers:
            yield 2 * number

    async def double_in_loop(self, numbers: AsyncIterator[int]) -> AsyncIterator[int]:
        async for number in numbers:
            yield 2 * number

    @nearcall.oneway
    def tell(self) -> None:
        self._told.set()

    def told(self) -> bool:
        return self._told.wait(30)

    def sent(self) -> list[tuple[str, Any]]:
        context = nearcall.context()
        context.add_trailing_metadata({"cost": "7"})
        return context.metadata.pairs()

    async def sent_in_loop(self) -> list[tuple[str, Any]]:
        return self.sent()


@nearcall.service
class Coroutines:
    """Only such handlers, so that the server's interceptors may be coroutines."""

    async def add(self, a: int, b: int) -> int:
        return a + b

    async def count(self, n: int) -> AsyncIterator[int]:
        for number in range(n):
            yield number


def call_all(sums: Any) -> None:
    """A call of every kind, with the right result."""
    for loop in ("", "_in_loop"):
        assert getattr(sums, "add" + loop)(1, c=3) == 9
        assert list(getattr(sums, "count" + loop)(3)) == [0, 1, 2]
        assert getattr(sums, "total" + loop)(iter([1, 2])) == 3
        assert list(getattr(sums, "double" + loop)([1, 2])) == [2, 4]
    assert sums.size(b"abc") == 3
    assert sums.tell() is None
    assert sums.told()


ALL = [
    *(("add", "unary"), ("count", "server_stream"), ("total", "client_stream"), ("double", "bidi_stream")),
    *(("add_in_loop", "unary"), ("count_in_loop", "server_stream")),
    *(("total_in_loop", "client_stream"), ("double_in_loop", "bidi_stream")),
    *(("size", "unary"), ("tell", "oneway"), ("told", "unary")),
]


def test_every_call_passes_the_interceptors_of_both_sides(new_url: str) -> None:
    at_client: list[tuple[str, str]] = []
    at_server: list[tuple[str, str]] = []

    def client(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        at_client.append((call.method, call.kind))
        return proceed(call)

    def server(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        assert call.context.method == call.method
        assert call.context.peer.keys() & {"pid", "address", "broker"}
        at_server.append((call.method, call.kind))
        return proceed(call)

    with (
        nearcall.Server(Sums(), new_url, interceptors=[server]) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=[client]) as sums,
    ):
        call_all(sums)
    expected = [(f"Sums.{name}", kind) for name, kind in ALL]
    assert at_client == expected
    assert sorted(at_server) == sorted(expected)


def test_the_first_is_the_outermost(new_url: str) -> None:
    order: list[str] = []

    def noting(name: str) -> Any:
        def interceptor(call: nearcall.CallInfo, proceed: nearcall.Proceed) -> Any:
            order.append(f"{name} begins")
            result = proceed(call)
            order.append(f"{name} ends")
            return result

        return interceptor

    both = [noting("c1"), noting("c2")]
    with (
        nearcall.Server(Sums(), new_url, interceptors=(noting("s1"), noting("s2"))) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=both) as sums,
    ):
        assert sums.add(1) == 6
    nested = ["c1 begins", "c2 begins", "s1 begins", "s2 begins", "s2 ends", "s1 ends", "c2 ends", "c1 ends"]
    assert order == nested


@pytest.mark.parametrize("method", ["add", "add_in_loop"])
def test_arguments_and_results_can_be_replaced(new_url: str, method: str) -> None:
    def client(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        assert (call.args, call.kwargs) == ((1,), {"c": 2})
        call.args = (10, 20)
        call.kwargs["c"] = 30
        return proceed(call) * 2

    def server(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        # Every parameter is there: by position as far as it may be.
        assert (call.args, call.kwargs) == ((10, 20), {"c": 30})
        call.kwargs = {"c": 100}
        if call.method.endswith("in_loop"):

            async def more() -> Any:
                return await proceed(call) + 1

            return more()
        return proceed(call) + 1

    with (
        nearcall.Server(Sums(), new_url, interceptors=[server]) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=[client]) as sums,
    ):
        assert getattr(sums, method)(1, c=2) == 262


def test_replaced_arguments_are_checked_like_others(new_url: str) -> None:
    def client(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        call.args = ("x",)
        return proceed(call)

    def server(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        proceed(call)
        return "x"

    with nearcall.Server(Sums(), new_url, interceptors=[server]) as serving:
        url = serving.urls[0]
        with (
            nearcall.connect(url, Sums, interceptors=[client]) as sums,
            pytest.raises(nearcall.InvalidArgument, match="argument 'a' must be int, got str"),
        ):
            sums.add(1)
        with (
            nearcall.connect(url, Sums) as sums,
            pytest.raises(nearcall.Internal, match="the result must be int, got str"),
        ):
            sums.add(1)


def test_streams_can_be_replaced(new_url: str) -> None:
    def client(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Iterator[int]:
        for item in proceed(call):
            yield item + 1

    def server(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        if call.method.endswith("in_loop"):

            async def tenfold_in_loop() -> AsyncIterator[int]:
                async for item in proceed(call):
                    yield 10 * item

            return tenfold_in_loop()
        return (10 * item for item in proceed(call))

    with (
        nearcall.Server(Sums(), new_url, interceptors=[server]) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=[client]) as sums,
    ):
        assert list(sums.count(3)) == [1, 11, 21]
        assert list(sums.count_in_loop(3)) == [1, 11, 21]
        assert list(sums.double(iter([1, 2]))) == [21, 41]
        assert list(sums.double_in_loop(iter([1, 2]))) == [21, 41]


def test_the_metadata_of_a_client_interceptor(new_url: str) -> None:
    def first(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        call.metadata["one"] = "1"
        return proceed(call)

    def second(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        assert call.metadata == {"one": "1"}
        call.metadata["two-bin"] = b"\x02"
        return proceed(call)

    async def in_loop(url: str) -> None:
        async with nearcall.aio.connect(url, Sums, interceptors=[first, second]) as sums:
            with nearcall.metadata({"zero": "0"}) as metadata:
                assert await sums.sent() == [("zero", "0"), ("one", "1"), ("two-bin", b"\x02")]
            assert dict(metadata.trailing) == {"cost": "7"}

    with nearcall.Server(Sums(), new_url) as serving:
        url = serving.urls[0]
        with nearcall.connect(url, Sums, interceptors=[first, second]) as sums:
            for method in (sums.sent, sums.sent_in_loop):
                assert method() == [("one", "1"), ("two-bin", b"\x02")]
                with nearcall.metadata({"zero": "0"}) as metadata:
                    assert method() == [("zero", "0"), ("one", "1"), ("two-bin", b"\x02")]
                # The user's own block still learns what comes back.
                assert dict(metadata.trailing) == {"cost": "7"}
        asyncio.run(in_loop(url))


def test_malformed_metadata_is_said(new_url: str) -> None:
    def client(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        call.metadata["Upper"] = "x"
        return proceed(call)

    with (
        nearcall.Server(Sums(), new_url) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=[client]) as sums,
        pytest.raises(ValueError, match="'Upper' is no metadata key"),
    ):
        sums.add(1)


def refuse(call: nearcall.CallInfo, proceed: nearcall.Proceed) -> Any:
    raise nearcall.Unauthenticated("not you", details={"method": call.method})


CALLS: dict[str, Any] = {
    "add": lambda sums: sums.add(1),
    "add_in_loop": lambda sums: sums.add_in_loop(1),
    "count": lambda sums: list(sums.count(3)),
    "count_in_loop": lambda sums: list(sums.count_in_loop(3)),
    "total": lambda sums: sums.total(iter([1])),
    "total_in_loop": lambda sums: sums.total_in_loop(iter([1])),
    "double": lambda sums: list(sums.double(iter([1]))),
    "double_in_loop": lambda sums: list(sums.double_in_loop(iter([1]))),
}


@pytest.mark.parametrize("side", ["client", "server"])
def test_a_refused_call_is_refused(new_url: str, side: str) -> None:
    server, client = ([refuse], []) if side == "server" else ([], [refuse])
    with (
        nearcall.Server(Sums(), new_url, interceptors=server) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=client) as sums,
    ):
        for name, call in CALLS.items():
            with pytest.raises(nearcall.Unauthenticated, match="not you") as caught:
                call(sums)
            assert caught.value.details == {"method": f"Sums.{name}"}


def test_an_interceptor_can_answer_by_itself(new_url: str) -> None:
    def cached(call: nearcall.CallInfo, proceed: nearcall.Proceed) -> Any:
        return [7] if call.kind.endswith("_stream") and call.kind != "client_stream" else 7

    with (
        nearcall.Server(Sums(), new_url) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=[cached]) as sums,
    ):
        assert sums.add(1) == 7
        assert list(sums.count(3)) == [7]

    async def in_loop() -> None:
        with nearcall.Server(Sums(), new_url) as serving:
            async with nearcall.aio.connect(serving.urls[0], Sums, interceptors=[cached]) as sums:
                assert await sums.add(1) == 7

    asyncio.run(in_loop())


def test_an_interceptor_can_try_again(new_url: str) -> None:
    attempts: list[int] = []

    def flaky(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        attempts.append(1)
        if len(attempts) < 3:
            raise nearcall.Aborted("again")
        return proceed(call)

    def again(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        while True:
            try:
                return proceed(call)
            except nearcall.Aborted:
                pass

    with (
        nearcall.Server(Sums(), new_url, interceptors=[flaky]) as serving,
        nearcall.connect(serving.urls[0], Sums, interceptors=[again]) as sums,
    ):
        assert sums.add(1) == 6
    assert len(attempts) == 3


async def call_all_in_loop(sums: Any) -> None:
    for loop in ("", "_in_loop"):
        assert await getattr(sums, "add" + loop)(1, c=3) == 9
        assert [item async for item in getattr(sums, "count" + loop)(3)] == [0, 1, 2]
        assert await getattr(sums, "total" + loop)(iter([1, 2])) == 3
        assert [item async for item in getattr(sums, "double" + loop)([1, 2])] == [2, 4]
    assert await sums.size(b"abc") == 3
    assert await sums.tell() is None
    assert await sums.told()


def test_asynchronous_clients(new_url: str) -> None:
    seen: list[tuple[str, str]] = []

    def plain(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        seen.append((call.method, call.kind))
        return proceed(call)

    async def awaiting(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        await asyncio.sleep(0)
        return await proceed(call)

    async def main(url: str) -> None:
        for chain in ([plain, awaiting], [awaiting, plain], [plain, plain], [awaiting, awaiting, plain]):
            seen.clear()
            async with nearcall.aio.connect(url, Sums, interceptors=chain) as sums:
                await call_all_in_loop(sums)
            once = [(f"Sums.{name}", kind) for name, kind in ALL]
            assert [item for item in seen if seen.count(item) == chain.count(plain)] == [
                item for item in once for _ in range(chain.count(plain))
            ]

    with nearcall.Server(Sums(), new_url) as serving:
        asyncio.run(main(serving.urls[0]))


def test_asynchronous_streams_can_be_replaced_and_left_early(new_url: str) -> None:
    closed: list[str] = []

    async def added(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> AsyncIterator[int]:
        try:
            async for item in proceed(call):
                yield item + 1
        finally:
            closed.append("generator")

    async def main(url: str) -> None:
        async with nearcall.aio.connect(url, Sums, interceptors=[added]) as sums:
            assert [item async for item in sums.count(3)] == [1, 2, 3]
            assert closed == ["generator"]
            async with sums.count_in_loop(1_000_000) as items:
                assert await anext_of(items) == 1
            assert closed == ["generator", "generator"]

        def refusing(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
            raise nearcall.Aborted("no")

        async with nearcall.aio.connect(url, Sums, interceptors=[refusing]) as sums:
            with pytest.raises(nearcall.Aborted):
                await sums.add(1)
            with pytest.raises(nearcall.Aborted):
                sums.count(1)

    with nearcall.Server(Sums(), new_url) as serving:
        asyncio.run(main(serving.urls[0]))


async def anext_of(items: Any) -> Any:
    return await items.__anext__()


def test_coroutine_interceptors_of_a_server(new_url: str) -> None:
    seen: list[str] = []

    async def noting(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        await asyncio.sleep(0)
        assert nearcall.context().method == call.method
        seen.append(call.method)
        return await proceed(call)

    async def doubling(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        return 2 * await proceed(call) if call.kind == "unary" else await proceed(call)

    with (
        nearcall.Server(Coroutines(), new_url, interceptors=[noting, doubling]) as serving,
        nearcall.connect(serving.urls[0], Coroutines) as served,
    ):
        service: Any = served
        assert service.add(1, 2) == 6
        assert list(service.count(3)) == [0, 1, 2]
    assert seen == ["Coroutines.add", "Coroutines.count"]


def test_a_refused_one_way_call_is_dropped(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    def picky(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        if call.kind == "oneway":
            raise nearcall.PermissionDenied("no tales")
        return proceed(call)

    service = Sums()
    with (
        nearcall.Server(service, new_url, interceptors=[picky]) as serving,
        nearcall.connect(serving.urls[0], Sums) as sums,
    ):
        sums.tell()
        assert sums.add(1) == 6
    assert not service._told.is_set()
    assert "no tales" in caplog.text


def test_a_client_without_the_class_has_them_too(new_url: str) -> None:
    seen: list[str] = []

    def noting(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
        seen.append(call.method)
        return proceed(call)

    with (
        nearcall.Server(Sums(), new_url) as serving,
        nearcall.connect(serving.urls[0], interceptors=[noting]) as sums,
    ):
        assert sums.add(1) == 6
        assert sums.Sums.add(a=1) == 6
    assert seen == ["Sums.add", "Sums.add"]


def test_without_interceptors_nothing_stands_in_between(new_url: str) -> None:
    with (
        nearcall.Server(Sums(), new_url) as serving,
        nearcall.connect(serving.urls[0], Sums) as sums,
    ):
        service: Any = sums
        assert type(service.add) is _core.Unary
        assert type(service.tell) is _core.Oneway

    async def main() -> None:
        with nearcall.Server(Sums(), new_url) as serving:
            async with nearcall.aio.connect(serving.urls[0], Sums) as sums:
                assert type(sums.add) is _core.AsyncUnary

    asyncio.run(main())


def test_what_cannot_be_an_interceptor_is_said_before_anything_is_dialled() -> None:
    async def coroutine(call: nearcall.CallInfo, proceed: nearcall.Proceed) -> Any:
        return await proceed(call)

    class Late:
        async def __call__(self, call: nearcall.CallInfo, proceed: nearcall.Proceed) -> Any:
            return await proceed(call)

    for wrong in (coroutine, Late()):
        with pytest.raises(TypeError, match="asynchronous, and this client is for threads: write it with 'def'"):
            nearcall.connect("inproc://nobody", Sums, interceptors=[wrong])
        nearcall.Server(Sums(), interceptors=[wrong])  # there it has a loop
    anything: Any = 7
    made: Any = nearcall.observe.opentelemetry  # and not what it makes
    for connect in (nearcall.connect, nearcall.aio.connect):
        with pytest.raises(TypeError, match="interceptors must be a list of functions, not 7"):
            connect("inproc://nobody", Sums, interceptors=anything)
        with pytest.raises(TypeError, match=r"must be a list of functions, not .*: write \[\.\.\.\] around it"):
            connect("inproc://nobody", Sums, interceptors=made)
        with pytest.raises(TypeError, match=r"takes \(call, proceed\), and opentelemetry does not; .* write opentel"):
            connect("inproc://nobody", Sums, interceptors=[made])
        with pytest.raises(TypeError, match="interceptors must be a list of functions, and 7 is none"):
            connect("inproc://nobody", Sums, interceptors=[anything])
