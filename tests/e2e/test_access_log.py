"""The access log says how a call really ended: of every kind, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import nearcall

from .deadlines import longer_and_longer
from .services import PATIENCE
from .test_introspection import until


def wrong(value: object) -> Any:
    return value


class OutOfPaper(Exception):
    pass


@nearcall.service(errors=[OutOfPaper])
class Endings:
    """Every way in which a call can end, in threads and in the event loop."""

    def __init__(self) -> None:
        self.go_on = threading.Event()

    def fine(self) -> int:
        return 1

    async def fine_in_loop(self) -> int:
        return 1

    def unknown(self) -> int:
        raise ValueError

    async def unknown_in_loop(self) -> int:
        raise ValueError

    def declared(self) -> int:
        raise OutOfPaper

    def status(self) -> int:
        raise nearcall.NotFound("no")

    def wrong(self) -> int:
        return wrong("text")

    async def wrong_in_loop(self) -> int:
        return wrong("text")

    def long(self) -> bytes:
        return bytes(300_000)

    async def long_in_loop(self) -> bytes:
        return bytes(300_000)

    def slow(self) -> int:
        left = nearcall.context().time_left
        self.go_on.wait(PATIENCE if left is None else left)
        return 1

    async def slow_in_loop(self) -> int:
        await asyncio.sleep(PATIENCE)
        return 1

    def items(self, last: str) -> Iterator[int]:
        yield 1
        if last == "fault":
            raise ValueError
        yield wrong("text") if last == "wrong" else 2

    async def items_in_loop(self, last: str) -> AsyncIterator[int]:
        for item in self.items(last):
            yield item

    def endless(self) -> Iterator[int]:
        while True:
            yield 1

    async def endless_in_loop(self) -> AsyncIterator[int]:
        while True:
            yield 1
            await asyncio.sleep(0)

    @nearcall.oneway
    def tell(self) -> None:
        raise ValueError

    @nearcall.oneway
    async def tell_in_loop(self) -> None: ...


@pytest.fixture
def service() -> Endings:
    return Endings()


@pytest.fixture
def endings(new_url: str, service: Endings, caplog: pytest.LogCaptureFixture) -> Iterator[Any]:
    caplog.set_level(logging.INFO, "nearcall.access")
    log = nearcall.observe.access_log()
    with nearcall.Server(service, new_url, interceptors=[log]) as server:
        try:
            with nearcall.connect(server.urls[0], Endings, max_message_size=100_000) as client:
                yield client
        finally:
            service.go_on.set()


def lines(caplog: pytest.LogCaptureFixture, method: str) -> list[Any]:
    return [record for record in caplog.records if getattr(record, "method", None) == f"Endings.{method}"]


def ended(caplog: pytest.LogCaptureFixture, method: str) -> str:
    """The code of the only line of a method; it is written after the client has its reply."""
    (line,) = until(lambda: lines(caplog, method))
    assert line.levelno == (logging.INFO if line.code == "OK" else logging.WARNING)
    assert f" {line.code} " in line.getMessage()
    return str(line.code)


def outlive(caplog: pytest.LogCaptureFixture, method: str, call: Callable[[], object]) -> set[str]:
    """The codes of a call that is repeated with longer deadlines until one has begun before its end."""
    for seconds in longer_and_longer():
        with nearcall.timeout(seconds), contextlib.suppress(nearcall.DeadlineExceeded):
            call()
        if lines(caplog, method):
            break
    return {line.code for line in lines(caplog, method)}


@pytest.mark.parametrize(
    ("method", "code"),
    [
        ("fine", "OK"),
        ("unknown", "UNKNOWN"),
        ("wrong", "INTERNAL"),
        ("long", "RESOURCE_EXHAUSTED"),
    ],
)
@pytest.mark.parametrize("where", ["", "_in_loop"])
def test_calls_with_one_result(
    endings: Any, caplog: pytest.LogCaptureFixture, method: str, where: str, code: str
) -> None:
    call = getattr(endings, method + where)
    if code == "OK":
        assert call() == 1
    else:
        with pytest.raises(nearcall.RpcError) as caught:
            call()
        assert caught.value.code.name == code
    assert ended(caplog, method + where) == code


def test_statuses_and_declared_errors(endings: Any, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(nearcall.NotFound):
        endings.status()
    assert ended(caplog, "status") == "NOT_FOUND"
    with pytest.raises(OutOfPaper):
        endings.declared()
    assert ended(caplog, "declared") == "UNKNOWN"


def test_one_way_calls(endings: Any, caplog: pytest.LogCaptureFixture) -> None:
    endings.tell()
    assert ended(caplog, "tell") == "UNKNOWN"
    endings.tell_in_loop()
    assert ended(caplog, "tell_in_loop") == "OK"


@pytest.mark.parametrize("method", ["slow", "slow_in_loop"])
def test_a_deadline_that_has_passed(endings: Any, caplog: pytest.LogCaptureFixture, method: str) -> None:
    codes = outlive(caplog, method, getattr(endings, method))
    # To an event loop the client's news that it gives up may come before its own clock.
    assert codes <= ({"DEADLINE_EXCEEDED"} if method == "slow" else {"DEADLINE_EXCEEDED", "CANCELLED"})


@pytest.mark.parametrize("method", ["slow", "slow_in_loop"])
def test_a_call_given_up(new_url: str, caplog: pytest.LogCaptureFixture, method: str) -> None:
    caplog.set_level(logging.INFO, "nearcall.access")
    service, log = Endings(), nearcall.observe.access_log()
    began = threading.Event()

    def begin(call: Any, proceed: Any) -> Any:
        began.set()
        return proceed(call)

    async def main(url: str) -> None:
        async with nearcall.aio.connect(url, Endings) as client:
            task = asyncio.ensure_future(getattr(client, method)())
            await asyncio.get_running_loop().run_in_executor(None, began.wait, PATIENCE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await client.fine()  # the server has received that the other was given up

    with nearcall.Server(service, new_url, interceptors=[log, begin]) as server:
        try:
            asyncio.run(main(server.urls[0]))
        finally:
            service.go_on.set()
        assert ended(caplog, method) == "CANCELLED"


@pytest.mark.parametrize("where", ["", "_in_loop"])
@pytest.mark.parametrize(("last", "code"), [("fine", "OK"), ("fault", "UNKNOWN"), ("wrong", "INTERNAL")])
def test_streams_at_their_end(endings: Any, caplog: pytest.LogCaptureFixture, where: str, last: str, code: str) -> None:
    items = getattr(endings, "items" + where)(last)
    assert next(items) == 1
    if code == "OK":
        assert list(items) == [2]
    else:
        with pytest.raises(nearcall.RpcError) as caught:
            next(items)
        assert caught.value.code.name == code
    assert ended(caplog, "items" + where) == code


@pytest.mark.parametrize("method", ["endless", "endless_in_loop"])
def test_streams_that_are_left(endings: Any, caplog: pytest.LogCaptureFixture, method: str) -> None:
    items = getattr(endings, method)()
    assert next(items) == 1
    items.close()
    assert ended(caplog, method) == "CANCELLED"


@pytest.mark.parametrize("method", ["endless", "endless_in_loop"])
def test_streams_whose_deadline_passes(endings: Any, caplog: pytest.LogCaptureFixture, method: str) -> None:
    def take_all() -> None:
        for _ in getattr(endings, method)():
            pass

    assert outlive(caplog, method, take_all) <= {"DEADLINE_EXCEEDED", "CANCELLED"}


def test_an_interceptor_that_goes_on_in_another_thread(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nearcall.access")

    def elsewhere(call: Any, proceed: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(proceed, call).result(PATIENCE)

    with (
        nearcall.Server(Endings(), new_url, interceptors=[elsewhere, nearcall.observe.access_log()]) as server,
        nearcall.connect(server.urls[0], Endings) as client,
    ):
        assert client.fine() == 1
        assert ended(caplog, "fine") == "OK"
        with pytest.raises(nearcall.Unknown):
            client.unknown()
        assert ended(caplog, "unknown") == "UNKNOWN"
