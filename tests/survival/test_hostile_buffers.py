"""Peers that hand over buffers and mean harm, against a real server process.

What holds is what holds of all of shared memory (``test_hostile_shm.py``): the connection ends with a reason in the
log, or the call does, and all else is as before.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import mmap
import os
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nearcall

from ..e2e.process import ServerProcess
from .hostile import Echo, not_memory, ordinary_file
from .raw_shm import (
    CALL,
    NAMES,
    REPLY,
    SEALS,
    SHOWN_SEALS,
    THEIR_REGION,
    THEIRS,
    End,
    attack,
    frame,
    memfd,
    reference,
)
from .test_hostile_shm import HANDSHAKE_TIMEOUT, Target, greet, until

SIZE = 1 << 20
MAKE, SHOW = 5, 6
PARTS = 4


@nearcall.service
class Lender:
    def make(self, length: int) -> memoryview:
        data = nearcall.buffer(length)
        data[:] = bytes([length % 251]) * length
        return data

    def show(self, data: memoryview) -> bytes:
        return bytes(data[:4]) + len(data).to_bytes(4, "little")


def served() -> list[object]:
    logging.basicConfig(level=logging.INFO)
    return [Echo(), Lender()]


@pytest.fixture(scope="module")
def under_attack(tmp_path_factory: pytest.TempPathFactory, runtime_dir: Path) -> Iterator[Target]:
    log = tmp_path_factory.mktemp("hostile") / "log"
    url = f"shm://buffers-{os.getpid()}"
    options = {"services": "tests.survival.test_hostile_buffers:served", "handshake_timeout": HANDSHAKE_TIMEOUT}
    with log.open("w") as stderr, ServerProcess(url, stderr=stderr, **options) as server:
        target = Target(server, log)
        yield target
        target.close()


@pytest.fixture
def target(under_attack: Target) -> Iterator[Target]:
    under_attack.forget()
    yield under_attack
    under_attack.check()


def buffer(size: int = SIZE, fill: bytes = b"", seals: int = SHOWN_SEALS) -> int:
    """A descriptor of one as it should be; what is to be in it has to be there before the seals."""
    fd = memfd(size, 0)
    os.pwrite(fd, fill, 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, seals)
    return fd


def shown(attacker: End, number: int = 0, make: Callable[[], int] = buffer, size: int = SIZE) -> None:
    fd = make()
    attacker.show(number, size, fd)
    os.close(fd)


def show_call(number: int = 1, flags: int = 0, more: bytes = b"") -> bytes:
    return frame(CALL, SHOW, number, more, flags)


def test_what_is_as_it_should_be(target: Target) -> None:
    with attack(target.url) as attacker:
        shown(attacker, 0, lambda: buffer(fill=b"abcdefgh"))
        attacker.hand_over(reference(0, SIZE), head=show_call())
        assert attacker.receive() == frame(REPLY, 0, 1, b"abcd" + SIZE.to_bytes(4, "little"))
        attacker.hand_over(reference(2, 6, offset=2), head=show_call(2), rest=b"xy")
        target.dropped(attacker, "a buffer of a message is handed over in pieces")


@pytest.mark.parametrize(
    ("make", "size", "why"),
    [
        (not_memory, SIZE, "not shared memory"),
        (ordinary_file, 1 << 16, "not shared memory"),
        (lambda: memfd(SIZE, 0), SIZE, "not sealed against resizing"),
        (lambda: memfd(SIZE, SEALS), SIZE, "not sealed against writing"),
        (buffer, SIZE + 1, "not the size it announced"),
        (buffer, SIZE // 2, "not the size it announced"),
        (buffer, 1 << 63, "not the size it announced"),
        (buffer, 0, "not the size it announced"),
    ],
)
def test_what_is_shown(target: Target, make: Callable[[], int], size: int, why: str) -> None:
    with attack(target.url) as attacker:
        greet(attacker)
        shown(attacker, 3, make, size)
        attacker.hand_over(reference(0, 10, number=3), head=show_call())
        target.is_well()
        target.dropped(attacker, why)


MAX = (1 << 64) - 1


@pytest.mark.parametrize(
    ("references", "rest", "why"),
    [
        ([reference(0, 10, number=1)], b"", "shared memory that it has not sent"),
        ([reference(0, 10, number=32)], b"", "shared memory that it has not sent"),
        ([reference(0, 10, number=MAX >> 32)], b"", "shared memory that it has not sent"),
        ([reference(0, 10, offset=SIZE - 9)], b"", "more of a buffer than there is"),
        ([reference(0, 10, offset=MAX - 5)], b"", "more of a buffer than there is"),
        ([reference(0, SIZE + 1)], b"", "more of a buffer than there is"),
        ([reference(0, 1 << 40)], b"", "the limit is"),
        ([reference(0, MAX)], b"", "the limit is"),
        ([reference(0, MAX >> 1), reference(MAX >> 1, MAX >> 1)], b"", "the limit is"),
        ([reference(0, 0)], b"", "not in order"),
        ([reference(10, 5), reference(0, 5)], bytes(100), "not in order"),
        ([reference(0, 5), reference(4, 5)], bytes(100), "not in order"),
        ([reference(1, 5)], b"", "outside its message"),
        ([reference(1 << 40, 5)], b"xy", "outside its message"),
        ([reference(MAX, 5)], b"", "longer than any message"),
        ([reference(0, 10, whose=9)], b"", "whose memory it is"),
        ([reference(0, 10, whose=THEIRS)], b"", "hands back a buffer that it does not have"),
        ([reference(0, 10, whose=THEIRS, number=MAX >> 32)], b"", "hands back a buffer that it does not have"),
        ([reference(0, 10, whose=THEIR_REGION)], b"", "hands back a region that it does not have"),
        ([reference(2 * i, 1) for i in range(33)], bytes(100), "more references than it may"),
    ],
)
def test_references(target: Target, references: list[bytes], rest: bytes, why: str) -> None:
    with attack(target.url) as attacker:
        greet(attacker)
        shown(attacker)
        attacker.hand_over(*references, head=show_call(), rest=rest)
        target.is_well()
        target.dropped(attacker, why)


def test_notes_that_are_cut_off(target: Target) -> None:
    whole = struct.pack("<IQBB", 0, 0, NAMES | 4, 2) + 2 * reference(0, 10)
    for length in range(13, len(whole)):
        with attack(target.url) as attacker:
            attacker.record(whole[:length], prefix=(1 << 31) | length)
            attacker.publish()
            target.dropped(attacker, "a note in the ring is malformed")


def test_buffers_of_a_message_that_are_no_whole_parts(target: Target) -> None:
    with attack(target.url) as attacker:
        shown(attacker)
        table = struct.pack("<IQQ", 2, 50, 50)
        attacker.hand_over(reference(20, 60), head=show_call(1, PARTS, table), rest=bytes(40))
        target.dropped(attacker, "a buffer of a message is handed over in pieces")


def test_a_buffer_of_another_connection(target: Target) -> None:
    with attack(target.url) as owner, attack(target.url, buffers=32) as other:
        shown(owner)
        owner.hand_over(reference(0, SIZE), head=show_call())
        owner.receive()
        other.hand_over(reference(0, SIZE), head=show_call())
        target.dropped(other, "shared memory that it has not sent")
        shown(owner, 32)  # and the first one still works, in the same place
        owner.hand_over(reference(0, SIZE, number=32), head=show_call(2))
        assert owner.receive()[0] == REPLY
        owner.hand_over(reference(0, SIZE), head=show_call(3))  # which is another one's now
        target.dropped(owner, "shared memory that it has not sent")


def test_a_flood_of_buffers(target: Target) -> None:
    with attack(target.url) as attacker:
        fd = buffer(1 << 16)
        with contextlib.suppress(OSError):
            for number in range(1000):
                attacker.show(number, 1 << 16, fd)
        os.close(fd)
        target.dropped(attacker, "shared memory that it does not use")


def test_many_large_holes_are_not_kept(target: Target) -> None:
    """A buffer of any size costs the server what its messages ask for."""
    with attack(target.url) as attacker:
        for number in range(100):
            size = 1 << 40
            shown(attacker, number, lambda: buffer(1 << 40), size)
            attacker.hand_over(reference(0, SIZE, number=number, offset=(1 << 30) + 5), head=show_call(number + 1))
            assert attacker.receive() == frame(REPLY, 0, number + 1, bytes(4) + SIZE.to_bytes(4, "little"))


def test_memory_that_changes_while_it_is_read(target: Target) -> None:
    with attack(target.url, buffers=32) as attacker:
        fd = memfd(SIZE, 0)
        memory = mmap.mmap(fd, SIZE)
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, SHOWN_SEALS)
        attacker.show(0, SIZE, fd)
        os.close(fd)
        over = threading.Event()

        def change() -> None:
            value = 0
            while not over.is_set():
                value += 1
                memory[:4096] = bytes([value % 256]) * 4096
                memory[-8:] = value.to_bytes(8, "little")

        changer = threading.Thread(target=change)
        changer.start()
        try:
            for number in range(1, 200):
                # As bytes, as a view, and as msgpack with buffers beside it.
                attacker.hand_over(reference(0, 4096), head=frame(CALL, 0, number))
                assert attacker.receive()[0] == REPLY
                attacker.hand_over(reference(0, SIZE), head=show_call(number))
                assert attacker.receive()[0] == REPLY
                attacker.hand_over(reference(0, 4096), head=frame(CALL, 1, number))
                attacker.receive()
                target.is_well()
        finally:
            over.set()
            changer.join()
            memory.close()


def lent(record: bytes) -> tuple[int, int]:
    """Number and length of the buffer that a reply is in; ``(-1, 0)`` if it was copied."""
    if len(record) < 43 or not record[12] & NAMES:
        return -1, 0
    _, whose, number, _, length = struct.unpack_from("<QBIQQ", record, 14)
    assert whose == 0
    return number, length


def make_call(number: int, length: int) -> bytes:
    return frame(CALL, MAKE, number, b"\x91\xce" + length.to_bytes(4, "big"))


def test_loans_that_are_given_back_too_often_or_never(target: Target) -> None:
    with attack(target.url, buffers=32) as attacker:
        attacker.send(make_call(1, SIZE))
        number, length = lent(attacker.receive())
        assert length == SIZE
        attacker.give_back(number, 1)
        attacker.give_back(number, 5)
        attacker.give_back(7, 1 << 31)
        copied = 0
        for call in range(2, 150):
            attacker.send(make_call(call, SIZE))
            copied += lent(attacker.receive())[1] == 0
            target.is_well()
        assert copied > 100, "what is lent and never given back is limited"


def test_memory_that_was_handed_over_is_not_ours_to_write(target: Target) -> None:
    with attack(target.url, buffers=32) as attacker:
        attacker.send(make_call(1, SIZE))
        until(lambda: attacker.get(attacker.into) > 0, "the reply comes")
        data, fds, _, _ = socket.recv_fds(attacker.socket, 4096, 4)
        assert b"S" in data
        (fd,) = fds
        try:
            with pytest.raises(PermissionError):
                mmap.mmap(fd, SIZE)
            with pytest.raises(PermissionError):
                os.pwrite(fd, b"x", 0)
            with pytest.raises(PermissionError):
                os.ftruncate(fd, 0)
            again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
            with pytest.raises(PermissionError):
                mmap.mmap(again, SIZE)
            os.close(again)
            with mmap.mmap(fd, SIZE, prot=mmap.PROT_READ) as memory:
                assert memory[0] == SIZE % 251
        finally:
            os.close(fd)


def test_what_is_handed_back(target: Target) -> None:
    with attack(target.url, buffers=32) as attacker:
        attacker.send(make_call(1, SIZE))
        number, _ = lent(attacker.receive())
        own = reference(0, SIZE, number=number, whose=THEIRS)
        for call in range(2, 5):  # as often as one likes
            attacker.hand_over(own, head=show_call(call))
            assert attacker.receive()[8:9] == bytes([SIZE % 251])
        attacker.hand_over(reference(0, SIZE, number=number + 32, whose=THEIRS), head=show_call(9))
        target.dropped(attacker, "hands back a buffer that it does not have")
    with attack(target.url, buffers=32) as attacker:
        attacker.send(make_call(1, SIZE))
        number, _ = lent(attacker.receive())
        attacker.hand_over(reference(0, 2, number=number, offset=MAX, whose=THEIRS), head=show_call(2))
        target.dropped(attacker, "hands back more of a buffer than there is")


@pytest.mark.parametrize(("offset", "length", "why"), [(64, 1 << 20, "more"), (0, 100, "more"), (MAX, 2, "more")])
def test_regions_that_are_handed_back(target: Target, offset: int, length: int, why: str) -> None:
    with attack(target.url, buffers=32) as attacker:
        data = os.urandom(15_000)
        fd = memfd(1 << 16)
        with mmap.mmap(fd, 1 << 16) as region:
            region[64 : 64 + len(data)] = data
        attacker.announce(1, 1 << 16, fd)
        os.close(fd)
        attacker.note(1, len(data), head=frame(CALL, 0, 1))
        record = attacker.receive()  # the answer is in a region of the server's
        region_id, answered, flags = struct.unpack_from("<IQB", record)
        assert (answered, flags) == (len(data), 0)
        back = reference(0, len(data), number=region_id, offset=64, whose=THEIR_REGION)
        attacker.hand_over(back, head=show_call(2))
        assert attacker.receive()[8:12] == data[:4]
        attacker.hand_over(reference(0, length, number=region_id, offset=offset, whose=THEIR_REGION), head=show_call(3))
        target.dropped(attacker, f"hands back {why} of a region than there is")
