"""Exceptions that a service declares arrive as themselves, and tracebacks only where the server sends them."""

from __future__ import annotations

import asyncio
import sys
import types
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import nearcall


class OutOfStock(Exception):
    def __init__(self, item: str, *, left: int) -> None:
        super().__init__(f"no {item}", item)
        self.left = left
        self._private = "stays here"


class SoldOut(OutOfStock):
    """Not declared itself."""


@dataclass
class Refused(Exception):
    reason: str
    codes: list[int]


class Locked(nearcall.FailedPrecondition):
    """One of nearcall's own, with more to it."""

    until: float = 0.0


class Plain(KeyError):
    pass


class Unrelated(Exception):
    pass


def make(name: str) -> BaseException:
    if name == "stock":
        return OutOfStock("pen", left=3)
    if name == "sold":
        return SoldOut("ink", left=0)
    if name == "refused":
        return Refused("closed", [1, 2])
    if name == "locked":
        locked = Locked("in use", details={"by": "ada"})
        locked.until = 1.5
        return locked
    if name == "plain":
        return Plain("key", 1, None)
    if name == "unencodable":
        odd = Plain("first", object(), "third", 1 << 16383)
        cast: Any = odd
        cast.good, cast.bad = [1], object()
        return odd
    if name == "methods":
        sly = Plain()
        sly.__dict__.update({"with_traceback": 1, "add_note": 2, "fine": 3})
        return sly
    return Unrelated(name)


@nearcall.service(errors=[OutOfStock, Refused, Locked, Plain])
class Shop:
    def raised(self, name: str) -> int:
        raise make(name)

    async def raised_in_loop(self, name: str) -> int:
        raise make(name)

    def raised_in_stream(self, name: str) -> Iterator[int]:
        yield 1
        raise make(name)

    async def raised_in_loop_stream(self, name: str) -> AsyncIterator[int]:
        yield 1
        raise make(name)

    def raised_after_stream(self, name: str, items: Iterator[int]) -> int:
        next(items)
        raise make(name)

    async def raised_after_loop_stream(self, name: str, items: AsyncIterator[int]) -> int:
        await items.__anext__()
        raise make(name)

    def raised_both_ways(self, name: str, items: Iterator[int]) -> Iterator[int]:
        yield next(items)
        raise make(name)

    async def raised_both_ways_in_loop(self, name: str, items: AsyncIterator[int]) -> AsyncIterator[int]:
        yield await items.__anext__()
        raise make(name)


def call(shop: Any, method: str, name: str) -> Any:
    function = getattr(shop, method)
    if "after" in method:
        return function(name, iter([1, 2]))
    if "both" in method:
        return list(function(name, iter([1])))
    return list(function(name)) if "stream" in method else function(name)


async def call_in_loop(shop: Any, method: str, name: str) -> Any:
    function = getattr(shop, method)
    if "after" in method:
        return await function(name, iter([1, 2]))
    if "both" in method:
        return [item async for item in function(name, [1])]
    return [item async for item in function(name)] if "stream" in method else await function(name)


METHODS = [name for name in vars(Shop) if name.startswith("raised")]


@pytest.fixture
def url(new_url: str) -> Iterator[str]:
    with nearcall.Server(Shop(), new_url) as server:
        yield server.urls[0]


def check_stock(error: BaseException) -> None:
    assert type(error) is OutOfStock
    assert error.args == ("no pen", "pen")
    assert vars(error) == {"left": 3}


def test_a_declared_error_arrives_as_itself(url: str) -> None:
    with nearcall.connect(url, Shop) as shop:
        for method in METHODS:
            with pytest.raises(OutOfStock) as caught:
                call(shop, method, "stock")
            check_stock(caught.value)


def test_in_an_event_loop_as_well(url: str) -> None:
    async def main() -> None:
        async with nearcall.aio.connect(url, Shop) as shop:
            for method in METHODS:
                with pytest.raises(OutOfStock) as caught:
                    await call_in_loop(shop, method, "stock")
                check_stock(caught.value)

    asyncio.run(main())


def test_through_interceptors_as_well(new_url: str) -> None:
    seen: list[type] = []

    def noting(call: nearcall.CallInfo, proceed: nearcall.Proceed) -> Any:
        try:
            return proceed(call)
        except Exception as error:
            seen.append(type(error))
            raise

    with (
        nearcall.Server(Shop(), new_url, interceptors=[noting]) as server,
        nearcall.connect(server.urls[0], Shop, interceptors=[noting]) as shop,
        pytest.raises(OutOfStock),
    ):
        shop.raised("stock")
    assert seen == [OutOfStock, OutOfStock]


def test_errors_of_every_shape(url: str) -> None:
    with nearcall.connect(url, Shop) as shop:
        with pytest.raises(OutOfStock) as sold:  # the nearest class that is declared
            shop.raised("sold")
        assert type(sold.value) is OutOfStock
        assert sold.value.args == ("no ink", "ink")
        with pytest.raises(Refused) as refused:
            shop.raised("refused")
        assert refused.value == Refused("closed", [1, 2])
        with pytest.raises(Locked, match="in use") as locked:
            shop.raised("locked")
        assert locked.value.code is nearcall.StatusCode.FAILED_PRECONDITION
        assert (locked.value.message, locked.value.details, locked.value.until) == ("in use", {"by": "ada"}, 1.5)
        with pytest.raises(LookupError) as plain:
            shop.raised("plain")
        assert type(plain.value) is Plain
        assert plain.value.args == ("key", 1, None)
        with pytest.raises(Plain) as unencodable:
            shop.raised("unencodable")
        assert unencodable.value.args == ("first", None, "third", None)
        assert vars(unencodable.value) == {"good": [1]}
        with pytest.raises(Plain) as methods:
            shop.raised("methods")
        assert methods.value.__dict__["fine"] == 3
        assert callable(methods.value.with_traceback)


def test_what_is_not_declared_is_unknown(url: str) -> None:
    with nearcall.connect(url, Shop) as shop, pytest.raises(nearcall.Unknown, match="Unrelated: other") as caught:
        shop.raised("other")
    assert caught.value.details is None


def test_a_client_without_the_class(url: str) -> None:
    stranger = nearcall.service(types.new_class("Shop", exec_body=lambda body: body.update(_strange())))
    for cls in (None, stranger):
        with nearcall.connect(url, cls) as shop:
            with pytest.raises(nearcall.Unknown, match=r"OutOfStock: .*no pen") as caught:
                shop.raised("stock")
            assert caught.value.details is None
            with pytest.raises(nearcall.FailedPrecondition, match="in use") as locked:
                shop.raised("locked")
            assert type(locked.value) is nearcall.FailedPrecondition
            assert locked.value.details == {"by": "ada"}


def _strange() -> dict[str, Any]:
    def raised(self: object, name: str) -> int: ...  # type: ignore[empty-body]

    return {"raised": raised}


def test_an_error_longer_than_the_client_takes_still_ends_the_call(new_url: str) -> None:
    class Fat(Exception):
        pass

    @nearcall.service(errors=[Fat])
    class Fats:
        def fat(self) -> None:
            raise Fat("x" * 200_000)

        def details(self) -> None:
            raise nearcall.Aborted("too much", details=bytes(200_000))

    with (
        nearcall.Server(Fats(), new_url) as server,
        nearcall.connect(server.urls[0], Fats, max_message_size=100_000, timeout=20) as fats,
    ):
        with pytest.raises(nearcall.Unknown, match="Fat: xxx"):
            fats.fat()
        with pytest.raises(nearcall.Aborted, match="too much") as caught:
            fats.details()
        assert caught.value.details is None


def test_a_declared_class_of_pythons_takes_no_status_away(new_url: str) -> None:
    class Both(nearcall.NotFound, OutOfStock):
        pass

    @nearcall.service(errors=[OSError, ValueError, OutOfStock])
    class Files:
        def denied(self) -> None:
            raise nearcall.PermissionDenied("not yours", details={"file": "x"})

        def missing(self) -> None:
            raise FileNotFoundError("x")

        def both(self) -> None:
            raise Both("pens")

    with nearcall.Server(Files(), new_url) as server, nearcall.connect(server.urls[0], Files) as files:
        with pytest.raises(nearcall.PermissionDenied, match="not yours") as caught:
            files.denied()
        assert caught.value.details == {"file": "x"}
        with pytest.raises(nearcall.InvalidArgument, match="takes 0"):
            cast("Any", files).denied(1)
        with pytest.raises(OSError, match="x"):
            files.missing()
        with pytest.raises(OutOfStock):
            files.both()


def test_two_errors_of_one_name_cannot_be_told_apart() -> None:
    other = type("OutOfStock", (Exception,), {})
    with pytest.raises(TypeError, match="Twice: two of its errors are called OutOfStock; rename one"):

        @nearcall.service(errors=[OutOfStock, other])
        class Twice:
            def nothing(self) -> None: ...


HERE = Path(__file__).name


def test_a_traceback_travels_if_the_server_sends_it(new_url: str) -> None:
    with (
        nearcall.Server(Shop(), new_url, tracebacks=True) as server,
        nearcall.connect(server.urls[0], Shop) as shop,
    ):
        for name in ("other", "stock", "locked"):
            for method in METHODS:
                with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds
                    call(shop, method, name)
                error: Any = caught.value
                assert error.remote_traceback.startswith("Traceback (most recent call last):")
                assert HERE in error.remote_traceback
                assert f"in {method}" in error.remote_traceback
                assert f"{type(make(name)).__name__}: " in error.remote_traceback.splitlines()[-1]
                if sys.version_info >= (3, 11):
                    assert error.__notes__ == [f"At the server:\n{error.remote_traceback.rstrip()}"]
        with pytest.raises(nearcall.FailedPrecondition) as locked:
            shop.raised("locked")
        assert locked.value.details == {"by": "ada"}

    async def main() -> None:
        with nearcall.Server(Shop(), new_url, tracebacks=True) as server:
            async with nearcall.aio.connect(server.urls[0], Shop) as shop:
                with pytest.raises(nearcall.Unknown) as caught:
                    await shop.raised_in_loop("other")
                assert "in raised_in_loop" in (caught.value.remote_traceback or "")

    asyncio.run(main())


def nothing_of_the_server(error: BaseException) -> None:
    assert getattr(error, "remote_traceback", None) is None
    assert not getattr(error, "__notes__", None)
    everything = repr((error.args, vars(error), getattr(error, "details", None)))
    for trace in ("Traceback", HERE, "File "):
        assert trace not in everything


def test_a_traceback_never_travels_otherwise(url: str) -> None:
    with nearcall.connect(url, Shop) as shop:
        for name in ("other", "stock", "locked", "refused"):
            for method in METHODS:
                with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds
                    call(shop, method, name)
                nothing_of_the_server(caught.value)


def test_nor_does_one_that_came_from_another_server(new_url: str) -> None:
    @nearcall.service(name="Shop", errors=[OutOfStock, Locked])
    class Middle:
        def __init__(self, behind: Any) -> None:
            self._behind = behind

        def raised(self, name: str) -> int:
            return int(self._behind.raised(name))

    with (
        nearcall.Server(Shop(), "inproc://behind", tracebacks=True) as behind,
        nearcall.connect(behind.urls[0], Shop) as inner,
        nearcall.Server(Middle(inner), new_url) as server,
        nearcall.connect(server.urls[0], Middle) as shop,
    ):
        for name in ("other", "stock", "locked"):
            with pytest.raises(Exception) as caught:  # noqa: PT011 - of several kinds
                shop.raised(name)
            nothing_of_the_server(caught.value)


def test_long_tracebacks_are_cut(new_url: str) -> None:
    @nearcall.service
    class Long:
        def long(self) -> None:
            raise RuntimeError("x" * 100_000 + "end\ud800")

    with (
        nearcall.Server(Long(), new_url, tracebacks=True) as server,
        nearcall.connect(server.urls[0], Long) as service,
        pytest.raises(nearcall.Unknown) as caught,
    ):
        service.long()
    text = caught.value.remote_traceback or ""
    assert text.startswith("...\n")
    assert text.rstrip().endswith("end\\ud800")
    assert len(text) < 66_000
