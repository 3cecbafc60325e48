"""A server that stops while a client is slow to read, and one whose welcome is not read."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import nearcall

from ..hostile import raw
from ..hostile.frames import CALL, END, GOAWAY, ITEM, credit, encode, frame
from .process import start_program

PATIENCE = 30
WATER = b"x" * 1000


@nearcall.service
class Spring:
    def __init__(self) -> None:
        self.given = 0

    def flow(self, items: int) -> Iterator[bytes]:
        for _ in range(items):
            self.given += 1
            yield WATER

    def echo(self, text: str) -> str:
        return text


SLOW = """
import sys, nearcall
from {module} import Spring
stream = nearcall.connect(sys.argv[1], Spring, ring_size=4096).service.flow({items})
print(len(next(stream)), flush=True)
sys.stdin.readline()
print(1 + sum(1 for _ in stream), flush=True)
"""


def takes_clients(url: str) -> bool:
    try:
        nearcall.connect(url, Spring).close()
    except nearcall.Unavailable:
        return False
    return True


@pytest.mark.slow
def test_a_slow_reader_is_not_cut_off_within_the_grace(new_url: str, transport: str) -> None:
    """It stands still when the server begins to stop, with its ring full, and then reads to the end."""
    if transport == "inproc":
        pytest.skip("the reader is a process of its own")
    items, service = 900, Spring()
    server = nearcall.Server(service, new_url).start()
    code = SLOW.format(module=__name__, items=items)
    with start_program(code, server.urls[0]) as reader:
        assert reader.stdin is not None
        assert reader.stdout is not None
        try:
            assert reader.stdout.readline() == "1000\n"
            os.kill(reader.pid, signal.SIGSTOP)
            stopped: list[bool] = []
            stopper = threading.Thread(target=lambda: stopped.append(server.stop(grace=PATIENCE)))
            stopper.start()
            while takes_clients(server.urls[0]):
                pass
            # Longer than the server would once have had patience with a reader.
            threading.Event().wait(0.1)
            os.kill(reader.pid, signal.SIGCONT)
            reader.stdin.write("\n")
            reader.stdin.flush()
            assert reader.stdout.readline() == f"{items}\n"
            stopper.join(PATIENCE)
            assert stopped == [True]
        finally:
            reader.kill()


def test_a_client_that_shakes_hands_meanwhile_is_told_to_go_elsewhere(new_url: str, transport: str) -> None:
    if transport == "inproc":
        pytest.skip("it has no handshake that takes time")
    for _ in range(5):  # on a busy machine this side may take longer than the server waits
        server = nearcall.Server(Spring(), new_url).start()
        connection = raw.dial(server.urls[0])
        assert takes_clients(server.urls[0])  # so the one before is accepted
        with ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(server.stop, PATIENCE)
            while takes_clients(server.urls[0]):
                pass
            try:
                client = raw.connect(server.urls[0], connection=connection)
            except raw.Gone:
                continue
            with client:
                assert client.receive().kind == GOAWAY
            assert stopped.result()
            return
    pytest.fail("the server never waited for a handshake")


def test_a_client_that_says_nothing_does_not_hold_up_the_end(new_url: str, transport: str) -> None:
    if transport == "inproc":
        pytest.skip("it has no handshake that takes time")
    server = nearcall.Server(Spring(), new_url, handshake_timeout=PATIENCE).start()
    with raw.dial(server.urls[0], plain=True):
        assert takes_clients(server.urls[0])
        begun = time.monotonic()
        assert server.stop(PATIENCE)
        assert time.monotonic() - begun < PATIENCE / 2


def test_what_is_still_on_the_way_comes_to_a_reader_who_sends_meanwhile(new_url: str, transport: str) -> None:
    """Its system has room for little. TCP drops what is on the way from a closed socket when bytes come to it."""
    if transport == "inproc":
        pytest.skip("nothing is on the way in one process")
    items, service = 900, Spring()
    server = nearcall.Server(service, new_url).start()
    with raw.connect(server.urls[0], receive_buffer=1 << 16) as reader:
        assert reader.send(frame(CALL, encode([items]), method=reader.methods["flow"]))
        got = [reader.receive()]
        stopped: list[bool] = []
        stopper = threading.Thread(target=lambda: stopped.append(server.stop(grace=PATIENCE)))
        stopper.start()
        while service.given < items:
            got.append(reader.receive())
        # A server that does not wait for the reader is gone by then.
        stopper.join(0.2)
        while got[-1].kind != END:
            with contextlib.suppress(raw.Gone):
                reader.send(credit(len(got[-1].rest)))
            got.append(reader.receive())
        assert [one.kind for one in got if one.kind != GOAWAY] == [ITEM] * items + [END]
    stopper.join(PATIENCE)
    assert stopped == [True]


def test_metadata_that_is_too_long_is_told_from_a_message(new_url: str) -> None:
    with nearcall.Server(Spring(), new_url) as server, nearcall.connect(server.urls[0], Spring) as spring:
        with (
            nearcall.metadata({"much": "x" * 2_000_000}),
            pytest.raises(nearcall.ResourceExhausted, match="send less metadata") as caught,
        ):
            spring.echo("x")
        assert "max_message_size" not in caught.value.message
        assert "Spring.echo" in caught.value.message
        assert spring.echo("y") == "y"


def test_trailing_metadata_that_is_too_long_ends_the_call(new_url: str) -> None:
    @nearcall.service(name="Verbose")
    class Verbose:
        def talk(self) -> str:
            nearcall.context().add_trailing_metadata({"much": "x" * 2_000_000})
            return "x"

        def fail(self) -> str:
            nearcall.context().add_trailing_metadata({"much": "x" * 2_000_000})
            raise nearcall.NotFound("nothing")

    with nearcall.Server(Verbose(), new_url) as server, nearcall.connect(server.urls[0], Verbose) as verbose:
        with nearcall.timeout(PATIENCE), pytest.raises(nearcall.ResourceExhausted, match="send less metadata"):
            verbose.talk()
        with nearcall.timeout(PATIENCE), pytest.raises(nearcall.NotFound):
            verbose.fail()


def test_a_mismatch_names_the_url(new_url: str) -> None:
    @nearcall.service(name="Spring")
    class Other:
        def echo(self, text: int) -> str: ...

    @nearcall.service
    class Stranger:
        def echo(self, text: str) -> str: ...

    with nearcall.Server(Spring(), new_url) as server:
        for cls in (Other, Stranger):
            with pytest.raises(nearcall.FailedPrecondition) as caught:
                nearcall.connect(server.urls[0], cls)
            assert caught.value.message.startswith(f"{server.urls[0]}: ")
