"""Peers that say what is wrong: each is refused or hung up on, gets no byte of another, and others are served."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any

from .frames import (
    CALL,
    CANCEL,
    CREDIT,
    DEADLINE,
    END,
    ERROR,
    GOAWAY,
    HEAD,
    HELLO,
    ITEM,
    METADATA,
    NAMED,
    NOBODY,
    ONEWAY,
    PARTS,
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
    frame,
    hello,
    message,
    pairs,
)
from .raw import RING, Gone, connect, memfd
from .services import SECRET
from .target import Attack, Scene, Table, every

TABLE = Table()
SEED = int(os.environ.get("NEARCALL_HOSTILE_SEED", "9"))
HUGE = (1 << 64) - 1


def answers(scene: Scene, frames: Iterable[Frame | bytes], quiet: float = 0.005) -> list[Received]:
    """What a connection of its own gets for these frames and a ping behind them, which shows that they were read."""
    with connect(scene.url) as peer:
        found: list[Received] = []
        with contextlib.suppress(Gone, TimeoutError):
            peer.send(*frames, seconds=1)
            peer.send(frame(PING, b"read?", call=777), seconds=1)
        with contextlib.suppress(Gone, TimeoutError):
            while True:
                were_read = any(one.call == 777 for one in found)  # the answer of a handler may come behind that
                found.append(peer.receive(quiet if were_read else 2.0))
    return found


def no_secret(found: Iterable[Received]) -> None:
    for one in found:
        assert SECRET[:12] not in one.rest, f"another's secret in {one.kind} for call {one.call}"


def hangs_up(found: list[Received]) -> bool:
    return not any(one.kind == PONG and one.call == 777 for one in found)


DTYPES: list[Any] = [
    *(
        "S0",
        "U0",
        "V0",
        "|S0",
        "<U0",
        "S",
        "U",
        "V",
        "S1",
        "S1000000000",
        "U536870911",
        "V2147483647",
        "O",
        "|O",
        "<f8",
    ),
    *("M8", "<M8[ns]", "<m8[15D]", "M8[0s]", "b1", "?", "f16", "<c32", "a0", "a", "f8,S0", "3S0", "(2,3)S0", "()f8"),
    *("(1000000,1000000)f8", "(0,)f8", "float64", "object", "", ",", "\0", "f8" * 500, "f" * 100_000, "é", "<f8\n"),
    *([["x", "S0"]], [["x", "S0"], ["y", "U0"]], [["x", "<f8", [1 << 40]]], [["x", "<f8", [0]]], [["x", "O"]]),
    *([["x", [["y", "S0"]]]], [["", "<f8"]], [["x", "<f8"], ["x", "<f8"]], [], [[]], [["x"]], [["x", "<f8", [-1]]]),
    *(None, 0, -1, 1.5, True, {"names": ["x"], "formats": ["S0"]}, {"x": 1}, [["x", "<f8", 3, 4]], [[1, "<f8"]]),
    *([["x", "<f8", "3"]], [["x", "S0", [1000]]], [[f"f{number}", "S0"] for number in range(300)], b"S0"),
]
SHAPES: list[Any] = [
    *([], [0], [1], [1000], [1 << 40], [1 << 62], [1 << 63], [HUGE], [1 << 32, 1 << 32], [1 << 31] * 3, [0, 1 << 62]),
    *([-1], [-1, -1], [1] * 33, [1] * 65, [0] * 64, [1.0], ["1"], [None], [True], None, 5, "5", {}, [[5]], [1000, 0]),
    *([1 << 33, 1 << 31, 2], [100_000] * 5),
]
BUFFERS = [b"", b"x", bytes(8), bytes(1000), bytes(8000)]


@TABLE.add()
def array_headers_that_lie(scene: Scene) -> None:
    """What comes back is what was sent, or an error."""
    chance = random.Random(SEED)
    peer = scene.connect()
    cases: list[tuple[Any, Any, Any, Any, bytes]] = []
    cases += [(dtype, shape, "C", 0, data) for dtype in ("S0", "U0", "V0") for shape in SHAPES for data in BUFFERS[:2]]
    cases += [(dtype, [1000], "C", 0, b"") for dtype in DTYPES]
    cases += [("<f8", shape, "C", 0, data) for shape in SHAPES for data in BUFFERS]
    cases += [("<f8", [1], order, 0, bytes(8)) for order in ("A", "K", "", "CF", None, 0, "f", b"C", "C" * 10_000)]
    cases += [("<f8", [1], "C", index, bytes(8)) for index in (1, -1, 1 << 40, HUGE, None, "0", 0.0, True, [0])]
    for _ in range(scene.amount(200, 20_000)):
        cases.append(
            (chance.choice(DTYPES), chance.choice(SHAPES), chance.choice("CF"), chance.choice([0, 0, 1]), BUFFERS[0])
        )
    for number, (dtype, shape, order, index, data) in enumerate(cases):
        try:
            header = array(dtype, shape, order, index)
        except (OverflowError, TypeError):
            continue
        for method in ("array", "floats", "many"):
            body = encode([Ext(99, b"")]).replace(encode(Ext(99, b"")), header)
            try:
                peer.send(scene.call(peer, method, body + data, call=number, parts=[len(data)]))
                reply = peer.receive(5)
            except Gone:
                peer = scene.connect()
                continue
            no_secret([reply])
            if method == "array" and reply.kind == REPLY:
                assert len(reply.rest) < 2 * len(header) + len(data) + 200, f"{dtype} {shape}: {len(reply.rest)} bytes"


@TABLE.add()
def array_headers_that_are_none(scene: Scene) -> None:
    bodies = [
        Ext(2, b""),
        Ext(2, b"\xc1"),
        Ext(2, encode([])),
        Ext(2, encode(["<f8"])),
        Ext(2, encode({})),
        Ext(1, b""),
    ]
    bodies += [Ext(1, encode(n)) for n in (-1, 1, 1 << 40, HUGE, None)] + [
        Ext(n, b"x" * 40) for n in range(-128, 128, 5)
    ]
    bodies += [Ext(2, b"\x94" + b"\x91" * 5000), Ext(2, encode(["<f8", [1], "C", 0, 0, 0])), Ext(2, bytes(100_000))]
    peer = scene.connect()
    calls = [scene.call(peer, method, encode([b]), parts=[0]) for b in bodies for method in ("array", "many", "nap")]
    with contextlib.suppress(Gone):
        peer.send(*calls)
    no_secret(peer.received_all())


def malformed(methods: dict[str, int]) -> dict[str, list[Frame | bytes]]:
    """Frames that break the protocol, by what is wrong: the server hangs up."""
    echo = methods["echo"]
    start = struct.pack("<BBHI", CALL, 0, echo, 1)
    return {
        "nothing": [b""],
        "a head cut off": [start[:7]],
        "half a deadline": [struct.pack("<BBHI", CALL, DEADLINE, echo, 1) + b"1234"],
        "no length of metadata": [struct.pack("<BBHI", CALL, METADATA, echo, 1) + b"1"],
        "metadata longer than the frame": [struct.pack("<BBHII", CALL, METADATA, echo, 1, NOBODY) + b"x" * 50],
        "no count of parts": [struct.pack("<BBHI", CALL, PARTS, echo, 1)],
        "four billion parts": [struct.pack("<BBHII", CALL, PARTS, echo, 1, NOBODY) + bytes(800)],
        "65,537 parts": [frame(CALL, method=echo, parts=[0] * 65_537)],
        "a flag of nobody": [frame(CALL, method=echo, flags=32)],
        "all flags": [frame(CALL, bytes(64), method=echo, flags=255)],
        **{f"kind {kind}": [frame(kind, b"x")] for kind in (0, 12, 99, 255)},
        "metadata with a broken key": [frame(CALL, method=echo, metadata=pairs((b"\xff\xfe", b"v")))],
        "metadata cut in a key": [frame(CALL, method=echo, metadata=b"\xff\xffab")],
        "metadata cut in a value": [frame(CALL, method=echo, metadata=b"\1\0k\xff\xff\xff\xff")],
        "metadata cut in a length": [frame(CALL, method=echo, metadata=b"\1")],
    }


@TABLE.add()
def malformed_frames(scene: Scene) -> None:
    """Each on a connection of its own."""
    for what, frames in malformed(scene.connect().methods).items():
        assert hangs_up(answers(scene, frames)), f"{what}: the server goes on"


@TABLE.add()
def parts_that_are_longer_than_the_payload(scene: Scene) -> None:
    """They would reach into what lies behind."""
    methods = scene.connect().methods
    for name in ("echo", "length", "array", "floats", "many", "hold", "names", "nap", "note"):
        for parts in ([1 << 40], [6], [HUGE], [HUGE, 6], [HUGE, 2, HUGE, 4], [1 << 63, 1 << 63], [3, 3], [5, 1]):
            found = answers(scene, [frame(CALL, b"short", method=methods[name], parts=parts)])
            no_secret(found)
            assert all(one.kind != REPLY for one in found), f"{name} with parts {parts} of 5 bytes: {found}"


@TABLE.add()
def frames_out_of_place(scene: Scene) -> None:
    """Well-formed, and not in place: an error, nothing, or the end of the connection, as the server likes."""
    methods = scene.connect().methods
    total, echo, note = methods["total"], methods["echo"], methods["note"]
    for number, frames in enumerate(
        [
            *([frame(kind, b"x" * n, call=call)] for kind in range(1, 12) for n in (0, 1, 8) for call in (1, NOBODY)),
            [frame(CALL, b"a", method=echo), frame(CALL, b"b", method=echo)],
            [frame(CALL, method=total), frame(CALL, method=total), frame(END)],
            [frame(CALL, b"x", method=echo, call=NOBODY)],
            [frame(CALL, b"x", method=echo, flags=ONEWAY)],
            [frame(CALL, b"x", method=echo, flags=ONEWAY, call=NOBODY)],
            [frame(CALL, method=total, flags=ONEWAY), frame(ITEM, b"x"), frame(END)],
            [frame(CALL, method=total, flags=ONEWAY, call=NOBODY), frame(ITEM, b"x", call=NOBODY)],
            [frame(CALL, b"x", method=note)],
            [frame(CALL, b"x", method=note, call=NOBODY)],
            [frame(CALL, b"", method=0xFFFF)],
            [frame(CALL, b"", method=0xFFFF, flags=ONEWAY, call=NOBODY)],
            [frame(ITEM, b"x"), frame(CALL, method=total), frame(END)],
            [frame(CALL, method=total), frame(END), frame(END), frame(ITEM, b"x")],
            [frame(CALL, method=total), frame(END, b"not empty")],
            [frame(CALL, method=total), frame(ITEM, b"x", parts=[])],
            [frame(CALL, method=total), frame(ITEM, b"x" * 10, parts=[10])],
            [frame(CALL, method=total), frame(ITEM, b"x", metadata=pairs((b"k", b"v"))), frame(END)],
            [frame(CALL, method=total), frame(CANCEL), frame(CANCEL), frame(END)],
            [frame(CALL, b"\xc1", method=methods["nap"])],
            [frame(CALL, b"", method=methods["nap"])],
            [frame(CALL, encode([0.0]) + b"more", method=methods["nap"])],
            [frame(CALL, encode([float("nan")]), method=methods["nap"])],
            [frame(CALL, encode([1e300]), method=methods["nap"], deadline=1)],
            [frame(CALL, encode([-1]), method=methods["make"])],
            [frame(CALL, encode([1 << 62]), method=methods["make"])],
            [frame(CALL, encode([HUGE]), method=methods["make"])],
            [frame(CALL, encode({"first": 1}), method=methods["names"], flags=NAMED)],
            [frame(CALL, encode({1: 1, None: 2}), method=methods["names"], flags=NAMED, parts=[])],
            [frame(CALL, encode([1, 2]), method=methods["names"], flags=NAMED, parts=[])],
            [frame(CALL, method=total), frame(ITEM, deadline=1)],
            [frame(PING, flags=ONEWAY)],
            [frame(PING, bytes(1025))],
            [frame(PONG, bytes(1 << 20))],
            [frame(CALL, method=total), frame(END, flags=NAMED)],
            [frame(CANCEL, parts=[])],
            [frame(GOAWAY, call=0)] * 3,
            [frame(REPLY, b"x")],
            [frame(ERROR, b"\0")],
            [frame(HEAD, metadata=b"")],
        ]
    ):
        with contextlib.suppress(ConnectionRefusedError):
            no_secret(answers(scene, frames))
        assert scene.server.alive(), f"case {number}"


@TABLE.add()
def credit_without_end(scene: Scene) -> None:
    for amounts in ([HUGE], [1 << 63] * 3, [(1 << 63) - 1] * 4, [0] * 1000, [HUGE, 1, HUGE], [1] * 1000):
        peer = scene.connect()
        with contextlib.suppress(Gone):
            peer.send(scene.call(peer, "count", encode([10_000])), *[credit(amount) for amount in amounts])
            peer.send(scene.call(peer, "echo", b"x", call=2), *[credit(amount, 2) for amount in amounts])
            peer.send(scene.call(peer, "mirrored", call=3), *[credit(amount, 3) for amount in amounts])
        peer.received_all()
    for payload in (b"", b"\1", b"\xff" * 7, b"\xff" * 9, b"\xff" * 10_000):
        answers(scene, [frame(CREDIT, payload)])


@TABLE.add()
def deadlines_at_both_ends(scene: Scene) -> None:
    peer = scene.connect()
    for call, deadline in enumerate((0, 1, 2, 10, 1000, 1 << 32, 1 << 53, (1 << 63) - 1, 1 << 63, HUGE - 1, HUGE)):
        with contextlib.suppress(Gone):
            peer.send(scene.call(peer, "echo", b"x", call=call, deadline=deadline))
            peer.send(scene.call(peer, "count", encode([3]), call=100 + call, deadline=deadline))
    found = {one.call: one.kind for one in peer.received_all()}
    assert found[10] == REPLY, "a call that has all the time there is was not answered"
    assert found[0] == ERROR, "a call without any time was answered"


@TABLE.add()
def cancellations_that_meet_a_later_call(scene: Scene) -> None:
    """The number of a call that has ended is used again: the new call was not cancelled."""
    peer = scene.connect()
    for call in range(200):
        peer.send(scene.call(peer, "echo", b"x", call=call))
        assert peer.receive().kind == REPLY
        peer.send(frame(CANCEL, call=call))
    for call in range(0, 200, 10):
        peer.send(scene.call(peer, "was_cancelled", call=call))
        reply = peer.receive()
        assert (reply.kind, reply.rest) == (REPLY, encode(False)), f"call {call}: {reply}"


@TABLE.add()
def lengths_that_lie(scene: Scene) -> None:
    """On sockets the length before a frame, in shared memory that of a record and of a region."""
    for length in (0, 1, 7, 8, (1 << 26) + (1 << 20), (1 << 26) + (1 << 20) + 1, 1 << 31, 0xFFFFFFFE, 0xFFFFFFFF):
        peer = scene.connect()
        if scene.transport != "shm":
            with contextlib.suppress(Gone):
                peer.push(struct.pack("<I", length) + bytes(100), 0.2)
            continue
        for prefix in (length, length | 1 << 31):
            peer = scene.connect()
            with contextlib.suppress(Gone):
                peer.lay(struct.pack("<I", prefix) + bytes(100))  # type: ignore[attr-defined]
                note = struct.pack("<IQB", 0, length, 1) + frame(CALL).head
                peer.lay(peer.record(note, is_note=True))  # type: ignore[attr-defined]


def greetings() -> list[bytes]:
    body = {"version": "hostile", "limits": {"max_message": 1 << 26}, "ring": RING}
    good = hello(RING)
    found = [
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(300),
        bytes(64),
    ]
    found += [
        b"\xff" * 4096,
        b"NCAL",
        good[:11],
        message(HELLO, b""),
        message(HELLO, b"{}"),
        message(HELLO, b"[" * 60_000),
    ]
    found += [message(HELLO, b'{"limits":' * 6000), message(HELLO, b"\xff\xfe{}"), message(HELLO, b"null")]
    found += [message(HELLO, b"x", length=length) for length in (0, 1 << 16, (1 << 16) + 1, 1 << 24, 1 << 31, NOBODY)]
    found += [message(kind, good[12:]) for kind in (0, WELCOME, REJECT, 4, 255)]
    found += [message(HELLO, good[12:], protocol=number) for number in (0, 2, 255)]
    found += [message(HELLO, good[12:], magic=magic) for magic in (b"ncal", b"LACN", b"\0\0\0\0")]
    for ring in (-1, 0, 1, 4095, 4097, 1 << 31, 1 << 40, HUGE, 1.5, "4096", None, [], True):
        found.append(hello(ring))  # type: ignore[arg-type]
    for most in (-1, 0, 1, HUGE, 1 << 70, 1e400, "x", None, [], {}):
        found.append(message(HELLO, encode_json({**body, "limits": {"max_message": most}})))
    found += [
        message(HELLO, encode_json({**body, "version": version})) for version in ("\x1b[31m\r\n" * 500, 5, None, "\0")
    ]
    return found


def encode_json(value: object) -> bytes:
    return json.dumps(value).encode()


@TABLE.add()
def greetings_that_are_none(scene: Scene) -> None:
    for number, data in enumerate(greetings()):
        connection = scene.dial()
        with contextlib.suppress(OSError):
            if scene.transport == "shm" and number % 2:
                fd = memfd(4096 + 2 * RING)
                socket.send_fds(connection, [data], [fd] * (number % 3 + 1))
                os.close(fd)
            else:
                connection.sendall(data)
            connection.settimeout(0.02)
            connection.recv(4096)
    assert "\x1b" not in scene.server.log(1 << 20), "escapes of a peer are in the log"


@TABLE.add()
def deadlines_that_are_far_off(scene: Scene) -> None:
    """They count as any others: the calls are answered."""
    with scene.connect() as peer:
        for method in ("echo", "echo_in_loop"):
            for deadline in (10**15, 10**15 + 1, 1 << 62, 1 << 63, HUGE):
                peer.send(scene.call(peer, method, b"x", deadline=deadline), seconds=1)
                found = peer.receive(5.0)
                assert (found.kind, found.rest) == (REPLY, b"x"), (method, deadline, found)


@TABLE.add()
def frames_at_random(scene: Scene) -> None:
    """Right frames with some bytes changed, in any order."""
    chance = random.Random(SEED)
    methods = list(scene.connect().methods.values())
    end = time.monotonic() + 2 * scene.seconds
    while time.monotonic() < end:
        peer = scene.connect()
        with contextlib.suppress(Gone):
            for _ in range(60):
                one = _at_random(chance, methods)
                data = bytearray(one.head + bytes(one.payload))
                for _ in range(chance.choice([0, 0, 0, 1, 3])):
                    if data:
                        data[chance.randrange(min(len(data), 40))] = chance.choice([0, 1, 255, chance.randrange(256)])
                # Naps are for those who mean them.
                if not peer.send(bytes(data), seconds=0.2):
                    break
        no_secret(peer.received_all(0.01))
        peer.close()


def _at_random(chance: random.Random, methods: list[int]) -> Frame:
    payload = chance.choice(
        [b"", b"x", encode([0.001]), encode([0.002]), encode([b"x", "y"]), array("<f8", [1]) + bytes(8), os.urandom(30)]
    )
    return frame(
        chance.choice([CALL, CALL, CALL, *range(12)]),
        payload,
        method=chance.choice(methods),
        call=chance.choice([0, 1, 2, 3, NOBODY]),
        deadline=chance.choice([None, None, 0, 5000, HUGE]),
        metadata=chance.choice([None, None, b"", pairs((b"k", b"v"))]),
        parts=chance.choice([None, None, [], [0], [8], [1, 1]]),
        flags=chance.choice([0, 0, 0, NAMED, ONEWAY]),
    )


@TABLE.add()
def texts_for_a_terminal(scene: Scene) -> None:
    """What a peer says reaches the log without its escapes, and not at any length."""
    peer = scene.connect()
    nasty = "\x1b]0;owned\x07\x1b[2J\r\n\x00" * 50
    call = frame(CALL, encode([nasty]), method=peer.methods["fail"], call=NOBODY, flags=ONEWAY)
    peer.send(call, scene.call(peer, "refuse", encode([nasty])), scene.call(peer, "names", encode([nasty, 1]), call=2))
    peer.send(
        frame(PING, nasty.encode()), scene.call(peer, "echo", b"x", metadata=pairs((nasty.encode(), b"v")), call=3)
    )
    peer.received_all()
    assert "\x1b" not in scene.server.log(1 << 20), "escapes of a peer are in the log"


@every(TABLE)
def test_what_is_wrong_is_refused(attack: Attack, transport: str, attempt: Callable[[Attack, str], None]) -> None:
    attempt(attack, transport)
