"""Clients outlive their servers, and processes their parents."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nearcall

from .mortal import SERVICES, Mortal, going
from .process import ServerProcess


def _outcomes(call: Callable[[], object], until: type[Exception]) -> Iterator[bool]:
    """Calls until it raises that."""
    with contextlib.suppress(until):
        while True:
            call()
    yield True


def again(url: str) -> ServerProcess:
    return ServerProcess(url, services=SERVICES)


def test_the_next_call_finds_a_restarted_server(outside_url: str) -> None:
    with again(outside_url) as first:
        url = first.url
        client = nearcall.connect(url, Mortal)
        assert client.service.pid() == first.pid
    with again(url) as second, client as mortal:
        assert mortal.pid() == second.pid


@pytest.mark.slow
def test_a_killed_server_fails_the_call_under_way_and_only_that(outside_url: str) -> None:
    with again(outside_url) as first:
        url = first.url
        client = nearcall.connect(url, Mortal, wait_for_ready=True)
        with pytest.raises(nearcall.Unavailable, match="stopped or died"):
            client.service.die()
        assert not client.connected
        first.kill()
    with again(url) as second, client as mortal:
        assert mortal.pid() == second.pid
        assert client.connected


def test_an_idempotent_call_is_repeated(outside_url: str) -> None:
    with again(outside_url) as first:
        url = first.url
        client = nearcall.connect(url, Mortal)
        assert client.service.pid_again() == first.pid
        first.kill()
    with again(url) as second, client as mortal:
        assert mortal.pid_again() == second.pid


def test_a_signal_ends_the_wait_for_another_server(outside_url: str) -> None:
    with again(outside_url) as first, nearcall.connect(first.url, Mortal, wait_for_ready=True) as mortal:
        first.kill()
        interrupter = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            mortal.pid_again()
        interrupter.join(20)
        with again(first.url) as second:
            assert mortal.pid_again() == second.pid


@pytest.mark.slow
def test_without_a_server_a_call_fails_at_once_or_waits(outside_url: str) -> None:
    with again(outside_url) as first:
        url = first.url
        hasty = nearcall.connect(url, Mortal)
        patient = nearcall.connect(url, Mortal, wait_for_ready=True)
    with hasty as mortal, pytest.raises(nearcall.Unavailable):
        mortal.pid()
    found: list[int] = []
    caller = threading.Thread(target=lambda: found.append(patient.service.pid()))
    caller.start()
    with again(url) as second:
        caller.join(20)
        assert found == [second.pid]
        patient.close()


def test_a_waiting_call_ends_at_its_deadline(outside_url: str) -> None:
    with again(outside_url) as first:
        client = nearcall.connect(first.url, Mortal, wait_for_ready=True)
    with client as mortal, nearcall.timeout(0.2), pytest.raises((nearcall.Unavailable, nearcall.DeadlineExceeded)):
        mortal.pid()


@pytest.mark.slow
def test_a_stopping_server_finishes_what_has_begun(new_url: str, key: str) -> None:
    server = nearcall.Server(Mortal(), new_url).start()
    client = nearcall.connect(server.urls[0], Mortal)
    other = nearcall.connect(server.urls[0], Mortal)
    found: list[int] = []
    caller = threading.Thread(target=lambda: found.append(client.service.wait_for_go(key)))
    caller.start()
    assert going(f"{key} has begun").wait(20)
    finished: list[bool] = []
    stopper = threading.Thread(target=lambda: finished.append(server.stop(grace=20)))
    stopper.start()
    assert next(_outcomes(other.service.pid, until=nearcall.Unavailable))
    going(key).set()
    stopper.join(20)
    caller.join(20)
    assert (found, finished) == ([os.getpid()], [True])
    client.close()
    other.close()


def test_asyncio_clients_connect_again(outside_url: str) -> None:
    async def main(url: str, first: ServerProcess) -> None:
        client = await nearcall.aio.connect(url, Mortal, wait_for_ready=True)
        assert await client.pid() == first.pid
        first.kill()
        loop = asyncio.get_running_loop()
        second = await loop.run_in_executor(None, again, url)
        with second:
            assert await asyncio.wait_for(client.pid_again(), 20) == second.pid
            assert await asyncio.wait_for(asyncio.gather(*[client.pid() for _ in range(20)]), 20) == [second.pid] * 20
            client.close()

    with again(outside_url) as first:
        asyncio.run(main(first.url, first))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_a_connection_of_its_own(outside_url: str) -> None:
    with again(outside_url) as server, nearcall.connect(server.url, Mortal) as mortal:
        assert mortal.pid() == server.pid
        child = os.fork()
        if child == 0:
            status = 1
            try:
                status = 0 if [mortal.pid() for _ in range(3)] == [server.pid] * 3 else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert mortal.pid() == server.pid


def _call(client: Any, found: Any) -> None:
    found.put(client.service.pid())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_multiprocessing_with_fork(outside_url: str) -> None:
    context = multiprocessing.get_context("fork")
    with again(outside_url) as server:
        client = nearcall.connect(server.url, Mortal)
        assert client.service.pid() == server.pid
        found = context.Queue()
        children = [context.Process(target=_call, args=(client, found)) for _ in range(3)]
        for child in children:
            child.start()
        assert [found.get(timeout=20) for _ in children] == [server.pid] * 3
        for child in children:
            child.join(20)
            assert child.exitcode == 0
        assert client.service.pid() == server.pid
        client.close()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_does_not_stop_its_parents_server(new_url: str) -> None:
    with nearcall.Server(Mortal(), new_url) as server:
        child = os.fork()
        if child == 0:
            del server
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        with nearcall.connect(server.urls[0], Mortal) as mortal:
            assert mortal.pid() == os.getpid()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_leaves_its_parents_calls_alone(outside_url: str) -> None:
    with again(outside_url) as server:
        client = nearcall.connect(server.url, Mortal)
        mortal = client.service
        numbers = mortal.count()
        assert next(numbers) == 0
        started = nearcall.start(mortal.pid)
        child = os.fork()
        if child == 0:
            status = 1
            try:
                assert client._opened().in_flight == 0
                refused = 0
                for use in (lambda: next(numbers), started.result, lambda: started.result(20)):
                    try:
                        use()
                    except nearcall.FailedPrecondition as error:
                        refused += "forked" in str(error)
                assert refused == 3
                assert started.done()
                assert list(nearcall.as_completed([started])) == [started]
                assert mortal.pid() == server.pid
                numbers.close()
                started.cancel()
                del numbers, started  # as at the end of a child: nothing of the parent's is given up
                status = 0
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert client._opened().in_flight == 2
        assert [next(numbers) for _ in range(2000)] == list(range(1, 2001))
        assert started.result() == server.pid
        assert mortal.pid() == server.pid
        client.close()
