"""Context variables belong to a call: what one client's call has put there, no other call finds."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterator
from contextvars import ContextVar, copy_context
from queue import Queue
from typing import Any

import pytest

import nearcall

from .services import PATIENCE

user: ContextVar[str] = ContextVar("user", default="nobody")


@nearcall.service
class Key:
    def fits(self) -> bool: ...


class OwnKey(Key):
    def __init__(self, ended: threading.Event) -> None:
        self._ended = ended

    def fits(self) -> bool:
        return True

    def close(self) -> None:
        user.set("who had the key")
        self._ended.set()


class Broken(Exception):
    pass


@nearcall.service
class Doors:
    def __init__(self) -> None:
        self.key_is_back = threading.Event()

    def key(self) -> Key:
        return OwnKey(self.key_is_back)

    def break_in(self) -> None:
        user.set("eve")
        raise Broken

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


def test_neither_do_functions_around_calls(new_url: str) -> None:
    """For clients that come and go, for errors, and at the end of objects: they run where calls do."""
    gone = threading.Event()
    seen: list[str] = []

    def come(connection: nearcall.ServerConnection) -> None:
        user.set("who came last")

    def go(connection: nearcall.ServerConnection) -> None:
        user.set("who went last")
        gone.set()

    def explain(error: Broken) -> Exception:
        seen.append(user.get())
        user.set("who failed last")
        return nearcall.Aborted("broken")

    hall = Doors()
    options: dict[str, Any] = {"error_handlers": {Broken: explain}, "max_concurrency": 1}
    with nearcall.Server(hall, new_url, on_connect=come, on_disconnect=go, **options) as server:
        with nearcall.connect(server.urls[0], Doors) as doors:
            assert doors.whoami() == "nobody"
            with pytest.raises(nearcall.Aborted, match="broken"):
                doors.break_in()
            assert doors.whoami() == "nobody"
            key = doors.key()
            assert key.fits()
            del key
            assert hall.key_is_back.wait(PATIENCE)
            assert doors.whoami() == "nobody"
        assert gone.wait(PATIENCE)
        with nearcall.connect(server.urls[0], Doors) as doors:
            assert doors.whoami() == "nobody"
    assert seen == ["eve"]  # an error handler belongs to the call


def test_nor_does_stopping_leave_anything_to_who_stops(new_url: str) -> None:
    """Whoever stops a server runs what its last clients have left to be done."""
    ended: list[nearcall.ServerConnection] = []

    def go(connection: nearcall.ServerConnection) -> None:
        user.set("who went last")
        ended.append(connection)

    server = nearcall.Server(Doors(), new_url, on_disconnect=go)
    with server, nearcall.connect(server.urls[0], Doors) as doors:
        assert doors.whoami() == "nobody"
        server.stop()
        assert user.get() == "nobody"
    assert len(ended) == 1


@pytest.mark.parametrize("in_loop", [False, True])
def test_what_the_starter_has_set_is_seen_by_all(new_url: str, in_loop: bool) -> None:
    """As servers of asyncio have it, and whatever runs a handler."""
    seen: list[str] = []
    gone = threading.Event()

    def lifespan(server: nearcall.Server) -> Iterator[None]:
        seen.append(user.get())
        yield
        seen.append(user.get())

    async def lifespan_in_loop(server: nearcall.Server) -> AsyncIterator[None]:
        for _ in lifespan(server):
            yield

    def come(connection: nearcall.ServerConnection) -> None:
        seen.append(user.get())

    def go(connection: nearcall.ServerConnection) -> None:
        seen.append(user.get())
        gone.set()

    options: dict[str, Any] = {"on_connect": come, "on_disconnect": go}
    options["lifespan"] = lifespan_in_loop if in_loop else lifespan
    server = nearcall.Server(Doors(), new_url, **options)

    def start() -> None:
        user.set("who starts")
        server.start()

    copy_context().run(start)
    user_here = user.set("who stops")
    try:
        with nearcall.connect(server.urls[0]) as doors:
            for _ in range(2):
                assert (doors.whoami(), doors.whoami_in_loop()) == ("who starts", "who starts")
                assert (doors.enter("ada"), doors.enter_in_loop("ada")) == ("who starts", "who starts")
            assert list(doors.names("ada")) == list(doors.names_in_loop("ada")) == ["who starts", "ada", "ada"]
        assert gone.wait(PATIENCE)
        with nearcall.connect(server.urls[0]) as doors:
            assert doors.whoami() == "who starts"
            server.stop()
    finally:
        server.stop()
        user.reset(user_here)
    assert seen == ["who starts"] * 6


ends: Queue[tuple[str, str]] = Queue()


@nearcall.service(instance="session")
class Coat:
    def hang(self) -> None:
        pass

    def close(self) -> None:
        ends.put(("coat", user.get()))
        user.set("who had the coat")


@nearcall.service(instance="session")
class Hat:
    def hang(self) -> None:
        pass

    async def aclose(self) -> None:
        ends.put(("hat", user.get()))
        user.set("who had the hat")


def test_nor_do_the_ends_of_one_client_leave_anything_to_each_other(new_url: str) -> None:
    def go(connection: nearcall.ServerConnection) -> None:
        ends.put(("go", user.get()))

    with nearcall.Server(Coat, Hat, new_url, on_disconnect=go) as server:
        with nearcall.Channel(server.urls[0]) as channel:
            channel.client(Coat).service.hang()
            channel.client(Hat).service.hang()
        assert [ends.get(timeout=PATIENCE) for _ in range(3)] == [
            ("hat", "nobody"),
            ("coat", "nobody"),
            ("go", "nobody"),
        ]
        with nearcall.Channel(server.urls[0]) as channel:  # the other way round: the coat's end is the first
            channel.client(Hat).service.hang()
            channel.client(Coat).service.hang()
        assert [ends.get(timeout=PATIENCE) for _ in range(3)] == [
            ("coat", "nobody"),
            ("hat", "nobody"),
            ("go", "nobody"),
        ]
