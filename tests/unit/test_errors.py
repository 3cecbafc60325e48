"""The exception tree, and its way over the wire."""

from __future__ import annotations

import copy
import pickle

import pytest

from nearcall import errors
from nearcall.errors import RpcError, describe_error, error_class, make_error
from nearcall.status import StatusCode

CODES = [code for code in StatusCode if code is not StatusCode.OK]


def test_the_codes_are_grpcs() -> None:
    assert [int(code) for code in StatusCode] == list(range(17))


@pytest.mark.parametrize("code", CODES)
def test_every_code_has_its_class(code: StatusCode) -> None:
    cls = error_class(code)
    assert cls.code is code
    assert cls.__name__ == code.name.title().replace("_", "")
    assert cls.__name__ in errors.__all__


@pytest.mark.parametrize("code", CODES)
def test_an_error_arrives_as_it_was_raised(code: StatusCode) -> None:
    sent = error_class(code)("no user 17", details={"id": 17, "tags": ["a"]})
    arrived = make_error(*describe_error(sent))
    assert type(arrived) is type(sent)
    assert (arrived.message, arrived.details) == (sent.message, sent.details)
    assert str(arrived) == "no user 17"
    assert repr(arrived) == f"{type(sent).__name__}('no user 17', details={{'id': 17, 'tags': ['a']}})"


@pytest.mark.parametrize("code", CODES)
def test_errors_can_be_pickled_and_copied(code: StatusCode) -> None:
    error = error_class(code)("text", details=[1])
    error.note = "kept"
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(twin) is type(error)
        assert (twin.message, twin.details, twin.note, twin.args) == ("text", [1], "kept", ("text",))


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.InvalidArgument, ValueError),
        (errors.OutOfRange, ValueError),
        (errors.DeadlineExceeded, TimeoutError),
        (errors.NotFound, LookupError),
        (errors.PermissionDenied, PermissionError),
        (errors.Unimplemented, NotImplementedError),
        (errors.Unavailable, ConnectionError),
    ],
)
def test_natural_builtins_catch_them(cls: type[RpcError], builtin: type[Exception]) -> None:
    with pytest.raises(builtin, match="text"):
        raise cls("text")


def test_other_exceptions_are_unknown() -> None:
    assert describe_error(ZeroDivisionError("division by zero")) == (2, "ZeroDivisionError: division by zero", b"")
    assert describe_error(KeyError()) == (2, "KeyError", b"")


def test_describing_never_raises() -> None:
    class Broken(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no text")

    assert describe_error(Broken()) == (2, "Broken (its text could not be made: RuntimeError)", b"")
    code, message, details = describe_error(errors.Aborted("lost", details=object()))
    assert (code, details) == (10, b"")
    assert message.startswith("lost (its details could not be encoded: TypeError: object is not")
    assert describe_error(ValueError("\ud800"))[1] == "ValueError: \\ud800"


def test_strange_statuses_still_make_an_error() -> None:
    assert type(make_error(99, "what")) is errors.Unknown
    assert type(make_error(0, "what")) is errors.Unknown
    assert make_error(5, "x", b"\xc1").details == b"\xc1"
