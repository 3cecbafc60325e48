"""A client of ours over shared memory, and a server that means harm.

Whatever it does, the call fails with a clear reason, and the client is as before.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import socket
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall.service.describing import describe
from nearcall.service.service import plan_of

from .hostile import BACKWARDS, Echo, not_memory
from .observing import eventually
from .raw_shm import (
    ERROR,
    NOTE,
    PATIENCE,
    REPLY,
    TAIL,
    TO_SERVER,
    End,
    be_served,
    frame,
    memfd,
    place_of,
)


class Host:
    """Serves each client that comes with what the test says."""

    def __init__(self, url: str, harm: Callable[[End], None]) -> None:
        self.url = url
        self._harm = harm
        self._path = Path(place_of(url))
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen()
        self._listener.settimeout(PATIENCE)
        self.failure: BaseException | None = None
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        try:
            with be_served(self._listener, json.dumps(describe([plan_of(Echo)]))) as end:
                self._harm(end)
                end.wait_for_the_end()
        except BaseException as error:
            self.failure = error

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *exc: object) -> None:
        self._thread.join(PATIENCE)
        self._listener.close()
        self._path.unlink()
        assert self.failure is None, self.failure


def reply(data: bytes) -> Callable[[End], None]:
    def harm(end: End) -> None:
        end.receive()
        end.send(data)

    return harm


def publish(jump: int) -> Callable[[End], None]:
    def harm(end: End) -> None:
        end.receive()
        end.publish(end.head + jump)

    return harm


def lay(prefix: int) -> Callable[[End], None]:
    def harm(end: End) -> None:
        end.receive()
        end.record(frame(REPLY, call=0), prefix=prefix)
        end.publish()

    return harm


def region(make: Callable[[], int], size: int, length: int) -> Callable[[End], None]:
    def harm(end: End) -> None:
        end.receive()
        fd = make()
        end.announce(1, size, fd)
        os.close(fd)
        end.note(1, length, head=frame(REPLY))

    return harm


def flood(end: End) -> None:
    end.receive()
    fd = memfd(1 << 16)
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        for number in range(1000):
            end.announce(number, 1 << 16, fd)
    os.close(fd)


def stray(end: End) -> None:
    end.receive()
    end.socket.send(b"?")


def leave(end: End) -> None:
    end.receive()
    end.socket.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("harm", "error", "why"),
    [
        (publish(-8), nearcall.Internal, BACKWARDS),
        (publish(3), nearcall.Internal, BACKWARDS),
        (publish(1 << 40), nearcall.Internal, BACKWARDS),
        (lay(0), nearcall.Internal, "a frame is shorter than its head"),
        (lay(NOTE - 1), nearcall.Internal, "longer than what was written"),
        (lay(2 * NOTE - 1), nearcall.Internal, "longer than what was written"),
        (lay(NOTE | 3), nearcall.Internal, "a note in the ring is too short"),
        (reply(frame(0)), nearcall.Internal, "a kind that its receiver does not know"),
        (reply(frame(99)), nearcall.Internal, "a kind that its receiver does not know"),
        (reply(frame(REPLY, flags=0x80)), nearcall.Internal, "a flag that its receiver does not know"),
        (reply(frame(REPLY, flags=2, payload=b"\xff" * 8)), nearcall.Internal, "metadata is longer"),
        (region(not_memory, 1 << 16, 10), nearcall.Internal, "not shared memory"),
        (region(lambda: memfd(1 << 16, 0), 1 << 16, 10), nearcall.Internal, "not sealed"),
        (region(lambda: memfd(4096), 1 << 16, 10), nearcall.Internal, "the size it announced"),
        (region(lambda: memfd(1 << 16), 1 << 16, 1 << 17), nearcall.Internal, "longer than the memory"),
        (region(lambda: memfd(1 << 16), 1 << 16, 1 << 50), nearcall.Internal, "the limit is"),
        (flood, nearcall.Internal, "shared memory that it does not use"),
        (stray, nearcall.Internal, "something unknown on the rendezvous socket"),
        (leave, nearcall.Unavailable, "the server stopped or died"),
    ],
)
def test_a_server_that_means_harm(harm: Callable[[End], None], error: Any, why: str, runtime_dir: Path) -> None:
    url = f"shm://host-{os.getpid()}"

    def fail() -> None:
        client = nearcall.connect(url, Echo, timeout=PATIENCE)
        with client as echo, pytest.raises(error, match=f"connection to {url} (is broken: |was lost: ).*{why}"):
            echo.echo(b"x")
        assert not client.connected

    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    with Host(url, harm):
        fail()
    gc.collect()
    # What is no shared memory is closed by another thread.
    eventually(lambda: len(os.listdir("/proc/self/fd")) == before, "descriptors are left")


def test_a_server_that_answers_other_calls_or_none(runtime_dir: Path) -> None:
    def harm(end: End) -> None:
        end.receive()
        for number in (0xFFFFFFFF, 12345, 1 << 31):
            end.send(frame(REPLY, call=number, payload=b"not yours"))
            end.send(frame(ERROR, call=number, payload=struct.pack("<BI", 5, 0)))

    url = f"shm://host-{os.getpid()}"
    with Host(url, harm), nearcall.connect(url, Echo, timeout=0.3) as echo, pytest.raises(nearcall.DeadlineExceeded):
        echo.echo(b"x")


def test_a_server_that_never_reads(runtime_dir: Path) -> None:
    url = f"shm://host-{os.getpid()}"
    with Host(url, lambda end: None), nearcall.connect(url, Echo, timeout=0.1) as echo:
        for _ in range(10):  # they still fit into the ring
            with pytest.raises(nearcall.DeadlineExceeded):
                echo.echo(bytes(20_000))


def test_a_deadline_ends_a_call_that_does_not_fit(runtime_dir: Path) -> None:
    over = threading.Event()

    def harm(end: End) -> None:
        over.wait(PATIENCE)
        end.socket.shutdown(socket.SHUT_RDWR)

    def fill(echo: Echo) -> None:
        with contextlib.suppress(nearcall.Unavailable):
            while len(done) < 30 and not over.is_set():
                with contextlib.suppress(nearcall.DeadlineExceeded):
                    echo.echo(bytes(20_000))
                done.append(1)

    done: list[int] = []
    url = f"shm://host-{os.getpid()}"
    with Host(url, harm), nearcall.connect(url, Echo, timeout=0.05) as echo:
        caller = threading.Thread(target=fill, args=(echo,))
        caller.start()
        caller.join(5)
        over.set()
        caller.join(PATIENCE)
    assert len(done) == 30


def test_a_server_whose_reading_counter_jumps(runtime_dir: Path) -> None:
    def harm(end: End) -> None:
        end.receive()
        end.put(TO_SERVER + TAIL, 1 << 40)

    def call_until_it_fails(echo: Echo) -> None:
        for _ in range(1000):
            with contextlib.suppress(nearcall.DeadlineExceeded):
                echo.echo(bytes(10_000))

    url = f"shm://host-{os.getpid()}"
    why = "the reader's counter of the ring went backwards or past the writer's"
    with Host(url, harm), nearcall.connect(url, Echo, timeout=0.1) as echo:
        with pytest.raises(nearcall.RpcError, match=why) as caught:
            call_until_it_fails(echo)
        assert caught.value.code in (nearcall.StatusCode.INTERNAL, nearcall.StatusCode.UNAVAILABLE)
