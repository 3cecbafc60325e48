"""Context variables belong to a call: what one client's call has put there, no other call finds."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar
from typing import Any

import pytest

import nearcall

user: ContextVar[str] = ContextVar("user", default="nobody")


@nearcall.service
class Doors:
    def enter(self, name: str) -> str:
        before = user.get()
        user.set(name)
        return before

    def names(self, name: str) -> Iterator[str]:
        yield user.get()
        user.set(name)
        yield user.get()
        yield user.get()

    async def enter_in_loop(self, name: str) -> str:
        before = user.get()
        user.set(name)
        return before

    async def names_in_loop(self, name: str) -> AsyncIterator[str]:
        yield user.get()
        user.set(name)
        yield user.get()
        yield user.get()

    def fail(self) -> None:
        user.set("eve")
        raise nearcall.Aborted("no")

    def whoami(self) -> str:
        return user.get()

    async def whoami_in_loop(self) -> str:
        return user.get()


def recognize(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    """An interceptor that knows some callers, and leaves the others alone."""
    name = call.context.metadata.get("user")
    if name is not None:
        user.set(str(name))
    return proceed(call)


def test_a_handler_leaves_nothing_to_the_next(new_url: str) -> None:
    with (
        nearcall.Server(Doors(), new_url, max_concurrency=1) as server,
        nearcall.connect(server.urls[0], Doors) as doors,
    ):
        assert [doors.enter("ada") for _ in range(3)] == ["nobody"] * 3
        assert [list(doors.names("ada")) for _ in range(2)] == [["nobody", "ada", "ada"]] * 2
        with pytest.raises(nearcall.Aborted):
            doors.fail()
        assert doors.whoami() == "nobody"


def test_an_interceptor_neither(new_url: str) -> None:
    with (
        nearcall.Server(Doors(), new_url, interceptors=[recognize], max_concurrency=1) as server,
        nearcall.connect(server.urls[0], Doors) as doors,
    ):
        with nearcall.metadata({"user": "ada"}):
            assert doors.whoami() == "ada"
            assert list(doors.names("bob")) == ["ada", "bob", "bob"]
        assert [doors.whoami() for _ in range(3)] == ["nobody"] * 3
        assert list(doors.names("bob")) == ["nobody", "bob", "bob"]


def test_the_same_in_the_loop(new_url: str) -> None:
    with (
        nearcall.Server(Doors(), new_url, interceptors=[recognize]) as server,
        nearcall.connect(server.urls[0]) as doors,
    ):
        with nearcall.metadata({"user": "ada"}):
            assert doors.whoami_in_loop() == "ada"
            assert list(doors.names_in_loop("bob")) == ["ada", "bob", "bob"]
        assert [doors.enter_in_loop("ada") for _ in range(3)] == ["nobody"] * 3
        assert list(doors.names_in_loop("bob")) == ["nobody", "bob", "bob"]
        assert doors.whoami_in_loop() == "nobody"
