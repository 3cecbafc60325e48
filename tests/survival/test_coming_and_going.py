"""A thousand clients, one after the other: nobody holds more at the end than at the beginning."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
from pathlib import Path

import pytest

import nearcall

from ..e2e.process import ServerProcess
from .observing import Holdings, comes_back_to, eventually, resident
from .services import SMALL, Target

TIMES = 1000
LEEWAY = 8 << 20
"""Bytes of memory that may come and go for other reasons; a leak of 10 KB for each client would be more."""


def once(url: str, large: bytes | None = None) -> None:
    with nearcall.connect(url, Target) as target:
        assert target.echo(SMALL) == SMALL
        if large is not None:
            assert target.length(memoryview(large)) == len(large)


@pytest.mark.slow
@pytest.mark.parametrize("face", ["threads", "asyncio"])
def test_a_thousand_times(server: ServerProcess, face: str) -> None:
    large = bytes(200_000)

    async def once_in_loop(with_large: bool) -> None:
        async with nearcall.aio.connect(server.url, Target) as target:
            assert await target.echo(SMALL) == SMALL
            if with_large:
                assert await target.length(memoryview(large)) == len(large)

    async def all_in_loop(times: int) -> None:
        for number in range(times):
            await once_in_loop(number % 10 == 0)

    def many(times: int) -> None:
        if face == "asyncio":
            asyncio.run(all_in_loop(times))
        else:
            for number in range(times):
                once(server.url, large if number % 10 == 0 else None)

    many(100)
    gc.collect()
    own, other = Holdings.of(os.getpid()), Holdings.of(server.pid)
    own_memory, other_memory = resident(os.getpid()), resident(server.pid)
    many(TIMES)
    gc.collect()
    comes_back_to(os.getpid(), own, threads=0)
    comes_back_to(server.pid, other)
    assert resident(os.getpid()) - own_memory < LEEWAY
    assert resident(server.pid) - other_memory < LEEWAY


def room_for_descriptors(pid: int) -> int:
    """Of the system's table of a process's descriptors."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("FDSize:")[2].split()[0])


@pytest.mark.slow
def test_many_clients_do_not_fill_the_table_of_descriptors(server: ServerProcess) -> None:
    """Where the system makes it larger, the thread that accepts stands still meanwhile (``platform::descriptors``)."""
    before = room_for_descriptors(server.pid)
    with contextlib.ExitStack() as clients:
        for _ in range(150):
            clients.enter_context(nearcall.connect(server.url, Target))
        assert len(os.listdir(f"/proc/{server.pid}/fd")) > 150
        assert room_for_descriptors(server.pid) == before


@nearcall.service
class Loop:
    async def pause(self) -> None:
        await asyncio.sleep(0)


def loop_services() -> list[object]:
    return [Loop()]


@pytest.mark.slow
def test_calls_of_coroutines_with_a_distant_deadline(new_url: str) -> None:
    """The server's loop remembers when such a call would have been late; its client may go all the same."""
    with ServerProcess(new_url, services="tests.survival.test_coming_and_going:loop_services") as server:
        with nearcall.connect(server.url, Loop, timeout=1000) as loop:
            loop.pause()
        before = Holdings.of(server.pid)
        others = [nearcall.connect(server.url, Loop, timeout=1000) for _ in range(10)]
        for other in others:
            other.service.pause()
            other.close()
        comes_back_to(server.pid, before)


@pytest.mark.slow
def test_a_stream_left_by_a_client_that_calls_no_more(server: ServerProcess) -> None:
    """Nobody reads what was on the way, and the server is in the middle of sending more: it gives the stream up."""
    with nearcall.connect(server.url, Target) as leaver, nearcall.connect(server.url, Target) as other:
        for number in range(3):
            key = f"left-{number}"
            stream = leaver.endless(key)
            assert [next(stream) for _ in range(10)] == list(range(10))
            full = Holdings.of(server.pid)
            stream.close()  # type: ignore[attr-defined]
            eventually(lambda key=key: other.closed_at(key) is not None, "the handler has ended")  # type: ignore[misc]
        assert [leaver.echo(SMALL) for _ in range(10)] == [SMALL] * 10
        comes_back_to(server.pid, full)
