"""Calls that fail are sent once more if that is safe, as often as the policy and its budget allow."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import nearcall
import nearcall.aio
from nearcall import Retry, StatusCode

from .fleet import Fleet
from .process import ServerProcess, start_program

KEYS = map(str, itertools.count())
QUICK = Retry(attempts=4, initial_backoff=0.001, max_backoff=0.01)
NEVER = Retry(initial_backoff=1000.0, max_backoff=1000.0)
"""One whose pause no test outlasts."""


@pytest.fixture(scope="module", params=["shm", "tcp", "grpc"])
def url(request: pytest.FixtureRequest) -> Iterator[str]:
    place = {"shm": f"shm://retries-{next(KEYS)}", "tcp": "tcp://127.0.0.1:0", "grpc": "grpc://127.0.0.1:0"}
    with ServerProcess(place[request.param], services="tests.e2e.fleet:fleet") as server:
        yield server.url


def by_thread(url: str, method: str, *args: Any, **options: Any) -> Any:
    with nearcall.connect(url, Fleet, **options) as client:
        return getattr(client, method)(*args)


def by_started_call(url: str, method: str, *args: Any, **options: Any) -> Any:
    with nearcall.connect(url, Fleet, **options) as client:
        return nearcall.start(getattr(client, method), *args).result()


def by_loop(url: str, method: str, *args: Any, **options: Any) -> Any:
    async def main() -> Any:
        async with nearcall.aio.connect(url, Fleet, **options) as client:
            return await getattr(client, method)(*args)

    return asyncio.run(main())


Caller = Callable[..., Any]
callers = pytest.mark.parametrize("call", [by_thread, by_started_call, by_loop])


@callers
def test_a_call_that_fails_is_sent_again_and_says_so(url: str, call: Caller) -> None:
    assert call(url, "flaky", next(KEYS), 3, "", retry=QUICK) == "3"


@callers
def test_attempts_end(url: str, call: Caller) -> None:
    key = next(KEYS)
    with pytest.raises(nearcall.Unavailable, match="not yet"):
        call(url, "flaky", key, 1000, "", retry=QUICK)
    assert by_thread(url, "seen", key) == 4


@callers
def test_without_a_policy_a_status_is_the_answer(url: str, call: Caller) -> None:
    key = next(KEYS)
    with pytest.raises(nearcall.Unavailable, match="not yet"):
        call(url, "flaky", key, 1, "")
    assert by_thread(url, "seen", key) == 1


@callers
def test_what_is_not_idempotent_is_sent_once(url: str, call: Caller) -> None:
    key = next(KEYS)
    with pytest.raises(nearcall.Unavailable, match="not yet"):
        call(url, "fragile", key, 1, retry=QUICK)
    assert by_thread(url, "seen", key) == 1


@callers
def test_other_statuses_are_the_answer(url: str, call: Caller) -> None:
    key = next(KEYS)
    with pytest.raises(nearcall.Unavailable, match="not yet"):
        call(url, "flaky", key, 1, "", retry=Retry(codes=[StatusCode.ABORTED], initial_backoff=0.001))
    assert by_thread(url, "seen", key) == 1


@callers
def test_a_server_may_choose_the_pause_or_forbid_it(url: str, call: Caller) -> None:
    # Without its word the pause would be longer than the test.
    assert call(url, "flaky", next(KEYS), 1, "5", retry=NEVER) == "1"
    key = next(KEYS)
    with pytest.raises(nearcall.Unavailable, match="not yet"):
        call(url, "flaky", key, 1, "-1", retry=QUICK)
    assert by_thread(url, "seen", key) == 1


@callers
def test_the_deadline_bounds_all_attempts(url: str, call: Caller) -> None:
    """There is no use in waiting for an attempt that would come too late."""
    begun = time.monotonic()
    with pytest.raises(nearcall.Unavailable, match="not yet"), nearcall.timeout(30.0):
        call(url, "flaky", next(KEYS), 1, "", retry=NEVER)
    assert time.monotonic() - begun < 30.0


def test_the_budget_is_the_channels(url: str) -> None:
    retry = Retry(attempts=100, initial_backoff=0.0, max_tokens=20, token_ratio=1.0)
    key, other = next(KEYS), next(KEYS)
    with nearcall.Channel(url, retry=retry) as channel:
        one, two = channel.client(Fleet).service, channel.client(Fleet).service
        for service in (one, two):
            with pytest.raises(nearcall.Unavailable):
                service.flaky(key, 1000, "")
        # 20 tokens: nine failures leave more than half of them, and the next two calls fail at once.
        assert one.seen(key) == 10 + 1
        # What succeeds fills it up again.
        for _ in range(12):
            two.pid()
        assert one.flaky(other, 3, "") == "3"


def test_tasks_share_the_budget(url: str) -> None:
    async def main() -> int:
        key = next(KEYS)
        async with nearcall.aio.connect(url, Fleet, retry=Retry(attempts=100, initial_backoff=0.001)) as client:
            results = await asyncio.gather(*(client.flaky(key, 10_000, "") for _ in range(50)), return_exceptions=True)
            assert all(isinstance(result, nearcall.Unavailable) for result in results)
            seen: int = await client.seen(key)
            return seen

    # 10 tokens, of which four may go.
    assert asyncio.run(main()) == 50 + 4


@callers
def test_a_server_of_grpcios_that_fails_at_first(call: Caller) -> None:
    with start_program("from tests.e2e.fleet import grpcio; grpcio()", "7", "2") as process:
        assert process.stdout is not None
        url = f"grpc://127.0.0.1:{int(process.stdout.readline())}"
        assert call(url, "number", retry=QUICK) == 7
        process.communicate("", timeout=20)


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"attempts": 1}, "attempts"),
        ({"attempts": 101}, "attempts"),
        ({"initial_backoff": -1}, "initial_backoff"),
        ({"multiplier": 0.5}, "multiplier"),
        ({"codes": []}, "codes"),
        ({"codes": [StatusCode.OK]}, "codes"),
        ({"codes": "UNAVAILABLE"}, "codes"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"token_ratio": 0}, "token_ratio"),
    ],
)
def test_a_policy_that_cannot_be_is_refused(wrong: dict[str, Any], option: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=option) as caught:
        Retry(**wrong)
    assert caught.value.option == option  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"nearcall\.Retry"):
        nearcall.connect("tcp://127.0.0.1:1", Fleet, retry=3)  # type: ignore[arg-type]
