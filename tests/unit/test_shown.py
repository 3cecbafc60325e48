"""Text of peers, files and exceptions, made fit to be shown."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nearcall.log import write
from nearcall.types.shown import shown, shown_json, traceback_text


@given(st.text(max_size=200), st.integers(0, 100))
def test_nothing_that_a_terminal_obeys_is_left(text: str, longest: int) -> None:
    fit = shown(text, longest)
    assert fit.isprintable()
    assert len(fit) <= 12 * longest + 40
    if text.isprintable() and len(text) <= longest:
        assert fit == text


def test_what_is_escaped_and_cut() -> None:
    assert shown("größer\x1b[2J\n\u202e\x9b\ud800") == r"größer\x1b[2J\n\u202e\x9b\ud800"
    assert shown("x" * 2100) == "x" * 2000 + "... (100 characters more)"
    assert shown("a\nb\tc", keep="\n") == "a\nb\\tc"


@given(st.recursive(st.none() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_json_keeps_its_value(value: object) -> None:
    fit = shown_json(json.dumps(value, ensure_ascii=False, indent=1))
    assert fit.replace("\n", "").isprintable()
    assert json.loads(fit) == value


def test_tracebacks_are_bounded_whatever_the_exception_is() -> None:
    class Hostile(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    def deep(levels: int) -> None:
        if levels:
            deep(levels - 1)
        raise ValueError("line one\nERROR nearcall: not a line of the log\n" + "y" * 100_000)

    def chain(levels: int) -> BaseException:
        error: BaseException = Hostile()
        for number in range(levels):
            outer = ValueError("\x1b" * 3000, number)
            outer.__cause__ = error
            error = outer
        return error

    try:
        deep(50)
    except ValueError as error:
        text = traceback_text(error)
        assert "\nERROR" not in text
        assert "    ERROR nearcall: not a line of the log" in text
        assert len(text) < 40_000
    text = traceback_text(chain(100))
    assert len(text) < 40_000
    assert "\x1b" not in text


def test_a_traceback_of_nearcall_alone_is_whole() -> None:
    nothing: Any = None
    with pytest.raises(TypeError) as caught:
        shown(nothing)
    error = caught.value
    assert error.__traceback__ is not None
    error.__traceback__ = error.__traceback__.tb_next
    assert "shown.py" in traceback_text(error, begin_with_user=True)


def test_a_formatter_shows_the_text_that_is_fit(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("nearcall.test")
    with caplog.at_level(logging.INFO, "nearcall.test"):
        write(logger, logging.INFO, "%s and %d", "\x1b[31m", 5, error=ValueError("z" * 10_000))
    (record,) = caplog.records
    assert record.getMessage() == r"\x1b[31m and 5"
    assert record.exc_info is not None
    assert logging.Formatter().format(record).endswith("... (8012 characters more)")
