"""What a server's log says of its handlers' faults: every kind of method, over every transport."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, cast

import pytest

import nearcall
from nearcall.call import failures

from .test_introspection import until

TEXT = "a bad value"


class OutOfPaper(Exception):
    pass


def wrong(value: object) -> Any:
    return value


@nearcall.service(errors=[OutOfPaper])
class Faulty:
    """Every kind of method, each with the fault that its argument names."""

    def _raise(self, how: str) -> None:
        if how == "fault":
            raise ValueError(TEXT)
        if how == "exit":
            raise SystemExit(TEXT)
        if how == "status":
            raise nearcall.NotFound("no such thing")
        if how == "declared":
            raise OutOfPaper("tray 2")
        if how == "huge":
            raise ValueError("\x1b]0;owned\x07\u202e" + "x" * 8_000_000)

    def unary(self, how: str) -> int:
        self._raise(how)
        return wrong("text") if how == "wrong" else 1

    async def unary_in_loop(self, how: str) -> int:
        return self.unary(how)

    def stream(self, how: str) -> Iterator[int]:
        yield 1
        yield self.unary(how)

    async def stream_in_loop(self, how: str) -> AsyncIterator[int]:
        yield 1
        yield self.unary(how)

    def taking(self, numbers: Iterator[int], how: str) -> int:
        for _ in numbers:
            pass
        return self.unary(how)

    async def taking_in_loop(self, numbers: AsyncIterator[int], how: str) -> int:
        async for _ in numbers:
            pass
        return self.unary(how)

    def both(self, numbers: Iterator[int], how: str) -> Iterator[int]:
        yield from numbers
        yield self.unary(how)

    @nearcall.oneway
    def tell(self, how: str) -> None:
        self._raise(how)

    @nearcall.oneway
    async def tell_in_loop(self, how: str) -> None:
        self._raise(how)

    async def cancelling_itself(self) -> None:
        raise asyncio.CancelledError

    def with_cleanup(self) -> Iterator[int]:
        try:
            while True:
                yield 1
        finally:
            raise ValueError(TEXT)

    def alive(self) -> bool:
        return True


CALLS: dict[str, Callable[[Faulty, str], object]] = {
    "unary": lambda faulty, how: faulty.unary(how),
    "unary_in_loop": lambda faulty, how: cast(Any, faulty).unary_in_loop(how),
    "stream": lambda faulty, how: list(faulty.stream(how)),
    "stream_in_loop": lambda faulty, how: list(cast(Any, faulty).stream_in_loop(how)),
    "taking": lambda faulty, how: faulty.taking(iter([1]), how),
    "taking_in_loop": lambda faulty, how: cast(Any, faulty).taking_in_loop(iter([1]), how),
    "both": lambda faulty, how: list(faulty.both(iter([1]), how)),
    "tell": lambda faulty, how: faulty.tell(how),
    "tell_in_loop": lambda faulty, how: cast(Any, faulty).tell_in_loop(how),
}
ONE_WAY = ("tell", "tell_in_loop")


@pytest.fixture
def records(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "nearcall")
    return caplog


@pytest.fixture
def faulty(new_url: str, records: pytest.LogCaptureFixture) -> Iterator[Any]:
    with nearcall.Server(Faulty(), new_url) as server, nearcall.connect(server.urls[0], Faulty) as client:
        yield client


def told(records: pytest.LogCaptureFixture, what: str = "raised") -> list[logging.LogRecord]:
    return [record for record in records.records if record.name == "nearcall" and what in record.getMessage()]


@pytest.mark.parametrize("how", ["fault", "exit"])
@pytest.mark.parametrize("method", CALLS)
def test_a_fault_is_logged(faulty: Any, records: pytest.LogCaptureFixture, method: str, how: str) -> None:
    name = {"fault": "ValueError", "exit": "SystemExit"}[how]
    if method in ONE_WAY:
        CALLS[method](faulty, how)
    else:
        with pytest.raises(nearcall.Unknown, match=f"{name}: {TEXT}"):
            CALLS[method](faulty, how)
    (record,) = until(lambda: told(records))
    assert record.levelno == logging.ERROR
    assert re.match(rf"Faulty\.{method} raised {name}, called by (pid|address|broker)=\S+", record.getMessage())
    assert ("no client learns of it" in record.getMessage()) == (method in ONE_WAY)
    assert record.exc_info is not None
    text = logging.Formatter().format(record)
    assert re.search(rf"Traceback .*in {method}\n.*in _raise\n.*{name}: {TEXT}$", text, re.DOTALL), text
    assert faulty.alive()


def _passes(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    return proceed(call)


async def _awaits(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    return await proceed(call)


def _first_frame(traceback: str) -> str:
    return traceback.partition("Traceback (most recent call last):\n")[2].partition("\n")[0]


@pytest.mark.parametrize("around", [(), (_passes,), (_awaits,)])
@pytest.mark.parametrize("method", CALLS)
def test_a_traceback_begins_with_code_of_the_users(
    key: str, records: pytest.LogCaptureFixture, method: str, around: tuple[Any, ...]
) -> None:
    options: Any = {"interceptors": around, "tracebacks": True}
    with (
        nearcall.Server(Faulty(), f"inproc://{key}", **options) as server,
        nearcall.connect(server.urls[0], Faulty) as client,
    ):
        sent: str | None = None
        if method in ONE_WAY:
            CALLS[method](client, "fault")
        else:
            with pytest.raises(nearcall.Unknown) as caught:
                CALLS[method](client, "fault")
            sent = caught.value.remote_traceback
        (record,) = until(lambda: told(records))
        texts = [logging.Formatter().format(record), *([sent] if sent else [])]
        for text in texts:
            assert __file__ in _first_frame(text), text


def test_a_traceback_is_whole_for_debugging(key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "nearcall")
    with (
        nearcall.Server(Faulty(), f"inproc://{key}", interceptors=[_passes]) as server,
        nearcall.connect(server.urls[0], Faulty) as client,
    ):
        with pytest.raises(nearcall.Unknown):
            client.unary("fault")
        (record,) = until(lambda: told(caplog))
        assert "/nearcall/call/interceptors.py" in _first_frame(logging.Formatter().format(record))


@pytest.mark.parametrize("method", [method for method in CALLS if method not in ONE_WAY])
def test_a_result_of_the_wrong_type_is_logged(faulty: Any, records: pytest.LogCaptureFixture, method: str) -> None:
    with pytest.raises(nearcall.Internal, match="must be int, got str"):
        CALLS[method](faulty, "wrong")
    (record,) = until(lambda: told(records))
    assert record.levelno == logging.ERROR
    assert f"Faulty.{method} raised Internal" in record.getMessage()
    assert "must be int, got str" in logging.Formatter().format(record)


@pytest.mark.parametrize("how", ["status", "declared", "fine"])
@pytest.mark.parametrize("method", [method for method in CALLS if method not in ONE_WAY])
def test_what_is_raised_on_purpose_is_not_logged(
    faulty: Any, records: pytest.LogCaptureFixture, method: str, how: str
) -> None:
    if how == "fine":
        CALLS[method](faulty, how)
    else:
        with pytest.raises((nearcall.NotFound, OutOfPaper)):
            CALLS[method](faulty, how)
    assert faulty.alive()
    assert told(records) == []


def test_it_is_for_debugging(faulty: Any, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "nearcall")
    with pytest.raises(nearcall.NotFound):
        faulty.unary("status")
    (record,) = until(lambda: told(caplog))
    assert record.levelno == logging.DEBUG


@pytest.mark.parametrize("method", ONE_WAY)
def test_a_status_that_nobody_gets_is_a_warning(faulty: Any, records: pytest.LogCaptureFixture, method: str) -> None:
    CALLS[method](faulty, "status")
    (record,) = until(lambda: told(records))
    assert record.levelno == logging.WARNING
    assert "no client learns of it" in record.getMessage()


def test_a_handler_that_cancels_itself_is_logged(faulty: Any, records: pytest.LogCaptureFixture) -> None:
    with pytest.raises(nearcall.Unknown, match="CancelledError"):
        faulty.cancelling_itself()
    until(lambda: told(records, "cancelling_itself raised CancelledError"))


def test_a_fault_after_the_caller_has_gone_is_logged(faulty: Any, records: pytest.LogCaptureFixture) -> None:
    items = faulty.with_cleanup()
    assert next(items) == 1
    items.close()
    until(lambda: told(records, "with_cleanup raised ValueError"))


@pytest.mark.parametrize("method", ["unary", "unary_in_loop", "tell", "tell_in_loop"])
def test_a_text_of_eight_megabytes_is_cut_and_escaped(
    faulty: Any, records: pytest.LogCaptureFixture, method: str
) -> None:
    if method in ONE_WAY:
        CALLS[method](faulty, "huge")
    else:
        with pytest.raises(nearcall.Unknown):
            CALLS[method](faulty, "huge")
    (record,) = until(lambda: told(records))
    text = logging.Formatter().format(record)
    assert len(text) < 20_000
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert r"ValueError: \x1b]0;owned\x07\u202exxx" in text
    assert re.search(r"x\.\.\. \(\d+ characters more\)$", text)


def test_a_flood_is_cut_and_counted(new_url: str, records: pytest.LogCaptureFixture) -> None:
    with nearcall.Server(Faulty(), new_url) as server, nearcall.connect(server.urls[0], Faulty) as client:
        for _ in range(100):
            with pytest.raises(nearcall.Unknown):
                client.unary("fault")
        with pytest.raises(nearcall.Unknown):
            client.unary("exit")  # another fault is not drowned
        until(lambda: told(records, "SystemExit"))
    assert len(told(records, "raised ValueError, called")) == failures.BURST
    (record,) = told(records, "times more")
    assert record.getMessage() == f"Faulty.unary raised ValueError {100 - failures.BURST} times more"


def test_what_was_left_out_is_told_without_another_fault(
    new_url: str, records: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "BURST", 1)
    monkeypatch.setattr(failures, "WINDOW", 0.2)
    with nearcall.Server(Faulty(), new_url) as server, nearcall.connect(server.urls[0], Faulty) as client:
        with pytest.raises(nearcall.Unknown):
            client.unary("fault")
        while not told(records, "times more"):
            with pytest.raises(nearcall.Unknown):
                client.unary("fault")


class Failing(logging.Handler):
    """A handler of the logging system that fails."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self._error = error
        self.asked = 0

    def handle(self, record: logging.LogRecord) -> bool:
        self.asked += 1
        raise self._error


@pytest.mark.parametrize("error", [RuntimeError("no disk"), SystemExit(1)])
def test_a_log_that_fails_does_not_end_the_server(
    new_url: str, error: BaseException, capsys: pytest.CaptureFixture[str]
) -> None:
    failing = Failing(error)
    logger = logging.getLogger("nearcall")
    logger.addHandler(failing)
    logger.setLevel(logging.DEBUG)
    access = nearcall.observe.access_log()
    try:
        with (
            nearcall.Server(Faulty(), new_url, interceptors=[access]) as server,
            nearcall.connect(server.urls[0], Faulty) as client,
        ):
            for call in CALLS.values():
                for how in ("fault", "wrong", "status", "fine"):
                    with contextlib.suppress(nearcall.Unknown, nearcall.Internal, nearcall.NotFound):
                        call(client, how)
            assert client.alive()
    finally:
        logger.removeHandler(failing)
        logger.setLevel(logging.NOTSET)
    assert failing.asked > 20
    assert f"nearcall: logging failed with {type(error).__name__}" in capsys.readouterr().err
