"""Objects passed with calls that the other side has not begun: it does not hold them, and who passed them knows."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
import nearcall.aio
from nearcall.service.describing import describe
from nearcall.service.service import plan_of

from ..hostile import raw
from ..hostile.frames import CALL, CANCEL, ERROR, failure, frame, welcome
from .reference_services import ALIVE, OwnThing, Thing
from .test_references import until

PATIENCE = 30.0
MOST = 3
"""Objects that the other side may hold."""
UNREAD = 16
UNIMPLEMENTED = 12


@nearcall.service
class Shelf:
    def put(self, thing: Thing) -> None: ...

    def put_all(self, first: Thing, more: Iterator[Thing]) -> int: ...


class Refusing:
    """A server that has none of the methods, of which it says so at once, or when a call is given up."""

    def __init__(self, transport: str, directory: Path, name: str, late: bool) -> None:
        self._late = late
        self._over = threading.Event()
        self._listener = raw.Listener(transport, directory, name)
        self.url = self._listener.url
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        description = json.dumps(describe([plan_of(Shelf)], references=[plan_of(Thing)]))
        refused = failure(UNIMPLEMENTED, b"there is no such method")
        with contextlib.suppress(OSError, raw.Gone):
            connection = self._listener.accept()
            with self._listener.serve(connection, welcome(description)) as peer:
                while not self._over.is_set():
                    with contextlib.suppress(TimeoutError):
                        one = peer.receive(0.05)
                        if one.kind == (CANCEL if self._late else CALL):
                            peer.send(frame(ERROR, refused, call=one.call, flags=UNREAD))

    def __enter__(self) -> Refusing:
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.close()
        self._thread.join(PATIENCE)


@pytest.fixture(params=["unix", "shm"])
def serve(request: pytest.FixtureRequest, key: str, runtime_dir: Path) -> Callable[..., Refusing]:
    return lambda late=False: Refusing(request.param, runtime_dir, f"n{key}", late)


def calls(client: Any) -> None:
    with pytest.raises(nearcall.Unimplemented):
        client.put(OwnThing())


def starts(client: Any) -> None:
    with pytest.raises(nearcall.Unimplemented):
        nearcall.start(client.put, OwnThing()).result()


def streams(client: Any) -> None:
    with pytest.raises(nearcall.Unimplemented):
        client.put_all(OwnThing(), iter([OwnThing(), OwnThing()]))


def nothing_is_left() -> bool:
    gc.collect()
    return not ALIVE


@pytest.mark.parametrize("call", [calls, starts, streams])
def test_they_are_their_givers_again(serve: Callable[..., Refusing], call: Callable[[Any], None]) -> None:
    with serve() as server, nearcall.connect(server.url, Shelf, max_references=MOST, timeout=PATIENCE) as shelf:
        for _ in range(3 * MOST):
            call(shelf)
        until(nothing_is_left)


def test_they_are_their_givers_again_in_a_loop(serve: Callable[..., Refusing]) -> None:
    async def main(url: str) -> None:
        async with nearcall.aio.connect(url, Shelf, max_references=MOST, timeout=PATIENCE) as shelf:
            for _ in range(3 * MOST):
                with pytest.raises(nearcall.Unimplemented):
                    await shelf.put(OwnThing())
                with pytest.raises(nearcall.Unimplemented):
                    await shelf.put_all(OwnThing(), iter([OwnThing(), OwnThing()]))
            await asyncio.to_thread(until, nothing_is_left)

    with serve() as server:
        asyncio.run(main(server.url))


def test_they_are_their_givers_again_when_nobody_waits_any_more(serve: Callable[..., Refusing]) -> None:
    with serve(late=True) as server, nearcall.connect(server.url, Shelf, max_references=MOST) as shelf:
        for _ in range(3):
            with nearcall.timeout(0.05), pytest.raises(nearcall.DeadlineExceeded):
                shelf.put(OwnThing())
            until(nothing_is_left)


def one_is_left() -> bool:
    gc.collect()
    return len(ALIVE) == 1


class OwnShelf(Shelf):
    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def put(self, thing: Thing) -> None:
        self.begun.set()
        self.may_end.wait(PATIENCE)

    def put_all(self, first: Thing, more: Iterator[Thing]) -> int:
        self.begun.set()
        self.may_end.wait(PATIENCE)
        return 0


def test_a_full_server_lets_go_of_them(new_url: str) -> None:
    own = OwnShelf()
    with (
        nearcall.Server(own, new_url, max_pending=1) as server,
        nearcall.connect(server.urls[0], Shelf, max_references=MOST, timeout=PATIENCE) as shelf,
    ):
        fills = nearcall.start(shelf.put, OwnThing())
        assert own.begun.wait(PATIENCE)
        for _ in range(3 * MOST):
            with pytest.raises(nearcall.ResourceExhausted, match="calls under way"):
                shelf.put(OwnThing())
            until(one_is_left)
            with pytest.raises(nearcall.ResourceExhausted, match="calls under way"):
                shelf.put_all(OwnThing(), iter([OwnThing()]))
            until(one_is_left)
        own.may_end.set()
        fills.result()
