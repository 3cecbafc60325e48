"""The exception tree, and its way over the wire."""

from __future__ import annotations

import copy
import pickle

import msgspec
import pytest

from nearcall import errors
from nearcall.codec.statuses import describe_error, make_error
from nearcall.errors import RpcError, error_class
from nearcall.status import StatusCode

CODES = [code for code in StatusCode if code is not StatusCode.OK]


def test_the_codes_are_grpcs() -> None:
    assert [int(code) for code in StatusCode] == list(range(17))


def test_a_code_is_shown_by_its_name_on_every_version_of_python() -> None:
    code = StatusCode.NOT_FOUND
    assert (str(code), f"{code}", f"{code:>22}") == (*["StatusCode.NOT_FOUND"] * 2, "  StatusCode.NOT_FOUND")
    assert (f"{code:d}", f"{code:02d}", int(code), code == 5) == ("5", "05", 5, True)


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


class Known(Exception):
    pass


def envelope(value: object) -> bytes:
    encode, ext = msgspec.msgpack.encode, msgspec.msgpack.Ext
    return encode(ext(3, value if isinstance(value, bytes) else encode(value)))


@pytest.mark.parametrize(
    "described",
    [
        7,
        "Known",
        {},
        {"name": "Known"},
        {"name": "Known", "args": 3, "attributes": {}},
        {"name": "Known", "args": [], "attributes": 3},
        {"name": ["Known"], "args": [], "attributes": {}},
        {"name": "Other", "args": [], "attributes": {}},
    ],
)
def test_a_malformed_exception_is_the_status_that_it_came_with(described: object) -> None:
    error = make_error(5, "gone", envelope({"error": described, "details": [1]}), declared={"Known": Known})
    assert type(error) is errors.NotFound
    assert (error.message, error.details) == ("gone", [1])


@pytest.mark.parametrize("body", [b"", b"\xc1", 7, [1], {1: 2}])
def test_a_malformed_envelope_is_kept_as_bytes(body: object) -> None:
    error = make_error(5, "gone", envelope(body), declared={"Known": Known})
    assert type(error) is errors.NotFound
    assert error.details == envelope(body)
    assert error.remote_traceback is None


def test_what_a_peer_must_not_set() -> None:
    attributes = {
        "__notes__": ["x"],
        "_secret": 1,
        "remote_traceback": "x",
        "with_traceback": 1,
        "args": [2],
        "good": 3,
    }
    described = {"name": "Known", "args": [1], "attributes": attributes}
    error = make_error(2, "", envelope({"error": described, "traceback": 7, "new": 1}), declared={"Known": Known})
    assert type(error) is Known
    assert error.args == (1,)
    assert "_secret" not in vars(error)
    assert "remote_traceback" not in vars(error)
    assert not getattr(error, "__notes__", None)
    assert callable(error.with_traceback)
    assert vars(error)["good"] == 3
