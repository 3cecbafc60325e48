"""A client of ours and a server that means harm: each call ends in time with its answer or with an error of ours.

The server is a few threads of this process; a client, in a process of its own, does what one of the scripts in
victim.py says.
"""

from __future__ import annotations

import contextlib
import mmap
import os
import random
import struct
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from .colliding import ints, packed_map
from .descriptions import GOOD, as_many_methods_as_may_be, thirty_thousand_methods, types_within_types
from .descriptions import wrong as wrong_descriptions
from .frames import (
    CALL,
    CREDIT,
    END,
    ERROR,
    GOAWAY,
    HEAD,
    ITEM,
    NOBODY,
    PING,
    PONG,
    REJECT,
    REPLY,
    WELCOME,
    Ext,
    Frame,
    Received,
    array,
    credit,
    encode,
    failure,
    frame,
    message,
    pairs,
    welcome,
)
from .machine import Machine
from .meeting import AT_ONCE, encounter
from .raw import NOTE, PAGE, Gone, Listener, MemoryPeer, Peer, memfd
from .target import ALL, in_turn
from .victim import MANY, Victims

MIB = 1 << 20

Harm = Callable[[Peer, "Host"], None]


@dataclass
class Case:
    """What a server does."""

    name: str
    harm: Harm | None
    scripts: tuple[str, ...]
    greeting: Callable[[Host, Any], bytes | None] | None
    over: tuple[str, ...] = ALL


CASES: list[Case] = []


CHILD = (*ALL, "child")
"""Also from a child of the client's."""


def server(*scripts: str, over: tuple[str, ...] = ALL) -> Callable[[Harm], Harm]:
    """Adds what a server does after a proper handshake, and what clients do meanwhile."""

    def register(harm: Harm) -> Harm:
        CASES.append(Case(harm.__name__, harm, scripts, None, over))
        return harm

    return register


def greeter(
    *scripts: str,
    over: tuple[str, ...] = ALL,
) -> Callable[[Callable[[Host, Any], bytes | None]], Callable[[Host, Any], bytes | None]]:
    """Adds what a server does in place of a handshake; what it returns is its welcome."""

    def register(greeting: Callable[[Host, Any], bytes | None]) -> Callable[[Host, Any], bytes | None]:
        CASES.append(Case(greeting.__name__, None, scripts, greeting, over))
        return greeting

    return register


class Host:
    """Serves each client that comes, in a thread of its own, until closed."""

    def __init__(self, transport: str, directory: Path, name: str, case: Case) -> None:
        self.listener = Listener(transport, directory, name)
        self.url = self.listener.url
        self.case = case
        self.closed = threading.Event()
        self.number = 0
        """How many clients have come."""
        self.failures: list[str] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    def _accept(self) -> None:
        while not self.closed.is_set():
            try:
                connection = self.listener.accept()
            except OSError:
                continue
            self.number += 1
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._threads.append(thread)
            thread.start()

    def _serve(self, connection: Any) -> None:
        with contextlib.closing(connection):
            try:
                answer: bytes | None = welcome(GOOD)
                if self.case.greeting is not None:
                    answer = self.case.greeting(self, connection)
                if answer is None:
                    return
                with self.listener.serve(connection, answer) as peer:
                    (self.case.harm or answer_properly)(peer, self)
            except (Gone, OSError, TimeoutError):
                pass
            except Exception as error:
                self.failures.append(f"{type(error).__name__}: {error}")

    def calls(self, peer: Peer) -> Iterator[Received]:
        """Frames that come, until the client has gone."""
        while not self.closed.is_set():
            with contextlib.suppress(TimeoutError):
                yield peer.receive(0.05)

    def wait(self, seconds: float = 5.0) -> None:
        """Until the test is over."""
        self.closed.wait(seconds)

    def close(self) -> None:
        self.closed.set()
        self.listener.close()
        self._accepting.join(10)
        for thread in self._threads:
            thread.join(10)


def answer_properly(peer: Peer, host: Host) -> None:
    """Whatever it is, it is answered by an empty reply."""
    for one in host.calls(peer):
        if one.kind == CALL:
            peer.send(frame(REPLY, call=one.call))
        elif one.kind == PING:
            peer.send(frame(PONG, one.rest, call=one.call))


def answering(*frames: Callable[[int], Frame | bytes]) -> Harm:
    """Answers each call with these frames."""

    def harm(peer: Peer, host: Host) -> None:
        for one in host.calls(peer):
            if one.kind in (CALL, PING):
                peer.send(*[make(one.call) for make in frames], seconds=0.3)

    return harm


# In place of a handshake.


@greeter("connects", "connects_in_a_loop", over=CHILD)
def hangs_before_the_handshake(host: Host, connection: Any) -> None:
    host.wait()


@greeter("connects", "connects_in_a_loop")
def hangs_after_half_a_welcome(host: Host, connection: Any) -> None:
    connection.sendall(welcome(GOOD)[:500])
    host.wait()


@greeter("connects")
def drips_its_welcome(host: Host, connection: Any) -> None:
    for byte in message(WELCOME, b" " * 1000):
        connection.sendall(bytes([byte]))
        if host.closed.wait(0.02):
            break


@greeter("connects", "connects_dynamically")
def welcomes_of_16_mb(host: Host, connection: Any) -> bytes:
    return message(WELCOME, b" " * (16 * MIB))


@greeter("connects", over=CHILD)
def announces_more_than_there_may_be(host: Host, connection: Any) -> None:
    connection.sendall(message(WELCOME, b"", length=NOBODY) + bytes(1000))
    host.wait()


@greeter("connects", "connects_dynamically", over=CHILD)
def rejects_with_escapes(host: Host, connection: Any) -> None:
    connection.sendall(message(REJECT, b"\x1b]0;owned\x07\x1b[2J\xff\xfe" * 10_000))


@greeter("connects", over=CHILD)
def hangs_up_at_once(host: Host, connection: Any) -> None:
    return None


@greeter("connects", "connects_in_a_loop", over=CHILD)
def speaks_another_language(host: Host, connection: Any) -> None:
    answers = [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 100, b"NCAL", b"NCAL\2\2" + bytes(6), b"SSH-2.0-x\r\n"]
    connection.sendall(answers[host.number % len(answers)])


@greeter("connects", "connects_dynamically")
def describes_far_too_much(host: Host, connection: Any) -> bytes:
    return welcome(thirty_thousand_methods())


@greeter("connects", "connects_dynamically")
def describes_as_much_as_may_be(host: Host, connection: Any) -> bytes:
    return welcome(as_many_methods_as_may_be())


@greeter("connects", "connects_dynamically")
def describes_types_within_types(host: Host, connection: Any) -> bytes:
    return welcome(types_within_types())


# After a proper one.


@server("uses", "uses_in_threads", "uses_in_a_loop", over=CHILD)
def never_answers(peer: Peer, host: Host) -> None:
    for _ in host.calls(peer):
        pass


@server("sends_much", "uses", over=CHILD)
def never_reads(peer: Peer, host: Host) -> None:
    host.wait(20)


@server("uses", "uses_in_threads", "uses_in_a_loop")
def answers_others(peer: Peer, host: Host) -> None:
    answering(
        *[lambda call, n=n: frame(REPLY, b"x", call=(call + n) & NOBODY) for n in (1, 2, -1, 1 << 20, 1 << 31)],
        lambda call: frame(REPLY, b"x", call=NOBODY),
    )(peer, host)


@server("uses", "uses_in_threads", "uses_in_a_loop")
def answers_twice(peer: Peer, host: Host) -> None:
    answering(
        *[lambda call: frame(REPLY, b"x", call=call)] * 2, lambda call: frame(ERROR, failure(5, b"no"), call=call)
    )(peer, host)


@server("uses", "uses_in_a_loop", over=CHILD)
def sends_what_nobody_asked_for(peer: Peer, host: Host) -> None:
    stray: list[Callable[[int], Frame | bytes]] = []
    for kind in (CALL, ITEM, END, HEAD, PONG, CREDIT, 6):
        stray.append(lambda call, kind=kind: frame(kind, struct.pack("<Q", 5), call=call))
        stray.append(lambda call, kind=kind: frame(kind, struct.pack("<Q", 5), call=call ^ 5))
    answering(*stray, lambda call: frame(REPLY, b"x", call=call))(peer, host)


@server("uses", "uses_in_a_loop")
def sends_endless_pings(peer: Peer, host: Host) -> None:
    batch = peer.batch([frame(PING, b"x" * 100, call=NOBODY)] * 100)
    while not host.closed.is_set():
        if peer.push(batch, 0.2) < len(batch):
            # A client that does not take more pings is right; it may be waiting for us to read its pongs.
            peer.received_all(0.01)


@server("reads_slowly")
def sends_items_beyond_the_window(peer: Peer, host: Host) -> None:
    for one in host.calls(peer):
        if one.kind == CALL:
            peer.flood([frame(ITEM, bytes(MIB), call=one.call)], 5, most=600 * MIB)


@server("reads_slowly")
def sends_tiny_items_beyond_the_window(peer: Peer, host: Host) -> None:
    for one in host.calls(peer):
        if one.kind == CALL:
            peer.flood([frame(ITEM, b"x", call=one.call)] * 1000, 5, most=5 * MIB)


@server("uses", "uses_in_a_loop")
def fails_with_60_mb_of_text(peer: Peer, host: Host) -> None:
    answering(lambda call: frame(ERROR, failure(5, b"\x1b[2J" * (15 * MIB)), call=call))(peer, host)


@server("uses", "uses_in_a_loop")
def fails_with_details_that_are_none(peer: Peer, host: Host) -> None:
    details = [b"\xc1", b"\x91" * 5000, encode(Ext(3, b"")), encode(Ext(3, b"\xc1")), encode(Ext(3, encode([])))]
    errors: list[Any] = [5, [], {}, {"name": 5}, {"name": "KeyboardInterrupt"}, {"name": "ValueError", "args": 5}]
    details += [encode(Ext(3, encode({"error": error}))) for error in errors]
    details.append(encode(Ext(3, encode({"traceback": b"\xff", "details": {1: [None]}}))))
    details.append(encode(Ext(3, encode({"error": {"name": "x", "args": [], "attributes": {"__class__": 5}}}))))
    number = 0
    for one in host.calls(peer):
        if one.kind == CALL:
            number += 1
            raw = failure((0, 1, 5, 13, 16, 17, 255)[number % 7], b"\xff\0\x1b", details[number % len(details)])
            peer.send(frame(ERROR, raw, call=one.call))


@server("uses", "uses_in_a_loop")
def fails_without_saying_how(peer: Peer, host: Host) -> None:
    number = 0
    for one in host.calls(peer):
        if one.kind == CALL:
            number += 1
            raw = (b"", b"\5", struct.pack("<BI", 5, NOBODY), struct.pack("<BI", 5, 100) + b"short")[number % 4]
            peer.send(frame(ERROR, raw, call=one.call))


@server("uses", "uses_in_a_loop")
def answers_with_what_is_no_value(peer: Peer, host: Host) -> None:
    bodies = [b"", b"\xc1", b"\x91" * 100_000, encode("x" * 100), encode({}), encode(None), b"\xdd\xff\xff\xff\xff"]
    number = 0
    for one in host.calls(peer):
        if one.kind == CALL:
            number += 1
            for kind in (ITEM, REPLY):
                peer.send(frame(kind, bodies[number % len(bodies)], call=one.call, parts=[] if number % 2 else None))


@server("uses")
def answers_with_arrays_that_lie(peer: Peer, host: Host) -> None:
    headers = [array(dtype, [1000]) for dtype in ("S0", "U0", "<f8", "O", "f" * 100_000)]
    headers += [array("<f8", shape) for shape in ([1 << 62], [1 << 63], [1 << 32, 1 << 32])]
    headers += [array("S0", [1 << 33]), array("U0", [1 << 31])]
    for number, one in enumerate(host.calls(peer)):
        if one.kind == CALL:
            for header in headers if number == 3 else headers[number % len(headers) :][:1]:
                peer.send(frame(REPLY, header, call=one.call, parts=[0]))


@server("uses", "uses_in_a_loop")
def answers_with_malformed_frames(peer: Peer, host: Host) -> None:
    for one in host.calls(peer):
        if one.kind == CALL:
            start = struct.pack("<BBHI", REPLY, 2 + 4, 0, one.call)
            wrong = [b"", start[:5], start, start + b"\xff" * 4, struct.pack("<BBHI", REPLY, 255, 0, one.call)]
            wrong += [struct.pack("<BBHI", 200, 0, 0, one.call), struct.pack("<BBHII", REPLY, 4, 0, one.call, NOBODY)]
            peer.send(wrong[host.number % len(wrong)])


@server("uses", "uses_in_threads", "uses_in_a_loop")
def says_goaway_at_once(peer: Peer, host: Host) -> None:
    peer.send(frame(GOAWAY, call=0))
    for _ in host.calls(peer):
        pass


@server("uses", "uses_in_threads", "uses_in_a_loop")
def hangs_up_on_every_call(peer: Peer, host: Host) -> None:
    for one in host.calls(peer):
        if one.kind == CALL:
            return


@server("uses", "uses_in_a_loop")
def stops_in_the_middle_of_a_reply(peer: Peer, host: Host) -> None:
    for one in host.calls(peer):
        if one.kind == CALL:
            batch = peer.batch([frame(REPLY, bytes(20_000), call=one.call)])
            with contextlib.suppress(struct.error, ValueError):
                peer.push(memoryview(batch)[: len(batch) // 2], 0.1)
            host.wait()


@server("uses")
def sends_metadata_of_millions_of_pairs(peer: Peer, host: Host) -> None:
    empty = pairs((b"", b"")) * 1_000_000
    for one in host.calls(peer):
        if one.kind == CALL:
            for kind in (HEAD, REPLY):
                peer.send(frame(kind, call=one.call, metadata=empty), seconds=1)


@server("uses")
def answers_with_many_empty_maps(peer: Peer, host: Host) -> None:
    count = 8 * MIB
    body = b"\xdd" + struct.pack(">I", count) + b"\x80" * count
    for one in host.calls(peer):
        if one.kind == CALL:
            peer.send(frame(REPLY, body, call=one.call, parts=[]), seconds=1)


@server("uses", "uses_in_a_loop")
def answers_with_keys_that_collide(peer: Peer, host: Host) -> None:
    """In a result, an item of a stream, and the details of an error."""
    body = packed_map([encode(key) for key in ints(14)])
    for number, one in enumerate(host.calls(peer)):
        if one.kind == CALL and number % 2:
            peer.send(frame(ERROR, failure(5, b"no", body), call=one.call), seconds=1)
        elif one.kind == CALL:
            peer.send(frame(REPLY, body, call=one.call, parts=[]), seconds=1)


@server("uses", "sends_much")
def gives_credit_without_end(peer: Peer, host: Host) -> None:
    for one in host.calls(peer):
        if one.kind == CALL:
            peer.send(*[credit(amount, one.call) for amount in (1 << 63, (1 << 64) - 1, (1 << 63) - 1, 1)])
            peer.send(frame(CREDIT, b"short", call=one.call))


@server("uploads_much")
def gives_credit_and_reads_no_more(peer: Peer, host: Host) -> None:
    for one in host.calls(peer):
        if one.kind == CALL:
            peer.send(credit(1 << 40, one.call))
            host.wait(20)


@server("uses_in_threads", "uses")
def is_replaced_by_one_that_hangs(peer: Peer, host: Host) -> None:
    """The first connection is good, until its first call; those that follow get no handshake."""

    def hang(host: Host, connection: Any) -> None:
        host.wait(20)

    for one in host.calls(peer):
        if one.kind == CALL:
            host.case = Case("", None, (), hang)
            return


def scribbling(peer: MemoryPeer, over: threading.Event, seed: int) -> None:
    """Writes lengths, counters and bytes into all that the client reads, and into what it has written."""
    chance = random.Random(seed)
    words = [0, 3, 8, 500, 60_000, NOTE - 1, NOTE | 20, NOTE | 13, NOBODY]
    while not over.is_set():
        with contextlib.suppress(ValueError):
            peer.put(peer.into_at + 8 * chance.randrange(peer.ring // 8), chance.choice(words), "I")
            peer.put(peer.out_at + 8 * chance.randrange(peer.ring // 8), chance.choice(words), "I")
            peer.memory[peer.out_at + chance.randrange(2000)] = chance.randrange(256)
            if chance.random() < 0.0002:
                peer.put(chance.randrange(PAGE // 8) * 8, chance.choice(words), "Q")


@server("uses", "uses_in_threads", "uses_in_a_loop", over=("shm",))
def changes_the_ring_while_it_is_read(peer: Peer, host: Host) -> None:
    assert isinstance(peer, MemoryPeer)
    over = threading.Event()
    scribblers = [threading.Thread(target=scribbling, args=(peer, over, seed)) for seed in (host.number, 7)]
    for scribbler in scribblers:
        scribbler.start()
    try:
        answer_whatever_comes(peer, host)
    finally:
        over.set()
        for scribbler in scribblers:
            scribbler.join()


def answer_whatever_comes(peer: Peer, host: Host) -> None:
    """What the client has written may be changed here, too, before it is read."""
    end = time.monotonic() + 1.0
    while time.monotonic() < end and not host.closed.is_set():
        with contextlib.suppress(TimeoutError, struct.error, KeyError, IndexError, ValueError):
            for call in range(4):
                peer.send(frame(REPLY, encode([1] * 50), call=call, parts=[]), seconds=0.01)
                peer.send(frame(REPLY, b"x" * 300, call=call), seconds=0.01)
            peer.receive(0.001)


@server("uses", "uses_in_a_loop", over=("shm",))
def changes_long_replies_while_they_are_read(peer: Peer, host: Host) -> None:
    """They lie in memory that it may write to: what is decoded must be a copy."""
    assert isinstance(peer, MemoryPeer)
    size, number = 1 << 20, 0
    bodies = [b"\xdd" + struct.pack(">I", size - 5) + b"\1" * (size - 5), b"\xdb" + struct.pack(">I", size - 5)]
    fd = memfd(64 + size + PAGE - (64 + size) % PAGE)
    try:
        with mmap.mmap(fd, 0) as memory:
            for one in host.calls(peer):
                if one.kind != CALL:
                    continue
                memory[:4] = struct.pack("<I", 1)
                memory[64 : 64 + size] = bodies[0]
                peer.announce(number, len(memory), fd)
                head = frame(REPLY, call=one.call, parts=[] if number % 2 else None).head
                note = struct.pack("<IQB", number, size, 1)
                peer.push(peer.record(note + head, is_note=True), 1.0)
                number += 1
                for turn in range(2000):
                    memory[64:69] = bodies[turn % 2][:5]
                    memory[70 + turn] = 0xDC + turn % 4
    finally:
        os.close(fd)


def _parameters() -> list[Any]:
    return [pytest.param(case, id=case.name) for case in CASES]


_numbers = iter(range(1 << 30))


def meet(case: Case, script: str, transport: str, victims: Queue[Victims], machine: Machine, directory: Path) -> str:
    """What was wrong when a client met a server; empty if nothing was."""
    host = Host(transport, directory, f"x{os.getpid()}-{next(_numbers)}", case)
    return encounter(host, script, transport, victims, machine)


@pytest.mark.parametrize("case", _parameters())
def test_whatever_a_server_does_calls_end_in_time(
    case: Case, victims: Queue[Victims], stalls: Machine, runtime_dir: Path
) -> None:
    """Over its transports at once: most of the time is spent waiting."""
    stalls.begin()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        meetings = [
            pool.submit(meet, case, script, transport, victims, stalls, runtime_dir)
            for script in case.scripts
            for transport in in_turn(case.over, CASES.index(case))
        ]
    wrong = [meeting.result() for meeting in meetings if meeting.result()]
    assert not wrong, f"{case.name}: {len(wrong)} of {len(meetings)}:\n" + "\n".join(wrong)


def test_a_description_may_be_anything(victims: Queue[Victims], stalls: Machine, runtime_dir: Path) -> None:
    """All over one transport: what comes after the handshake is the same code."""
    stalls.begin()
    descriptions, wrong = wrong_descriptions(), []
    for first in range(0, len(descriptions), MANY):

        def greeting(host: Host, connection: Any, first: int = first) -> bytes:
            # Each is met by a client with an interface and by one without.
            return welcome(descriptions[min(first + (host.number - 1) // 2, len(descriptions) - 1)])

        case = Case("", None, (), greeting)
        if complaint := meet(case, "connects_many_times", "unix", victims, stalls, runtime_dir):
            wrong.append(f"descriptions from {first} on: {complaint}")
    assert not wrong, "\n".join(wrong)
