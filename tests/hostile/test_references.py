"""Peers that lie about references: numbers that are forged, of another connection or released, and wrong counts.

Written from docs/protocol.md, like the other peers here. Nobody ever reaches an object that was not passed to it.
"""

from __future__ import annotations

import contextlib
import os
import random
import struct
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

import nearcall

from .frames import CALL, ERROR, ITEM, NAMED, PARTS, PING, PONG, REPLY, Ext, Frame, Received, decode, encode, frame
from .raw import Gone, Peer, connect

BACK, TARGET = 32, 64
RELEASE = 12
REFERENCE = 8
NOT_FOUND, RESOURCE_EXHAUSTED, UNIMPLEMENTED = 5, 8, 12
UNREAD = 16
PATIENCE = 20.0
MOST = 50


@nearcall.service
class Box:
    def content(self) -> str:
        raise NotImplementedError


@nearcall.service
class Ear:
    def hear(self, text: str) -> None:
        raise NotImplementedError


@nearcall.service
class Store:
    def box(self) -> Box:
        raise NotImplementedError

    def same(self) -> Box:
        raise NotImplementedError

    def listen(self, ears: list[Ear]) -> int:
        raise NotImplementedError

    def put(self, box: Box) -> str:
        raise NotImplementedError

    def plain(self) -> str:
        raise NotImplementedError

    def first(self, ears: Iterator[Ear]) -> int:
        raise NotImplementedError

    def first_in_loop(self, ears: Iterator[Ear]) -> int:
        raise NotImplementedError

    def tell(self, ear: Ear, data: bytes) -> None:
        raise NotImplementedError

    def gather(self, data: bytes, more: Iterator[bytes]) -> int:
        raise NotImplementedError


class HereBox(Box):
    def __init__(self, ended: threading.Semaphore, text: str = "content") -> None:
        self._ended = ended
        self._text = text

    def content(self) -> str:
        return self._text

    def close(self) -> None:
        self._ended.release()


class HereStore(Store):
    def __init__(self) -> None:
        self.ended = threading.Semaphore(0)
        self.begun = threading.Semaphore(0)
        self._same = HereBox(threading.Semaphore(0))

    def box(self) -> Box:
        return HereBox(self.ended)

    def same(self) -> Box:
        return self._same

    def listen(self, ears: list[Ear]) -> int:
        return len(ears)

    def put(self, box: Box) -> str:
        return box.content()

    def plain(self) -> str:
        return "plain"

    def first(self, ears: Iterator[Ear]) -> int:
        next(ears)
        return 1

    async def first_in_loop(self, ears: AsyncIterator[Ear]) -> int:  # type: ignore[override]
        await ears.__anext__()
        return 1

    def tell(self, ear: Ear, data: bytes) -> None:
        self.begun.release()
        try:
            ear.hear("it is here")
        finally:
            self.ended.release()

    def gather(self, data: bytes, more: Iterator[bytes]) -> int:
        self.begun.release()
        try:
            return len(data) + sum(map(len, more))
        finally:
            self.ended.release()


def url_of(transport: str, runtime_dir: os.PathLike[str]) -> str:
    name = f"references-{os.getpid()}"
    return f"shm://{name}" if transport == "shm" else f"unix://{runtime_dir}/{name}"


@pytest.fixture(scope="module", params=["shm", "unix"])
def served(request: pytest.FixtureRequest, runtime_dir: os.PathLike[str]) -> Iterator[tuple[str, HereStore]]:
    store = HereStore()
    url = url_of(request.param, runtime_dir)
    with nearcall.Server(store, url, max_references=MOST):
        yield url, store


class Caller:
    """A raw peer that calls, and what it gets."""

    def __init__(self, url: str) -> None:
        self.peer: Peer = connect(url)
        with nearcall.Channel(url) as channel:
            description = channel.description
        self.numbers: dict[str, int] = {}
        number = 0
        for service in [*description["services"], *description["references"]]:
            for method in service["methods"]:
                self.numbers[f"{service['name']}.{method['name']}"] = number
                number += 1
        self._call = 0

    def call(self, method: str, arguments: object = (), target: int | None = None, flags: int = 0) -> Received:
        self.send(method, arguments, target, flags)
        return self.peer.receive(PATIENCE)

    def send(self, method: str, arguments: object = (), target: int | None = None, flags: int = 0) -> None:
        self._call += 1
        self.peer.send(call_of(self.numbers[method], self._call, arguments, target, flags))

    def box(self, method: str = "Store.box") -> int:
        reply = self.call(method)
        assert reply.kind == REPLY
        found = decode(reply.rest)
        assert (found.code, len(found.data), found.data[0]) == (REFERENCE, 9, 0)
        return int.from_bytes(found.data[1:], "little")

    def release(self, *released: tuple[int, int]) -> None:
        self.peer.send(frame(RELEASE, b"".join(struct.pack("<QI", *each) for each in released), call=0))

    def lives(self) -> bool:
        """Whether the server still answers: it answers what was sent before, too."""
        try:
            self.peer.send(frame(PING, b"?", call=777))
            while (found := self.peer.receive(PATIENCE)).kind != PONG:
                pass
        except Gone:
            return False
        return found.call == 777

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_error: object) -> None:
        self.peer.close()


def call_of(method: int, call: int, arguments: object, target: int | None, flags: int = 0) -> Frame:
    payload = encode(arguments) if arguments != () else b""
    if target is None:
        return frame(CALL, payload, method=method, call=call, flags=flags)
    head = struct.pack("<BBHIQ", CALL, flags | TARGET, method, call, target)
    return Frame(head, payload)


def failure(received: Received) -> tuple[int, int]:
    return received.kind, received.rest[0]


@pytest.fixture
def caller(served: tuple[str, HereStore]) -> Iterator[Caller]:
    with Caller(served[0]) as caller:
        yield caller


def test_an_object_is_called_by_its_number(caller: Caller) -> None:
    assert decode(caller.call("Box.content", target=caller.box()).rest) == "content"


def test_forged_numbers(caller: Caller) -> None:
    known = caller.box()
    chance = random.Random(3)
    for forged in [1, known ^ 1, known + 1, (1 << 64) - 1, *(chance.getrandbits(64) or 1 for _ in range(200))]:
        assert failure(caller.call("Box.content", target=forged % (1 << 64) or 1)) == (ERROR, NOT_FOUND)
    assert decode(caller.call("Box.content", target=known).rest) == "content"


def test_numbers_of_another_connection(served: tuple[str, HereStore], caller: Caller) -> None:
    with Caller(served[0]) as other:
        for method in ("Store.box", "Store.same"):
            theirs = other.box(method)
            assert failure(caller.call("Box.content", target=theirs)) == (ERROR, NOT_FOUND)
            # Coming home, too, it must have been passed over this very connection.
            home = Ext(REFERENCE, b"\1" + theirs.to_bytes(8, "little"))
            assert caller.call("Store.put", [home]).kind == ERROR
            assert decode(other.call("Store.put", [home]).rest) == "content"


def test_released_numbers(served: tuple[str, HereStore], caller: Caller) -> None:
    number = caller.box()
    caller.release((number, 1))
    assert served[1].ended.acquire(timeout=PATIENCE)
    assert failure(caller.call("Box.content", target=number)) == (ERROR, NOT_FOUND)
    twice = caller.box("Store.same")
    assert caller.box("Store.same") == twice
    caller.release((twice, 1))
    assert decode(caller.call("Box.content", target=twice).rest) == "content"
    caller.release((twice, 1))
    assert failure(caller.call("Box.content", target=twice)) == (ERROR, NOT_FOUND)


@pytest.mark.parametrize("wrong", ["unknown", "more", "nothing", "zero", "cut off", "empty", "again", "number", "flag"])
def test_wrong_releases_end_the_connection(caller: Caller, wrong: str) -> None:
    number = caller.box()
    entry = struct.pack("<QI", number, 1)
    payload = {
        "unknown": struct.pack("<QI", number ^ 1, 1),
        "more": struct.pack("<QI", number, 2),
        "nothing": struct.pack("<QI", number, 0),
        "zero": struct.pack("<QI", 0, 1),
        "cut off": entry[:-1],
        "empty": b"",
        "again": entry * 2,
    }.get(wrong, entry)
    head = {"number": {"call": 7}, "flag": {"call": 0, "flags": NAMED}}.get(wrong, {"call": 0})
    with contextlib.suppress(Gone):
        caller.peer.send(frame(RELEASE, payload, **head))
    assert not caller.lives()


def test_a_release_among_the_calls_of_the_server_ends_the_connection(caller: Caller) -> None:
    head = struct.pack("<BBHIIQ", CALL, PARTS, caller.numbers["Store.tell"], 900, 1, 1)
    caller.peer.send(Frame(head, encode([Ext(REFERENCE, b"\0" + bytes(7) + b"\5")]) + b"x"))
    assert caller.peer.receive(PATIENCE).kind == CALL
    number = caller.box()
    with contextlib.suppress(Gone):
        caller.peer.send(frame(RELEASE, struct.pack("<QI", number, 1), call=0, flags=BACK))
    assert not caller.lives()


def test_methods_of_others(caller: Caller) -> None:
    number = caller.box()
    assert failure(caller.call("Store.plain", target=number)) == (ERROR, UNIMPLEMENTED)
    assert failure(caller.call("Ear.hear", ["x"], target=number)) == (ERROR, UNIMPLEMENTED)
    # What is called on objects only is served to nobody.
    assert failure(caller.call("Box.content")) == (ERROR, UNIMPLEMENTED)
    assert decode(caller.call("Store.plain").rest) == "plain"


@pytest.mark.parametrize("kind", [CALL, ITEM, REPLY, ERROR])
def test_frames_of_calls_that_the_server_never_made(caller: Caller, kind: int) -> None:
    with contextlib.suppress(Gone):
        caller.peer.send(frame(kind, encode("x"), call=5, flags=BACK))
    assert not caller.lives()


def test_a_target_where_there_is_none(caller: Caller) -> None:
    with contextlib.suppress(Gone):
        caller.peer.send(Frame(struct.pack("<BBHIQ", CALL, TARGET, 0, 1, 0)))
    assert not caller.lives()


def test_a_target_on_an_item(caller: Caller) -> None:
    with contextlib.suppress(Gone):
        caller.peer.send(Frame(struct.pack("<BBHIQ", ITEM, TARGET, 0, 1, caller.box())))
    assert not caller.lives()


def test_more_than_may_be_passed(served: tuple[str, HereStore], caller: Caller) -> None:
    numbers = [caller.box() for _ in range(MOST)]
    for _ in range(20):
        assert failure(caller.call("Store.box")) == (ERROR, RESOURCE_EXHAUSTED)
    caller.release(*((number, 1) for number in numbers[:10]))
    for _ in range(10):
        assert served[1].ended.acquire(timeout=PATIENCE)
    assert len({caller.box() for _ in range(10)}) == 10


def test_many_are_given_to_the_server(caller: Caller) -> None:
    chance = random.Random(5)
    ears = [Ext(REFERENCE, b"\0" + chance.randbytes(8)) for _ in range(5000)]
    caller.send("Store.listen", [ears])
    released = 0
    reply = None
    while reply is None or released < len(ears):
        found = caller.peer.receive(PATIENCE)
        if found.kind == RELEASE:
            released += sum(count for _, count in struct.iter_unpack("<QI", found.rest))
        else:
            reply = found
    assert decode(reply.rest) == 5000
    assert released == 5000


EAR, WRONG = Ext(REFERENCE, b"\0" + (5).to_bytes(8, "little")), Ext(REFERENCE, b"\2" + b"\1" * 8)


def let_go_of(caller: Caller, number: int) -> int:
    """How many times the server has let go of an object, as far as it has got with what was sent before."""
    released = 0
    while True:
        caller.peer.send(frame(PING, b"?", call=778))
        while (found := caller.peer.receive(PATIENCE)).kind != PONG:
            if found.kind == RELEASE:
                entries = list(struct.iter_unpack("<QI", found.rest))
                assert {each for each, _ in entries} == {number}
                released += sum(count for _, count in entries)
        if released:
            return released


@pytest.mark.parametrize(
    ("method", "payload", "flags", "deadline"),
    [
        ("listen", encode([[EAR], 1]), 0, None),
        ("listen", encode([[EAR, 1]]), 0, None),
        ("listen", encode([[1, EAR]]), 0, None),
        ("listen", encode([[WRONG, EAR]]), 0, None),
        ("listen", encode([[EAR]]) + b"?", 0, None),
        ("listen", encode({"ears": [EAR], "more": 1}), NAMED, None),
        ("listen", encode({"mouths": [EAR]}), NAMED, None),
        ("listen", encode([[EAR]]), 0, 0),
        ("tell", encode([EAR]), 0, None),
    ],
)
def test_what_is_given_with_a_call_that_is_refused_is_let_go_of(
    caller: Caller, method: str, payload: bytes, flags: int, deadline: int | None
) -> None:
    number = caller.numbers[f"Store.{method}"]
    parts = () if flags else None
    caller.peer.send(frame(CALL, payload, method=number, call=9, flags=flags, deadline=deadline, parts=parts))
    assert let_go_of(caller, 5) == 1
    assert caller.lives()


def test_what_is_given_with_a_call_of_nothing_is_said_to_be_unread(caller: Caller) -> None:
    """Nobody knows where references stand in it: who gave them takes them back."""
    for number, target in ((caller.numbers["Box.content"], 12345), (caller.numbers["Box.content"], None), (4000, None)):
        caller.peer.send(call_of(number, 9, [EAR], target))
        refused = caller.peer.receive(PATIENCE)
        assert (refused.kind, refused.flags) == (ERROR, UNREAD)
    # Where it is known, they are let go of.
    refused = caller.call("Store.listen", [[EAR, 1]])
    while refused.kind == RELEASE:
        refused = caller.peer.receive(PATIENCE)
    assert (refused.kind, refused.flags) == (ERROR, 0)


def test_what_is_given_in_a_stream_that_is_refused_is_let_go_of(runtime_dir: os.PathLike[str]) -> None:
    url = url_of("unix", runtime_dir) + "-few"
    with nearcall.Server(HereStore(), url, max_streams=1), Caller(url) as caller:
        for call in (8, 9):
            caller.peer.send(frame(CALL, b"", method=caller.numbers["Store.first"], call=call))
        assert failure(caller.peer.receive(PATIENCE)) == (ERROR, RESOURCE_EXHAUSTED)
        caller.peer.send(*[frame(ITEM, encode(EAR), call=9)] * 2)
        assert let_go_of(caller, 5) == 2


@pytest.mark.parametrize("method", ["first", "first_in_loop"])
def test_what_is_given_in_a_stream_that_was_left_early_is_let_go_of(caller: Caller, method: str) -> None:
    item = frame(ITEM, encode(EAR), call=9)
    caller.peer.send(frame(CALL, b"", method=caller.numbers[f"Store.{method}"], call=9), item, item, item)
    released = 0
    while (found := caller.peer.receive(PATIENCE)).kind != REPLY:
        released += sum(count for _, count in struct.iter_unpack("<QI", found.rest))
    caller.peer.send(item, item)  # it does not know yet
    while released < 5:
        released += let_go_of(caller, 5)
    assert released == 5
    # Bytes of another call that look like a reference are none.
    stray = frame(ITEM, encode(EAR), call=10)
    assert caller.call("Store.plain").kind == REPLY
    caller.peer.send(stray, frame(PING, b"?", call=779))
    assert caller.peer.receive(PATIENCE).kind == PONG
    assert caller.lives()


def test_a_reference_counts_as_many_values(caller: Caller) -> None:
    """Each takes a lock and some objects, so that a message of a few megabytes would hold up all for seconds."""
    assert failure_of(caller, 20_001) == RESOURCE_EXHAUSTED
    assert caller.lives()


def failure_of(caller: Caller, ears: int) -> int:
    """The code with which a call is refused that gives so many objects."""
    caller.send("Store.listen", [[EAR] * ears])
    while (found := caller.peer.receive(PATIENCE)).kind == RELEASE:
        pass
    assert found.kind == ERROR
    return found.rest[0]


@pytest.mark.parametrize("data", [b"", b"\0" * 8, b"\0" * 10, b"\2" + b"\1" * 8, b"\0" * 9, b"\1" * 9])
def test_malformed_references(caller: Caller, data: bytes) -> None:
    assert caller.call("Store.listen", [[Ext(REFERENCE, data)]]).kind == ERROR
    assert caller.call("Store.put", [Ext(REFERENCE, data)]).kind == ERROR
    assert caller.call("Store.plain", []).kind in (REPLY, ERROR)
    assert caller.lives()


def test_everything_ends_with_the_connection(served: tuple[str, HereStore]) -> None:
    with Caller(served[0]) as caller:
        for _ in range(MOST):
            caller.box()
    for _ in range(MOST):
        assert served[1].ended.acquire(timeout=PATIENCE)


@pytest.mark.parametrize("method", ["tell", "gather"])
@pytest.mark.parametrize("transport", ["shm", "unix"])
def test_handlers_do_not_wait_for_a_dead_client_whose_messages_have_no_room(
    runtime_dir: os.PathLike[str], transport: str, method: str
) -> None:
    """They keep the memory themselves that its last messages would need before anybody sees that it is gone."""
    store = HereStore()
    url = url_of(transport, runtime_dir) + "-full"
    # Two of these messages are as much as the server keeps of one client.
    data = bytes(700_000)
    with nearcall.Server(store, url, max_message_size=1 << 20, max_memory=4 << 20):
        with Caller(url) as caller:
            for number in range(1, 5):
                if method == "tell":
                    head = struct.pack("<BBHIIQ", CALL, PARTS, caller.numbers["Store.tell"], number, 1, len(data))
                    call = Frame(head, encode([Ext(REFERENCE, b"\0" + bytes(7) + b"\5")]) + data)
                else:
                    call = frame(CALL, data, method=caller.numbers["Store.gather"], call=number)
                # What the server does not read stays where it is.
                caller.peer.send(call, seconds=0.1)
            for _ in range(2):
                assert store.begun.acquire(timeout=PATIENCE)
        for _ in range(2):
            assert store.ended.acquire(timeout=PATIENCE), "a handler waits for a client that is gone"


def test_who_never_answers_leaves_others_their_callbacks(served: tuple[str, HereStore]) -> None:
    """Handlers that wait for callbacks hold threads, of which a server has only so many."""

    class Hears(Ear):
        def hear(self, text: str) -> None:
            pass

    silent = encode([Ext(REFERENCE, b"\0" + bytes(7) + b"\5")])
    with Caller(served[0]) as caller, nearcall.connect(served[0], Store) as honest:
        for number in range(600):
            head = struct.pack("<BBHIIQ", CALL, PARTS, caller.numbers["Store.tell"], number, 1, 1)
            caller.peer.send(Frame(head, silent + b"x"))
        refused = 0
        while refused < 300:
            found = caller.peer.receive(PATIENCE)
            if found.kind == ERROR:
                assert failure(found) == (ERROR, RESOURCE_EXHAUSTED)
                refused += 1
        honest.tell(Hears(), b"x")
