"""A service, and a client that has one thread only, for :mod:`.test_lone_thread`. The client is a program: the tests'
own process has threads.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import nearcall

PATIENCE = 30.0


@nearcall.service
class Teller:
    def ask(self, text: str) -> str:
        return f"{text}?"


@dataclass
class Refused(Exception):
    why: str


@nearcall.service(errors=[Refused])
class Lone:
    def echo(self, data: bytes) -> bytes:
        return data

    def after(self, seconds: float, text: str) -> str:
        time.sleep(seconds)
        return text

    def refuse(self, why: str) -> None:
        raise Refused(why=why)

    def ask_back(self, teller: Teller, times: int) -> str:
        return "".join(teller.ask(str(number)) for number in range(times))

    def metadata(self) -> dict[str, str]:
        context = nearcall.context()
        context.add_trailing_metadata({"seen": "yes"})
        return {"asked": str(context.metadata["asked"])}

    def end(self) -> None:
        os.kill(os.getpid(), signal.SIGKILL)


def served() -> list[object]:
    return [Lone()]


@contextmanager
def lone(url: str) -> Iterator[Lone]:
    assert threading.active_count() == 1
    with nearcall.connect(url, Lone) as client:
        yield client


def every_length(url: str) -> None:
    with lone(url) as client:
        for length in (0, 1, 15, 127, 128, 1000, 4000, 4090, 4096, 5000, 60_000, 3_000_000):
            for seed in range(3):
                data = bytes([seed]) * length
                assert client.echo(data) == data, length


def replies_that_take_their_time(url: str) -> None:
    with lone(url) as client:
        for seconds in (0.0, 0.00002, 0.0002, 0.002, 0.05, 0.3, 0.0):
            assert client.after(seconds, str(seconds)) == str(seconds)


def deadlines(url: str) -> None:
    with lone(url) as client:
        for _ in range(3):
            begun = time.monotonic()
            with nearcall.timeout(0.2):
                try:
                    client.after(PATIENCE / 10, "late")
                except nearcall.DeadlineExceeded:
                    assert 0.2 <= time.monotonic() - begun < PATIENCE / 10
                else:
                    raise AssertionError("it was late")
            assert client.echo(b"next") == b"next"


def errors(url: str) -> None:
    with lone(url) as client:
        for number in range(50):
            try:
                client.refuse(str(number))
            except Refused as error:
                why = error.why
            assert why == str(number)


def callbacks(url: str) -> None:
    with lone(url) as client:
        for _ in range(3):
            assert client.echo(b"before") == b"before"
            assert client.ask_back(Teller(), 20) == "".join(f"{number}?" for number in range(20))


def metadata(url: str) -> None:
    with lone(url) as client, nearcall.metadata({"asked": "this"}) as block:
        for _ in range(3):
            assert client.metadata() == {"asked": "this"}
            assert dict(block.trailing)["seen"] == "yes"


def started(url: str) -> None:
    with lone(url) as client:
        calls = [nearcall.start(client.after, 0.001 * (number % 3), str(number)) for number in range(30)]
        assert client.echo(b"between") == b"between"
        assert [call.result() for call in calls] == [str(number) for number in range(30)]


def interrupted(url: str) -> None:
    with lone(url) as client:
        for seconds in (0.05, 0.0):
            signal.setitimer(signal.ITIMER_REAL, 0.02)
            signal.signal(signal.SIGALRM, signal.default_int_handler)
            begun = time.monotonic()
            try:
                while time.monotonic() - begun < PATIENCE:
                    client.after(seconds, "")
            except KeyboardInterrupt:
                assert time.monotonic() - begun < PATIENCE
            else:
                raise AssertionError("the signal was not heard")
            assert client.echo(b"next") == b"next"


def a_thread_that_comes_later(url: str) -> None:
    """It has its share of the interpreter while the first thread calls without a pause, and may call itself."""
    with lone(url) as client:
        assert client.echo(b"alone") == b"alone"
        called: list[bytes] = []
        ended = threading.Event()

        def call() -> None:
            called.extend(client.echo(str(number).encode()) for number in range(200))
            ended.set()

        thread = threading.Thread(target=call)
        thread.start()
        end = time.monotonic() + PATIENCE
        while not ended.is_set():
            assert client.echo(b"two") == b"two"
            assert time.monotonic() < end
        thread.join()
        assert called == [str(number).encode() for number in range(200)]
        assert client.echo(b"alone again") == b"alone again"


def the_servers_end(url: str) -> None:
    with lone(url) as client:
        assert client.echo(b"there") == b"there"
        try:
            client.end()
        except nearcall.Unavailable:
            pass
        else:
            raise AssertionError("nobody could answer")


CHECKS: list[Callable[[str], None]] = [
    every_length,
    replies_that_take_their_time,
    deadlines,
    errors,
    callbacks,
    metadata,
    started,
    interrupted,
    a_thread_that_comes_later,
]


def main() -> None:
    url, name = sys.argv[1:]
    globals()[name](url)
    print("right", flush=True)
