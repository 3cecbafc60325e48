"""Declared exceptions arrive with all that they held, wherever they keep it."""

from __future__ import annotations

import builtins
import os
from typing import Any

import numpy as np
import pytest

import nearcall


class Measured(Exception):
    def __init__(self, item: str) -> None:
        super().__init__(f"bad {item}", np.arange(3))
        self.item = item
        self.values = np.array([1.5, 2.5])
        self.nested = {"a": [np.ones(2)], "b": (1, 2)}


class Slotted(Exception):
    __slots__ = ("item", "unset")

    def __init__(self, item: str) -> None:
        super().__init__("slotted")
        self.item = item


class Gone(FileNotFoundError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "gone", path)
        self.path = path


def make(name: str) -> Any:
    if name == "decode":
        return b"a\xff".decode("utf-8")
    if name == "encode":
        return "\ud800".encode()
    if name == "open":
        return open("/does/not/exist")
    if name == "rename":
        return os.rename("/does/not/exist", "/neither")
    if name == "name":
        return undefined  # type: ignore[name-defined]  # noqa: F821
    if name == "attribute":
        return object().nothing  # type: ignore[attr-defined]
    if name == "syntax":
        return compile("a b", "its.py", "exec")
    errors = {
        "import": ImportError("no", name="n", path="p"),
        "measured": Measured("x"),
        "slotted": Slotted("b"),
        "gone": Gone("/p"),
        "stop": StopAsyncIteration(4),
        "array": ValueError(np.arange(3), "x"),
        "os": OSError(5, "e"),
    }
    raise errors[name]


DECLARED: list[type[Exception]] = [
    Measured,
    Slotted,
    Gone,
    FileNotFoundError,
    UnicodeDecodeError,
    UnicodeEncodeError,
    ImportError,
    NameError,
    AttributeError,
    SyntaxError,
    StopAsyncIteration,
    ValueError,
]
Group: Any = getattr(builtins, "ExceptionGroup", None)
if Group is not None:
    DECLARED.append(Group)
NAMES = [
    "decode",
    "encode",
    "open",
    "rename",
    "name",
    "attribute",
    "syntax",
    "import",
    "measured",
    "slotted",
    "gone",
    "stop",
    "array",
]
ATTRIBUTES = [
    "filename",
    "filename2",
    "errno",
    "strerror",
    "name",
    "path",
    "item",
    "encoding",
    "object",
    "start",
    "end",
    "reason",
    "value",
    "msg",
    "lineno",
    "text",
]


@nearcall.service(errors=DECLARED)
class Failing:
    def fail(self, name: str) -> None:
        make(name)

    async def fail_in_loop(self, name: str) -> None:
        make(name)

    def several(self) -> None:
        inner = Group("inner", [Gone("/q"), OSError(5, "e")])
        raise Group("several", [ValueError("a", 1), Measured("y"), nearcall.NotFound("z", details=[1]), inner])


def caught(function: Any, name: str) -> Exception:
    try:
        function(name)
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def plain(value: Any) -> Any:
    """Arrays as their texts, which can be compared."""
    return repr(value)


@pytest.mark.parametrize("method", ["fail", "fail_in_loop"])
def test_an_error_holds_what_it_held(new_url: str, method: str) -> None:
    with nearcall.Server(Failing(), new_url) as server, nearcall.connect(server.urls[0], Failing) as client:
        for name in NAMES:
            raised, arrived = caught(make, name), caught(getattr(client, method), name)
            assert type(arrived) is type(raised), name
            assert str(arrived) == str(raised), name
            assert plain(arrived.args) == plain(raised.args), name
            assert plain(vars(arrived)) == plain(vars(raised)), name
            for attribute in ATTRIBUTES:
                # The object of an AttributeError is the server's.
                if hasattr(raised, attribute):
                    assert plain(getattr(arrived, attribute)) == plain(getattr(raised, attribute)), (name, attribute)


@pytest.mark.skipif(Group is None, reason="groups came with Python 3.11")
def test_a_group_arrives_with_its_exceptions(new_url: str) -> None:
    with (
        nearcall.Server(Failing(), new_url) as server,
        nearcall.connect(server.urls[0], Failing) as client,
        pytest.raises(Exception, match="several") as group,
    ):
        client.several()
    found: Any = group.value
    assert type(found).__name__ == "ExceptionGroup"
    value, measured, missing, inner = found.exceptions
    assert value.args == ("a", 1)
    assert measured.values.tolist() == [1.5, 2.5]
    assert (type(missing), missing.details) == (nearcall.NotFound, [1])
    assert [type(each) for each in inner.exceptions] == [Gone, nearcall.Unknown]
    assert inner.exceptions[0].filename == "/q"
    assert str(inner.exceptions[1]) == "OSError: [Errno 5] e"
