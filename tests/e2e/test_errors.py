"""What a caller learns when a handler fails, and that the server goes on."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pytest

import nearcall

from .services import RAISED, Errors

CODES = [code for code in nearcall.StatusCode if code is not nearcall.StatusCode.OK]


@pytest.fixture
def errors(url: str) -> Iterator[Any]:
    with nearcall.connect(url, Errors) as service:
        yield service
        assert service.fine() == "fine"


@pytest.mark.parametrize("code", CODES)
def test_every_code_with_its_message_and_details(errors: Any, code: nearcall.StatusCode) -> None:
    details = {"id": 17, "tags": ["a", None], "raw": b"\x00"}
    with pytest.raises(nearcall.RpcError) as caught:
        errors.status(int(code), "nothing «here»", details)
    assert caught.value.code is code
    assert caught.value.message == "nothing «here»"
    assert caught.value.details == details
    assert type(caught.value).__name__ == code.name.title().replace("_", "")


def test_large_details(errors: Any) -> None:
    details = {"blob": bytes(500_000), "list": list(range(10_000))}
    with pytest.raises(nearcall.Aborted) as caught:
        errors.status(10, "", details)
    assert caught.value.details == details


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("method", ["raised", "raised_in_loop"])
def test_every_exception_becomes_unknown(errors: Any, method: str, name: str) -> None:
    with pytest.raises(nearcall.Unknown) as caught:
        getattr(errors, method)(name)
    expected = type(RAISED[name]).__name__
    if method == "raised_in_loop" and name == "stop":
        expected = "RuntimeError"  # Python's own rule for coroutines
    assert caught.value.message.startswith(expected)
    if name == "value":
        assert caught.value.message == "ValueError: a bad value"
    assert len(caught.value.message) < 20_000


@pytest.mark.parametrize("name", [name for name in RAISED if name not in ("stop", "stop_async")])
@pytest.mark.parametrize("method", ["raised_in_stream", "raised_in_loop_stream"])
def test_every_exception_ends_a_stream(errors: Any, method: str, name: str) -> None:
    items = getattr(errors, method)(name)
    assert next(items) == 1
    with pytest.raises(nearcall.Unknown, match=type(RAISED[name]).__name__):
        next(items)


@pytest.mark.parametrize("name", RAISED)
@pytest.mark.parametrize("method", ["raised_one_way", "raised_one_way_in_loop"])
def test_one_way_calls_fail_in_silence(errors: Any, method: str, name: str) -> None:
    assert getattr(errors, method)(name) is None


@nearcall.service
class Reported:
    """Not what the other tests call: some of their calls may fail a little later, in this process."""

    @nearcall.oneway
    def raised_one_way(self) -> None:
        raise ValueError("a bad value")

    @nearcall.oneway
    async def raised_one_way_in_loop(self) -> None:
        raise ValueError("a bad value")

    def fine(self) -> str:
        return "fine"


def test_the_operator_learns_of_a_failed_one_way_call(new_url: str, caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.INFO, "nearcall"),
        nearcall.Server(Reported(), new_url) as server,
        nearcall.connect(server.urls[0], Reported) as errors,
    ):
        errors.raised_one_way()
        errors.raised_one_way_in_loop()
        assert errors.fine() == "fine"
    for method in ("raised_one_way", "raised_one_way_in_loop"):
        (record,) = [record for record in caplog.records if f"Reported.{method} raised" in record.getMessage()]
        assert record.levelno == logging.ERROR
        text = logging.Formatter().format(record)
        assert re.search(rf"Traceback .*in {method}\n.*ValueError: a bad value$", text, re.DOTALL), text


def test_a_result_that_does_not_fit_its_annotation(errors: Any) -> None:
    for method in ("wrong_result", "wrong_result_in_loop"):
        with pytest.raises(nearcall.Internal, match=rf"Errors.{method}\(\): the result must be int, got str"):
            getattr(errors, method)()
    with pytest.raises(nearcall.Internal, match=r"Errors.unencodable\(\): the result .*object"):
        errors.unencodable()


def test_a_mistake_inside_the_result_is_named(errors: Any) -> None:
    with pytest.raises(
        nearcall.Internal, match=r"Errors.wrong_inside\(\): the result .*\[0\].x: expected int, got str"
    ):
        errors.wrong_inside()


def test_endless_recursion_is_an_error_like_others(errors: Any) -> None:
    with pytest.raises(nearcall.Unknown, match="RecursionError"):
        errors.recursion()


def test_errors_are_builtin_ones_as_well(errors: Any) -> None:
    with pytest.raises(LookupError):
        errors.status(int(nearcall.StatusCode.NOT_FOUND), "x", None)
    with pytest.raises(TimeoutError):
        errors.status(int(nearcall.StatusCode.DEADLINE_EXCEEDED), "x", None)


class OutOfPaper(Exception):
    pass


@nearcall.service(errors=[OutOfPaper])
class Printer:
    def print_page(self) -> None:
        raise OutOfPaper("tray 2")


def test_declared_exceptions_arrive_as_themselves(new_url: str) -> None:
    with (
        nearcall.Server(Printer(), new_url) as server,
        nearcall.connect(server.urls[0], Printer) as printer,
        pytest.raises(OutOfPaper, match="tray 2"),
    ):
        printer.print_page()
