"""Peers over shared memory that mean harm, against a real server process and a real client.

Whatever they do, a server says in its log what was wrong, ends that connection, and is otherwise as before: its other
clients are served all the while, and its descriptors and its memory are as they were.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import random
import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import nearcall

from ..e2e.process import ServerProcess
from .hostile import BACKWARDS, COUNT, ECHO, REFUSE, TOTAL, Echo, not_memory, ordinary_file
from .raw_shm import (
    CALL,
    CLIENT_SIDE,
    END,
    ERROR,
    ITEM,
    NOTE,
    PAGE,
    PATIENCE,
    PING,
    PONG,
    REPLY,
    RING,
    SEALS,
    TAIL,
    TO_CLIENT,
    TO_SERVER,
    End,
    attack,
    dial,
    frame,
    hello,
    introduce,
    memfd,
    message,
)

HANDSHAKE_TIMEOUT = 0.5
ONEWAY = 16
"""The flag of a call that nobody waits for."""


def served() -> list[object]:
    logging.basicConfig(level=logging.INFO)
    return [Echo()]


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"it is not so after {PATIENCE} s: {what}"
        time.sleep(0.005)


class Target:
    """A server under attack, and a client that must not notice."""

    def __init__(self, server: ServerProcess, log: Path) -> None:
        self._server = server
        self._log = log
        self._read = 0
        self.url = server.url
        self._bystander = nearcall.connect(server.url, Echo, timeout=PATIENCE)
        self.is_well()
        self._before = self._held()

    def is_well(self) -> None:
        """Others are served."""
        for data in (b"small", bytes(range(256)) * 400):
            assert self._bystander.service.echo(data) == data
        assert self._bystander.connected

    def has_refused(self) -> bool:
        return self._bystander.service.has_refused()

    def _held(self) -> tuple[int, list[str]]:
        """The server's descriptors, and the sizes of the shared memory that it has mapped."""
        maps = Path(f"/proc/{self._server.pid}/maps").read_text(encoding="utf-8")
        shared = [line for line in maps.splitlines() if "/memfd:" in line]
        sizes = [line.split()[0] for line in shared]
        lengths = [int(high, 16) - int(low, 16) for low, _, high in (size.partition("-") for size in sizes)]
        return len(os.listdir(f"/proc/{self._server.pid}/fd")), sorted(map(str, lengths))

    @property
    def news(self) -> str:
        """What the log says since the test began."""
        return self._log.read_text(encoding="utf-8")[self._read :]

    def said(self, text: str) -> None:
        until(lambda: re.search(text, self.news) is not None, f"the log says {text!r}, but it is {self.news!r}")

    def forget(self) -> None:
        self._read = len(self._log.read_text(encoding="utf-8"))

    def dropped(self, attacker: End, text: str) -> None:
        """It ends the connection, and says why."""
        attacker.wait_for_the_end()
        self.said(f"INFO:nearcall:dropped the connection to process {os.getpid()} of user .*: .*{text}")

    def check(self) -> None:
        """All is as before."""
        self.is_well()
        until(lambda: self._held() == self._before, f"it holds {self._held()}, and held {self._before}")
        assert "Traceback" not in self.news
        assert "panicked" not in self.news

    def close(self) -> None:
        self._bystander.close()


@pytest.fixture(scope="module")
def under_attack(tmp_path_factory: pytest.TempPathFactory, runtime_dir: Path) -> Iterator[Target]:
    log = tmp_path_factory.mktemp("hostile") / "log"
    with (
        log.open("w") as stderr,
        ServerProcess(
            f"shm://hostile-{os.getpid()}",
            services="tests.survival.test_hostile_shm:served",
            stderr=stderr,
            handshake_timeout=HANDSHAKE_TIMEOUT,
        ) as server,
    ):
        target = Target(server, log)
        yield target
        target.close()


@pytest.fixture
def target(under_attack: Target) -> Iterator[Target]:
    under_attack.forget()
    yield under_attack
    under_attack.check()


def call(number: int = 1, data: bytes = b"hello") -> bytes:
    return frame(CALL, ECHO, number, data)


def greet(attacker: End) -> None:
    """One call as it should be."""
    attacker.send(call())
    assert attacker.receive() == frame(REPLY, 0, 1, b"hello")


@pytest.mark.parametrize(
    "jump", [-8, -24, 4, 1, RING + 8, 2 * RING, 1 << 32, -(1 << 63), (1 << 63) - 8], ids=lambda jump: f"{jump:+}"
)
def test_a_writers_counter_that_jumps(target: Target, jump: int) -> None:
    with attack(target.url) as attacker:
        greet(attacker)
        attacker.publish(attacker.head + jump)
        target.is_well()
        target.dropped(attacker, BACKWARDS)


@pytest.mark.parametrize("to", [0, RING, 1 << 40, 1 << 63], ids=hex)
def test_a_readers_counter_that_jumps(target: Target, to: int) -> None:
    with attack(target.url) as attacker:
        data = bytes(RING // 16)
        number = 1
        while attacker.head < 2 * RING:  # twice around: the server has seen the counter at work
            attacker.send(call(number, data))
            attacker.receive()
            number += 1
        attacker.put(TO_CLIENT + TAIL, attacker.tail + to if to else 0)
        # It looks at it again when its replies have filled the ring as far as it knows.
        while not attacker.hung_up() and number < 100:
            attacker.record(call(number, data))
            attacker.publish()
            until(lambda: attacker.get(TO_SERVER + TAIL) == attacker.head or attacker.hung_up(), "the server reads")
            number += 1
        target.is_well()
        target.dropped(attacker, "the reader's counter of the ring went backwards or past the writer's")


@pytest.mark.parametrize(
    ("prefix", "why"),
    [
        (0, "a frame is shorter than its head"),
        (7, "a frame is shorter than its head"),
        (1000, "a record in the ring is longer than what was written"),
        (RING, "a record in the ring is longer than what was written"),
        (NOTE - 1, "a record in the ring is longer than what was written"),
        (2 * NOTE - 1, "a record in the ring is longer than what was written"),
        (NOTE, "a note in the ring is too short"),
        (NOTE | 12, "a note in the ring is too short"),
    ],
)
def test_lengths_of_records(target: Target, prefix: int, why: str) -> None:
    with attack(target.url) as attacker:
        greet(attacker)
        attacker.record(call(), prefix=prefix)
        attacker.publish()
        target.is_well()
        target.dropped(attacker, why)


def test_lengths_that_change_while_they_are_read(target: Target) -> None:
    with attack(target.url) as attacker:
        over = threading.Event()

        def flip() -> None:
            generator = random.Random(7)
            choices = [4 + len(call()), 0, 8, 500, 60_000, NOTE - 1, NOTE | 20, 0xFFFFFFFF]
            while not over.is_set():
                with contextlib.suppress(ValueError):
                    attacker.put(attacker.out_at + 8 * generator.randrange(RING // 8), generator.choice(choices), "I")

        flippers = [threading.Thread(target=flip) for _ in range(2)]
        for flipper in flippers:
            flipper.start()
        try:
            for number in range(2000):
                attacker.send(call(number))
                attacker.put(TO_CLIENT + TAIL, attacker.get(TO_CLIENT))  # read, as far as the server can see
                if number % 100 == 0:
                    target.is_well()
                    if attacker.hung_up():
                        break
            else:
                # It got through all of them: then at least the last one ends it.
                attacker.publish(attacker.head + 3)
        finally:
            over.set()
            for flipper in flippers:
                flipper.join()
        target.dropped(attacker, "")


@pytest.mark.parametrize("seed", range(10))
def test_the_page_of_words_overwritten_with_anything(target: Target, seed: int) -> None:
    with attack(target.url) as attacker:
        generator = random.Random(seed)
        greet(attacker)
        for number in range(300):
            attacker.memory[generator.randrange(PAGE)] = generator.randrange(256)
            if number % 10 == 0:
                attacker.send(call(number))
        target.is_well()
        attacker.publish(attacker.head + 1)
        attacker.wait_for_the_end()


def test_a_flood_of_bells(target: Target) -> None:
    with attack(target.url) as attacker:
        over = threading.Event()

        def ring() -> None:
            while not over.is_set():
                if select.select([], [attacker.socket], [], 0.1)[1]:
                    attacker.socket.send(b"B" * 1024)

        ringer = threading.Thread(target=ring)
        ringer.start()
        try:
            for _ in range(50):
                target.is_well()
            greet(attacker)
        finally:
            over.set()
            ringer.join()
        assert target.news == "", "a bell too many is no crime"


@pytest.mark.parametrize("byte", [b"X", b"\0", b"\xff", b"BBBr"])
def test_unknown_bytes_beside_the_bells(target: Target, byte: bytes) -> None:
    with attack(target.url) as attacker:
        attacker.socket.send(byte)
        target.dropped(attacker, "the peer sent something unknown on the rendezvous socket")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (frame(0), "a frame is of a kind that its receiver does not know"),
        (frame(13), "a frame is of a kind that its receiver does not know"),
        (frame(255), "a frame is of a kind that its receiver does not know"),
        (frame(CALL, flags=0x80), "a flag that its receiver does not know"),
        (frame(CALL, flags=1, payload=b"1234"), "a frame ends inside its deadline"),
        (frame(CALL, flags=2, payload=b"\xff\xff\xff\xff"), "metadata is longer than its frame"),
        (frame(CALL, flags=4, payload=b"\xff\xff\xff\xff"), "a frame has more than 65536 buffers"),
        (frame(REPLY), "a frame that only servers send"),
        (frame(ERROR), "a frame that only servers send"),
        (frame(10), "a frame that only servers send"),
        (frame(11), "a frame that only servers send"),
    ],
)
def test_frames_that_nobody_sends(target: Target, data: bytes, why: str) -> None:
    with attack(target.url) as attacker:
        attacker.send(data)
        target.dropped(attacker, why)


def test_calls_that_make_no_sense_are_answered(target: Target) -> None:
    with attack(target.url) as attacker:
        for number, (method, payload, code) in enumerate(
            [(300, b"", 12), (0xFFFF, b"", 12), (COUNT, b"\xc1", 3), (COUNT, b"", 3), (COUNT, b"\x92\x01\x02", 3)], 1
        ):
            attacker.send(frame(CALL, method, number, payload))
            answer = attacker.receive()
            assert (answer[0], answer[4], answer[8]) == (ERROR, number, code), answer
        for kind, payload in ((ITEM, b"\x01"), (END, b""), (6, b""), (7, bytes(8))):
            attacker.send(frame(kind, call=77, payload=payload))  # of a call that may have ended
        greet(attacker)
    assert target.news == ""


def test_a_client_that_leaves_before_there_is_room_for_an_error(target: Target) -> None:
    with attack(target.url) as attacker:
        for number in range(20):  # more answers than fit
            attacker.send(call(number, bytes(4000)))
            until(lambda: attacker.get(TO_SERVER + TAIL) == attacker.head, "the server reads")
        attacker.send(frame(CALL, REFUSE, 100, b"\x90"))
        until(target.has_refused, "the coroutine ran")


def test_pings_of_a_client_that_is_slow_to_read(target: Target) -> None:
    """It is not dropped for that; it is not read from, either, until it has taken what it asked for."""
    with attack(target.url) as attacker:
        # The answers fill the ring, and then the MiB that may wait for it.
        pings = [frame(PING, call=number, payload=bytes([number % 256]) * 1000) for number in range(1060)]
        for few in range(0, 1000, 50):  # as many as the ring holds
            for ping in pings[few : few + 50]:
                attacker.send(ping)
            until(lambda: attacker.get(TO_SERVER + TAIL) == attacker.head, "the server reads")
        for ping in pings[1000:]:
            attacker.send(ping)
        target.is_well()
        assert attacker.get(TO_SERVER + TAIL) != attacker.head
        assert [attacker.receive() for _ in pings] == [bytes([PONG]) + ping[1:] for ping in pings]
        greet(attacker)
    assert target.news == ""


@pytest.mark.parametrize(
    ("frames", "why"),
    [
        ([frame(CALL, TOTAL), frame(CALL, TOTAL)], "the number of a call that is under way"),
        ([frame(CALL, TOTAL), frame(END), frame(ITEM, payload=b"\x01")], ""),
        ([frame(CALL, TOTAL, flags=ONEWAY)], "a one-way call of a method that has a stream"),
        ([frame(CALL, COUNT, flags=ONEWAY)], "a one-way call of a method that has a stream"),
        (
            [frame(CALL, COUNT, payload=b"\x91\xce\x7f\xff\xff\xff"), frame(7, payload=b"123")],
            "a credit frame is",
        ),
    ],
)
def test_calls_that_break_the_rules_of_streams(target: Target, frames: list[bytes], why: str) -> None:
    with attack(target.url) as attacker:
        for data in frames:
            attacker.send(data)
        if why:
            target.dropped(attacker, why)
    target.is_well()


def test_items_that_nobody_takes(target: Target) -> None:
    with attack(target.url, 1 << 20) as attacker:
        # The handler of a call takes them; one that has not begun, or waits, does not. Without asking for credit:
        attacker.send(frame(CALL, TOTAL, 1))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(50):
                for _ in range(400):
                    attacker.record(frame(ITEM, payload=b"\x01"))
                attacker.publish()
                until(lambda: attacker.get(TO_SERVER + TAIL) == attacker.head or attacker.hung_up(), "the server reads")
        target.is_well()


@pytest.mark.parametrize(
    ("make", "size", "length", "why"),
    [
        (not_memory, 1 << 16, 10, "a descriptor that is not shared memory"),
        (ordinary_file, 1 << 16, 10, "not sealed against resizing|a descriptor that is not shared memory"),
        (lambda: memfd(1 << 16, 0), 1 << 16, 10, "not sealed against resizing"),
        (lambda: memfd(1 << 16, fcntl.F_SEAL_SHRINK), 1 << 16, 10, "not sealed against resizing"),
        (lambda: memfd(4096), 1 << 16, 10, "the size it announced"),
        (lambda: memfd(64), 64, 0, "more shared memory than it may"),
        (lambda: memfd(1 << 16), 1 << 63, 10, "more shared memory than it may"),
        (lambda: memfd(1 << 16), 1 << 16, (1 << 16) - 63, "longer than the memory it lies in"),
        (lambda: memfd(1 << 16), 1 << 16, 1 << 62, "the limit is"),
    ],
)
def test_regions_that_are_wrong(target: Target, make: Callable[[], int], size: int, length: int, why: str) -> None:
    fd = make()
    with attack(target.url) as attacker:
        greet(attacker)
        attacker.announce(1, size, fd)
        attacker.note(1, length)
        target.dropped(attacker, why)
    os.close(fd)


def test_a_region_that_is_mostly_a_hole(target: Target) -> None:
    """Memory and time are spent on messages, and not on what lies around them."""
    size = 150 << 20
    with attack(target.url) as attacker:
        greet(attacker)
        for region in range(20):
            fd = memfd(size)
            os.pwrite(fd, b"\x01", 0)
            attacker.announce(region, size, fd)
            attacker.note(region, 1, last_use=True)
            attacker.receive()
            target.is_well()
            assert os.fstat(fd).st_blocks * 512 < 1 << 20
            os.close(fd)


def test_a_region_without_its_descriptor_or_never_sent(target: Target) -> None:
    with attack(target.url) as attacker:
        attacker.announce(1, 1 << 16)
        target.dropped(attacker, "announced shared memory without sending its descriptor")
    target.forget()
    with attack(target.url) as attacker:
        attacker.note(5, 10)
        target.dropped(attacker, "uses shared memory that it has not sent")


def test_a_thousand_regions_announced(target: Target) -> None:
    fd = memfd(1 << 16)
    with attack(target.url) as attacker:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for number in range(1000):
                attacker.announce(number, 1 << 16, fd)
        target.is_well()
        target.dropped(attacker, "announces shared memory that it does not use")
    os.close(fd)


def test_a_thousand_regions_used(target: Target) -> None:
    """The most that a peer may keep is bounded, whatever it says of the last use."""
    fd = memfd(1 << 20)
    with attack(target.url) as attacker:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError, AssertionError):
            for number in range(1000):
                attacker.announce(number, 1 << 20, fd)
                attacker.note(number, 10, head=frame(CALL, ECHO, number))
                attacker.receive()
        target.is_well()
        target.dropped(attacker, "more shared memory than it may")
    os.close(fd)


def test_descriptors_that_nobody_asked_for(target: Target) -> None:
    fd = memfd(1 << 16)
    with attack(target.url) as attacker:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            for _ in range(20):
                socket.send_fds(attacker.socket, [b"B"], [fd] * 8)
        target.dropped(attacker, "descriptors that nobody asked for")
    os.close(fd)


def test_memory_that_changes_its_size(target: Target) -> None:
    with attack(target.url) as attacker:
        fd = memfd(PAGE + 2 * RING)
        for size in (0, PAGE, 1 << 30):
            with pytest.raises(PermissionError):
                os.ftruncate(fd, size)
        os.close(fd)
        greet(attacker)
    for missing in (SEALS, fcntl.F_SEAL_SHRINK, fcntl.F_SEAL_GROW, fcntl.F_SEAL_SEAL):
        target.forget()
        fd = memfd(PAGE + 2 * RING, SEALS & ~missing)
        why = introduce(target.url, hello(), [fd])
        os.close(fd)
        assert "not sealed against resizing" in why
        target.said(f"INFO:nearcall:turned away process {os.getpid()} of user .*: .*not sealed against resizing")


@pytest.mark.parametrize(
    ("data", "make", "why"),
    [
        (hello(), None, "sent no shared memory"),
        (hello(), not_memory, "not shared memory"),
        (hello(), lambda: memfd(PAGE), "the size it announced"),
        (hello(RING + 8), lambda: memfd(PAGE + 2 * RING + 16), "impossible ring size"),
        (hello(0), lambda: memfd(PAGE), "impossible ring size"),
        (hello(1 << 62), lambda: memfd(PAGE), "impossible ring size"),
        (message(1, b"[" * 60_000), lambda: memfd(PAGE), "hello cannot be read"),
        (message(1, b"{}"), lambda: memfd(PAGE), ""),
        (message(2, b"{}"), lambda: memfd(PAGE), "no hello"),
        (message(1, b"")[:8] + b"\xff\xff\xff\xff", lambda: memfd(PAGE), "announces more than 16 MiB"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", None, "does not speak nearcall"),
        (b"\0" * 64, None, "does not speak nearcall"),
        (b"NCAL\x02" + bytes(7), None, "version 2"),
    ],
)
def test_handshakes_that_are_wrong(target: Target, data: bytes, make: Callable[[], int] | None, why: str) -> None:
    fd = None if make is None else make()
    assert why in introduce(target.url, data, [] if fd is None else [fd])
    if fd is not None:
        os.close(fd)
    target.said(f"INFO:nearcall:turned away process {os.getpid()} of user .*: .*{why}")


def test_half_a_handshake_and_silence(target: Target) -> None:
    fd = memfd(PAGE + 2 * RING)
    silent = []
    for length in range(0, len(hello()), 7):
        connection = dial(target.url)
        if length:
            socket.send_fds(connection, [hello()[:length]], [fd])
        silent.append(connection)
    target.is_well()
    for connection in silent:
        answer = b""
        with contextlib.suppress(ConnectionResetError):
            while got := connection.recv(4096):
                answer += got
        assert b"took too long" in answer
        connection.close()
    os.close(fd)
    # Each is told before the log is.
    until(lambda: target.news.count("took too long") >= len(silent), "the log says of each that it took too long")
    target.said("turned away .*: the handshake took too long")
    assert target.news.count("took too long") == len(silent)


def test_a_client_that_never_reads_its_replies(target: Target) -> None:
    with attack(target.url) as attacker:
        data = bytes(RING // 16)
        for number in range(60):
            attacker.record(call(number, data))
            attacker.publish()
            until(lambda: attacker.get(TO_SERVER + TAIL) == attacker.head or attacker.hung_up(), "the server reads")
        for _ in range(20):
            target.is_well()
        assert attacker.get(TO_CLIENT) <= RING, "the ring is full, and nothing was overwritten"


def test_a_client_that_says_it_has_left_and_goes_on(target: Target) -> None:
    with attack(target.url) as attacker:
        greet(attacker)
        attacker.put(CLIENT_SIDE + 16, 1, "I")
        attacker.send(call(2))
        target.is_well()


def test_many_attackers_at_once(target: Target) -> None:
    attackers = [attack(target.url, 4096) for _ in range(50)]
    for number, attacker in enumerate(attackers):
        attacker.publish(attacker.head + (3 if number % 2 else 1 << 40))
    target.is_well()
    for attacker in attackers:
        attacker.wait_for_the_end()
        attacker.close()
    until(lambda: target.news.count(BACKWARDS) == len(attackers), "each is in the log")
