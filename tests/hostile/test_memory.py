"""Peers that want the server to keep much: it keeps no more than it is allowed to, and nobody else waits for it."""

from __future__ import annotations

import contextlib
import os
import struct
import time
from collections.abc import Callable

from .frames import (
    CALL,
    CANCEL,
    CREDIT,
    END,
    HEAD,
    HELLO,
    ITEM,
    NAMED,
    NOBODY,
    ONEWAY,
    PING,
    PONG,
    Ext,
    credit,
    encode,
    frame,
    message,
    pairs,
)
from .raw import PAGE, Gone, MemoryPeer, Peer, memfd
from .target import BUDGET, SOCKETS, Attack, Scene, Table, every

TABLE = Table()
MIB = 1 << 20
LARGE = 60 * MIB
ENDLESS = (1 << 63) - (1 << 21)


def send(peer: Peer, *frames: object, seconds: float = 1.0) -> None:
    """What is taken of it in time: a server may stop to read, or hang up."""
    with contextlib.suppress(Gone, TimeoutError):
        for one in frames:
            if not peer.send(one, seconds=seconds):  # type: ignore[arg-type]
                return


def held(scene: Scene, peer: Peer, size: int, seconds: float, call: int) -> object:
    body = encode([seconds])
    return scene.call(peer, "hold", body + bytes(size), call=call, parts=[size])


@TABLE.add()
def stream_items_beyond_the_window(scene: Scene) -> None:
    peer = scene.connect()
    send(peer, scene.call(peer, "slow_total", encode([2.0])))
    peer.flood([frame(ITEM, bytes(MIB))], 3, most=scene.amount(400, 4000) * MIB)


@TABLE.add()
def tiny_stream_items_beyond_the_window(scene: Scene) -> None:
    """In many calls, each below the number of items that a call may have."""
    peer = scene.connect()
    for call in range(scene.amount(3, 40)):
        send(peer, scene.call(peer, "slow_total", encode([2.0]), call=call))
        peer.flood([frame(ITEM, b"x", call=call)] * 1000, 3, most=600_000)


@TABLE.add()
def a_window_full_in_each_of_many_streams(scene: Scene) -> None:
    """Nothing that the protocol forbids, but in all streams that there may be."""
    peer = scene.connect()
    for call in range(scene.amount(400, 1000)):
        send(peer, scene.call(peer, "slow_total", encode([2.0]), call=call), frame(ITEM, bytes(MIB), call=call))


def stream_that_waits(scene: Scene, peer: Peer, call: int, item: object, count: int) -> bool:
    """A call whose handler looks at nothing for long, and so many items for it. Whether all were taken."""
    begin = scene.call(peer, "slow_total", encode([5.0]), call=call)
    batch = peer.batch([begin, *[item] * count])  # type: ignore[list-item]
    with contextlib.suppress(Gone):
        return peer.push(batch, 1.0) == len(batch)
    return False


@TABLE.add()
def a_window_of_empty_items_in_each_of_many_streams(scene: Scene) -> None:
    """An item takes many times its bytes while it waits."""
    peer = scene.connect()
    for call in range(scene.amount(100, 400)):
        if not stream_that_waits(scene, peer, call, frame(ITEM, call=call), 32_000):
            break


@TABLE.add()
def metadata_of_empty_pairs_in_short_items(scene: Scene) -> None:
    peer = scene.connect()
    empty = pairs((b"", b"")) * 160
    for call in range(scene.amount(3, 20)):
        if not stream_that_waits(scene, peer, call, frame(ITEM, metadata=empty, call=call), 20_000):
            break


@TABLE.add()
def forty_pending_calls_of_60_mb(scene: Scene) -> None:
    peer = scene.connect()
    for call in range(scene.amount(7, 40)):
        send(peer, held(scene, peer, LARGE, 1.0, call), seconds=0.3)


@TABLE.add(server={"max_concurrency": 8})
def queued_calls_of_20_mb(scene: Scene) -> None:
    peer = scene.connect()
    for call in range(scene.amount(20, 360)):
        send(peer, held(scene, peer, 20 * MIB, 0.5, call), seconds=0.3)


@TABLE.add()
def the_same_from_many_connections(scene: Scene) -> None:
    for _ in range(scene.amount(7, 40)):
        peer = scene.connect()
        send(peer, held(scene, peer, LARGE, 1.0, 1), seconds=0.2)


@TABLE.add()
def metadata_of_empty_pairs(scene: Scene) -> None:
    peer = scene.connect()
    empty = pairs((b"", b"")) * scene.amount(2_000_000, 10_000_000)
    send(peer, scene.call(peer, "nap", encode([0.5]), metadata=empty))


@TABLE.add()
def metadata_just_within_the_limit_in_many_calls(scene: Scene) -> None:
    peer = scene.connect()
    most = pairs((b"k", b"")) * 140_000
    for call in range(scene.amount(20, 200)):
        send(peer, scene.call(peer, "nap", encode([0.3]), metadata=most, call=call), seconds=0.3)


@TABLE.add(server={"max_concurrency": 4})
def metadata_of_as_many_pairs_as_may_be(scene: Scene) -> None:
    """Each pair takes many times its bytes when it is read."""
    most = pairs((b"k", b"v")) * 4096
    for _ in range(scene.amount(4, 40)):
        peer = scene.connect()
        end = time.monotonic() + scene.seconds
        with contextlib.suppress(Gone, TimeoutError):
            for call in range(1000):
                # As fast as they are taken, which over shared memory is as fast as they are through.
                taken = peer.send(scene.call(peer, "nap", encode([0.05]), metadata=most, call=call), seconds=0.2)
                if not taken or time.monotonic() > end:
                    break


@TABLE.add(*SOCKETS)
def partial_frames_of_60_mb(scene: Scene) -> None:
    """Each connection announces a long frame and stops before its end."""
    for number in range(scene.amount(7, 100)):
        peer = scene.connect()
        whole = peer.batch([held(scene, peer, LARGE, 0.0, 1)])  # type: ignore[list-item]
        with contextlib.suppress(Gone):
            peer.push(memoryview(whole)[: -1 if number % 2 else len(whole) // 2], 0.2)


@TABLE.add(*SOCKETS)
def announced_lengths_and_nothing_more(scene: Scene) -> None:
    """What was only promised costs nothing."""
    for _ in range(scene.amount(60, 300)):
        with contextlib.suppress(OSError):
            scene.connect().socket.send(struct.pack("<I", LARGE) + b"\1")


@TABLE.add()
def handshakes_that_never_end(scene: Scene) -> None:
    whole = message(HELLO, b'{"version": "' + b"x" * 60_000, length=64_000)
    for number in range(scene.amount(60, 300)):
        connection = scene.dial()
        with contextlib.suppress(OSError):
            connection.send(whole[: (0, 1, 4, 11, 12, 13, 1000, 60_000)[number % 8]])


@TABLE.add()
def strangers_that_come_and_go(scene: Scene) -> None:
    """As fast as they can. Each says something that is no hello."""
    end = time.monotonic() + max(1.5, scene.seconds)
    while time.monotonic() < end:
        # Where as many wait as may, the next one is turned away by the system.
        with contextlib.suppress(OSError), scene.dial(plain=True) as connection:
            connection.send(b"GET / HTTP/1.1\r\n")
        scene.opened.clear()


@TABLE.add("tls")
def tls_handshakes_that_never_end(scene: Scene) -> None:
    for number in range(scene.amount(60, 300)):
        connection = scene.dial(plain=True)
        connection.send((b"", b"\x16", b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc", b"\x16\x03\x01")[number % 4])


@TABLE.add()
def handshakes_a_byte_at_a_time(scene: Scene) -> None:
    hello = message(HELLO, b" " * 64_000)
    connections = [scene.dial() for _ in range(40)]
    end, at = time.monotonic() + max(1.5, scene.seconds), 0
    while time.monotonic() < end:
        for connection in connections:
            with contextlib.suppress(OSError):
                connection.send(hello[at : at + 1])
        at += 1
        time.sleep(0.02)


@TABLE.add()
def a_storm_of_connections(scene: Scene) -> None:
    end = time.monotonic() + scene.seconds * 2
    while time.monotonic() < end:
        peer = scene.connect()
        send(peer, scene.call(peer, "echo", b"x"))
        peer.close()


@TABLE.add()
def frames_for_calls_that_are_not(scene: Scene) -> None:
    peer = scene.connect()
    batch = []
    for number in range(500):
        call = number * 8_388_617 & 0xFFFF_FFFE
        batch += [frame(CANCEL, call=call), credit(1, call), frame(ITEM, b"x", call=call), frame(END, call=call)]
        batch += [frame(PONG, call=call)]
    peer.flood(batch, scene.seconds * 3)


@TABLE.add()
def calls_that_are_cancelled_at_once(scene: Scene) -> None:
    peer = scene.connect()
    batch = []
    for call in range(300):
        batch += [scene.call(peer, "nap", encode([0.001]), call=call), frame(CANCEL, call=call)]
    end = time.monotonic() + scene.seconds * 2
    with contextlib.suppress(Gone):
        while time.monotonic() < end and peer.send(*batch, seconds=0.5):
            while peer.try_receive() is not None:
                pass


@TABLE.add()
def as_many_streams_as_there_may_be(scene: Scene) -> None:
    for _ in range(scene.amount(3, 6)):
        peer = scene.connect()
        send(peer, *[scene.call(peer, "slow_total", encode([60.0]), call=call) for call in range(1200)], seconds=0.2)


@TABLE.add("shm")
def one_long_answer_for_each_of_many_clients(scene: Scene) -> None:
    """What is kept to send the next one is limited for all together."""
    for _ in range(scene.amount(16, 60)):
        peer = scene.connect()
        send(peer, scene.call(peer, "make", encode([20 * MIB])))
        with contextlib.suppress(Gone, TimeoutError):
            peer.receive()


@TABLE.add("shm")
def a_mapping_for_every_byte(scene: Scene) -> None:
    """A process may have some 65,000; beyond that nobody's memory can be mapped, and no thread be started."""
    peer = scene.connect()
    assert isinstance(peer, MemoryPeer)
    send(peer, scene.call(peer, "slow_total", encode([60.0])))
    before = mappings(scene)
    item = frame(ITEM, b"").head
    sent = 0
    while sent < 12_000:
        # Fewer than may be announced before they are used.
        batch = [peer.record(region_of_a_page(peer, number) + item, is_note=True) for number in range(sent, sent + 32)]
        peer.push(b"".join(batch), 1.0)
        end = time.monotonic() + 1.0
        while peer.room() < peer.ring and time.monotonic() < end:
            time.sleep(0.0005)
        if peer.room() < peer.ring:
            break
        sent += len(batch)
    assert sent > 8000, "it takes in as many as it may"
    assert mappings(scene) - before < 10_000


def mappings(scene: Scene) -> int:
    with open(f"/proc/{scene.server.pid}/maps", "rb") as file:
        return sum(1 for _ in file)


def region_of_a_page(peer: MemoryPeer, number: int) -> bytes:
    """Announces a region of the least size, used once; what the note of a message of one byte says of it."""
    fd = memfd(PAGE)
    try:
        peer.announce(number, PAGE, fd)
    finally:
        os.close(fd)
    return struct.pack("<IQB", number, 1, 1)


@TABLE.add()
def dtypes_that_all_differ(scene: Scene) -> None:
    """Nothing is remembered of a type for ever."""
    peer = scene.connect()
    begun = time.monotonic()
    for number in range(scene.amount(100, 4000)):
        name = f"{number:06}" + "f" * 10_000
        header = encode([Ext(2, encode([[[name, "<f8"]], [0], "C", 0]))])
        send(peer, scene.call(peer, "array", header, parts=[0], call=number))
        while peer.try_receive() is not None:
            pass
        if time.monotonic() - begun > 3 + scene.seconds:
            break


@TABLE.add()
def pings_of_60_mb(scene: Scene) -> None:
    peer = scene.connect()
    for call in range(scene.amount(7, 40)):
        send(peer, frame(PING, bytes(LARGE), call=call), seconds=0.3)


@TABLE.add()
def one_way_calls_faster_than_they_are_handled(scene: Scene) -> None:
    peer = scene.connect()
    # Each takes a millisecond, one after the other.
    call = frame(
        CALL,
        bytes(scene.amount(200_000, 20_000)),
        method=peer.methods["slow_note"],
        call=NOBODY,
        flags=ONEWAY,
    )
    peer.flood([call], scene.seconds * 3, most=scene.amount(200, 2000) * MIB)


@TABLE.add()
def one_way_calls_of_60_mb(scene: Scene) -> None:
    peer = scene.connect()
    call = frame(CALL, bytes(LARGE), method=peer.methods["slow_note"], call=NOBODY, flags=ONEWAY)
    for _ in range(scene.amount(7, 40)):
        send(peer, call, seconds=0.3)


@TABLE.add()
def one_way_calls_that_fail_with_long_texts(scene: Scene) -> None:
    """Logged, but not in full, and not each."""
    peer = scene.connect()
    text = encode(["\x1b[31m" + "x" * (scene.amount(5, 40) * MIB)])
    call = frame(CALL, text, method=peer.methods["fail"], call=NOBODY, flags=ONEWAY)
    send(peer, call)
    short = frame(CALL, encode(["boom"]), method=peer.methods["fail"], call=NOBODY, flags=ONEWAY)
    peer.flood([short] * 50, scene.seconds * 2)


@TABLE.add()
def calls_that_fail_with_long_texts(scene: Scene) -> None:
    peer = scene.connect()
    text = encode(["x" * (scene.amount(5, 40) * MIB)])
    send(peer, *[scene.call(peer, "refuse", text, call=call) for call in range(3)])
    send(peer, *[scene.call(peer, "many", encode("x" * 100_000), call=call, parts=[]) for call in range(200)])


@TABLE.add()
def many_empty_maps(scene: Scene) -> None:
    peer = scene.connect()
    count = scene.amount(5, 58) * MIB
    body = b"\x91\xdd" + struct.pack(">I", count) + b"\x80" * count
    send(peer, scene.call(peer, "many", body, parts=[]))
    with contextlib.suppress(Gone, TimeoutError):
        peer.receive(2)


def empty_lists(count: int) -> bytes:
    """A list of them, a byte each. In Python each takes 72 bytes."""
    return b"\xdd" + struct.pack(">I", count) + b"\x90" * count


def waiting_values(scene: Scene, peer: Peer, count: int, call: int) -> object:
    return scene.call(peer, "hold_values", b"\x92" + empty_lists(count) + encode(2.0), parts=[], call=call)


@TABLE.add()
def values_of_calls_that_wait(scene: Scene) -> None:
    """Their bytes are few: what is made of them is sixty times as much."""
    peer = scene.connect()
    send(peer, *[waiting_values(scene, peer, 250_000, call) for call in range(scene.amount(30, 200))], seconds=3)
    # All are begun, or refused, before the first is answered.
    with contextlib.suppress(Gone, TimeoutError):
        peer.receive(3)


@TABLE.add()
def sets_of_calls_that_wait(scene: Scene) -> None:
    """Three bytes each; in Python 240."""
    peer = scene.connect()
    sets = b"\xdd" + struct.pack(">I", 100_000) + b"\xd4\x05\x90" * 100_000
    calls = [
        scene.call(peer, "hold_values", b"\x92" + sets + encode(2.0), parts=[], call=call)
        for call in range(scene.amount(30, 200))
    ]
    send(peer, *calls, seconds=3)
    with contextlib.suppress(Gone, TimeoutError):
        peer.receive(3)


@TABLE.add()
def values_of_many_clients_calls(scene: Scene) -> None:
    for _ in range(scene.amount(30, 100)):
        peer = scene.connect()
        send(peer, *[waiting_values(scene, peer, 200_000, call) for call in range(2)])


@TABLE.add()
def values_of_many_short_calls_that_wait(scene: Scene) -> None:
    peer = scene.connect()
    calls = [waiting_values(scene, peer, 1000, call) for call in range(scene.amount(8000, 20_000))]
    send(peer, *calls, seconds=3)


@TABLE.add()
def values_of_items_that_wait(scene: Scene) -> None:
    peer = scene.connect()
    for call in range(scene.amount(80, 200)):
        item = frame(ITEM, empty_lists(250_000), call=call)
        send(peer, scene.call(peer, "slow_values", encode([2.0]), call=call), item, seconds=0.5)


@TABLE.add()
def arrays_of_64_dimensions_in_calls_that_wait(scene: Scene) -> None:
    """An array's header says much in few bytes: each dimension takes 16."""
    array = encode(Ext(2, encode(["|u1", [0] * 64, "C", 0])))
    body = b"\x92\xdd" + struct.pack(">I", 50_000) + array * 50_000 + encode(5.0)
    for _ in range(scene.amount(2, 4)):
        peer = scene.connect()
        send(peer, *[scene.call(peer, "hold_values", body, parts=[0], call=call) for call in range(5)], seconds=3)
        # All are begun, or refused, before the first is answered.
        with contextlib.suppress(Gone, TimeoutError):
            peer.receive(3)


@TABLE.add(server={"max_concurrency": 4})
def short_calls_with_metadata_that_wait(scene: Scene) -> None:
    """A frame of a kilobyte is not charged, but 160 empty pairs take 8."""
    empty = pairs((b"", b"")) * 160
    for _ in range(2):
        peer = scene.connect()
        # Nothing is taken any more once the refusals of calls fill the connection.
        with contextlib.suppress(Gone, TimeoutError):
            for call in range(scene.amount(24_000, 30_000)):
                frames = scene.call(peer, "nap", encode([0.01]), metadata=empty, call=call)
                if not peer.send(frames, seconds=0.3):
                    break


@TABLE.add()
def deep_nesting(scene: Scene) -> None:
    for body in (b"\x91" * 5_000_000, b"\x91" * 900 + b"\xc0", b"\x81\xa1x" * 1_000_000, b"\x91" * 100_000 + b"\xc0"):
        peer = scene.connect()
        for method in ("many", "names", "nap"):
            send(peer, scene.call(peer, method, b"\x91" + body, parts=[]))
            send(peer, scene.call(peer, method, b"\x81\xa1x" + body, parts=[], flags=NAMED))
        peer.received_all()


@TABLE.add()
def arguments_that_nobody_asked_for(scene: Scene) -> None:
    peer = scene.connect()
    count = scene.amount(300_000, 3_000_000)
    body = b"\xdf" + struct.pack(">I", count)
    body += b"".join(encode(str(number)) + b"\xc0" for number in range(count))
    send(peer, scene.call(peer, "names", body, parts=[], flags=NAMED))
    peer.received_all(0.5)


@TABLE.add()
def as_many_buffers_as_there_may_be(scene: Scene) -> None:
    peer = scene.connect()
    for call in range(scene.amount(50, 1000)):
        send(peer, scene.call(peer, "hold", encode([0.5]), parts=[0] * 65_536, call=call), seconds=0.2)


@TABLE.add()
def replies_of_60_mb_that_nobody_reads(scene: Scene) -> None:
    peer = scene.connect()
    send(peer, *[scene.call(peer, "make", encode([LARGE]), call=call) for call in range(scene.amount(7, 40))])
    time.sleep(scene.seconds * 2)


# Beside what is kept, the results of the handlers that send them.
@TABLE.add(budget=BUDGET + 2 * LARGE)
def the_same_to_many_connections(scene: Scene) -> None:
    for _ in range(scene.amount(7, 40)):
        peer = scene.connect()
        send(peer, scene.call(peer, "make", encode([LARGE])))
        # One after the other: what handlers make at the same time is theirs.
        peer.wait(2.0)
    time.sleep(scene.seconds)


# Beside what is kept, each of the handlers at work has its argument and its result.
@TABLE.add(budget=BUDGET + 8 * LARGE)
def echoes_of_60_mb_that_nobody_reads(scene: Scene) -> None:
    peer = scene.connect()
    for call in range(scene.amount(6, 40)):
        send(peer, scene.call(peer, "echo", bytes(LARGE), call=call), seconds=0.3)


@TABLE.add()
def items_of_streams_that_nobody_reads(scene: Scene) -> None:
    peer = scene.connect()
    for call in range(scene.amount(20, 200)):
        send(peer, scene.call(peer, "blocks", encode([20 * MIB]), call=call), credit(ENDLESS, call))
    time.sleep(scene.seconds * 2)


@TABLE.add()
def heads_and_metadata_from_a_client(scene: Scene) -> None:
    for kind in (HEAD, ITEM, END, CANCEL, CREDIT, PING):
        peer = scene.connect()
        one = frame(kind, struct.pack("<Q", 1), metadata=pairs((b"k", b"v" * 1000)) * 500)
        peer.flood([one], scene.seconds, most=64 * MIB)


@TABLE.add("shm")
def sparse_regions_for_tiny_messages(scene: Scene) -> None:
    """A region may be large and its message small: mapping it and letting it go keeps nobody waiting."""
    peer = scene.connect()
    assert isinstance(peer, MemoryPeer)
    size = 150 * MIB
    head = scene.call(peer, "echo").head
    end = time.monotonic() + scene.seconds * 2
    with contextlib.suppress(Gone, TimeoutError, OSError):
        for number in range(100_000):
            fd = memfd(size)
            try:
                peer.announce(number, size, fd)
            finally:
                os.close(fd)
            note = peer.record(struct.pack("<IQB", number, 1, 1) + head, is_note=True)
            if peer.push(note, 0.3) < len(note) or time.monotonic() > end:
                break
            while peer.try_receive() is not None:
                pass


@TABLE.add("shm")
def sparse_regions_that_are_kept(scene: Scene) -> None:
    """Holes cost their maker nothing. Each is read once, and the next message might come in it."""
    size, body = 40 * MIB, encode([])
    for _ in range(scene.amount(12, 40)):
        peer = scene.connect()
        assert isinstance(peer, MemoryPeer)
        head = scene.call(peer, "length", parts=[size]).head
        for number in range(3):
            fd = memfd(size + PAGE)
            try:
                os.pwrite(fd, body, 64)
                peer.announce(number, size + PAGE, fd)
            finally:
                os.close(fd)
            note = struct.pack("<IQB", number, len(body) + size, 0)
            with contextlib.suppress(Gone, TimeoutError):
                peer.push(peer.record(note + head, is_note=True), 1.0)
                peer.receive(1.0)


@TABLE.add("shm")
def long_rings_of_many_connections(scene: Scene) -> None:
    for _ in range(scene.amount(12, 40)):
        with contextlib.suppress(Gone):
            peer = scene.connect(ring=16 * MIB)
            peer.flood([scene.call(peer, "length", encode([]) + bytes(3 * MIB), parts=[3 * MIB])], 1, most=64 * MIB)


@TABLE.add("shm")
def regions_announced_and_never_used(scene: Scene) -> None:
    peer = scene.connect()
    assert isinstance(peer, MemoryPeer)
    with contextlib.suppress(Gone, TimeoutError, OSError):
        for number in range(200):
            fd = memfd(16 * PAGE)
            try:
                peer.announce(number, 16 * PAGE, fd)
            finally:
                os.close(fd)


@every(TABLE)
def test_what_peers_want_to_be_kept_has_bounds(
    attack: Attack, transport: str, attempt: Callable[[Attack, str], None]
) -> None:
    attempt(attack, transport)
