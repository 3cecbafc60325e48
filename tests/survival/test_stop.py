"""A stopped process is not a dead one: its peer's deadlines hold, and all is well when it goes on."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import pytest

import nearcall

from ..e2e.process import ServerProcess, start_program
from .conftest import SERVICES
from .observing import Holdings, comes_back_to, eventually, stopped
from .services import LARGE, SMALL, Target

pytestmark = pytest.mark.crash


@pytest.mark.slow
def test_calls_to_a_stopped_server_end_at_their_deadline(server: ServerProcess) -> None:
    large = bytes(LARGE)
    client = nearcall.connect(server.url, Target)
    with client as target:
        assert target.length(memoryview(large)) == LARGE
        before = Holdings.of(server.pid)
        with stopped(server.pid):
            for _ in range(3):
                with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded):
                    target.echo(SMALL)
                with nearcall.timeout(0.2), pytest.raises(nearcall.DeadlineExceeded):
                    target.length(memoryview(bytes(100_000)))
            with pytest.raises(nearcall.DeadlineExceeded):
                nearcall.connect(server.url, Target, handshake_timeout=0.3)
        # What came too late is not taken for the answer to what comes next.
        for number in range(50):
            assert target.echo(bytes([number])) == bytes([number])
        assert target.length(memoryview(large)) == LARGE
        with nearcall.connect(server.url, Target) as other:
            assert other.pid() == server.pid
        # The memory of messages that were given up is kept for the next ones.
        comes_back_to(server.pid, replace(before, regions=before.regions + 6))


@pytest.mark.slow
def test_calls_without_deadline_wait_for_a_stopped_server(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Target) as target:
        assert target.echo(SMALL) == SMALL
        got: list[bytes] = []
        with stopped(server.pid):
            caller = threading.Thread(target=lambda: got.append(target.echo(SMALL)))
            caller.start()
            caller.join(0.2)
            assert caller.is_alive()
        caller.join(20)
        assert got == [SMALL]


STREAMING = """
import sys, nearcall
from tests.survival.services import Target
target = nearcall.connect(sys.argv[1], Target)
numbers = target.endless("stopped")
for expected in range(1000):
    assert next(numbers) == expected
print("streaming", flush=True)
for expected in range(1000, 100_000):
    assert next(numbers) == expected
numbers.close()
assert target.echo(b"done") == b"done"
print("done", flush=True)
"""


@pytest.mark.slow
def test_a_stopped_client_holds_nobody_up(server: ServerProcess) -> None:
    """It stops in the middle of a stream that it does not read any more; the others are served meanwhile."""
    with nearcall.connect(server.url, Target) as warm:
        assert warm.length(memoryview(bytes(LARGE))) == LARGE
    before = Holdings.of(server.pid)
    with start_program(STREAMING, server.url) as client:
        assert client.stdout is not None
        assert client.stdout.readline() == "streaming\n"
        with stopped(client.pid):
            with nearcall.connect(server.url, Target) as target:
                for _ in range(100):
                    assert target.echo(SMALL) == SMALL
                assert target.length(memoryview(bytes(LARGE))) == LARGE
            assert client.poll() is None
        assert client.stdout.readline() == "done\n"
        assert client.wait(20) == 0
    comes_back_to(server.pid, before)


FLOODING = """
import asyncio, sys, nearcall
from tests.survival.services import Target

async def main():
    target = await nearcall.aio.connect(sys.argv[1], Target)
    calls = [asyncio.create_task(target.make_later(16_384, sys.argv[2])) for _ in range(1500)]
    await asyncio.sleep(0)
    print("called", flush=True)
    sys.stdin.readline()
    assert {len(reply) for reply in await asyncio.gather(*calls)} == {16_384}
    assert await target.echo(b"done") == b"done"
    print("done", flush=True)

asyncio.run(main())
"""


@pytest.mark.slow
def test_a_client_that_calls_and_does_not_read_holds_nobody_up(new_url: str, tmp_path: Path) -> None:
    """Its replies are far more than there is room for, and there are far fewer workers than calls."""
    gate = tmp_path / "gate"
    with ServerProcess(new_url, services=SERVICES, max_concurrency=4) as server:
        before = Holdings.of(server.pid)
        with start_program(FLOODING, server.url, str(gate)) as client:
            assert client.stdin is not None
            assert client.stdout is not None
            assert client.stdout.readline() == "called\n"
            with nearcall.connect(server.url, Target) as target, nearcall.timeout(30):
                gate.touch()
                for _ in range(100):
                    assert target.echo(SMALL) == SMALL
                assert target.length(memoryview(bytes(LARGE))) == LARGE
            print(file=client.stdin, flush=True)
            assert client.stdout.readline() == "done\n"
            assert client.wait(20) == 0
        comes_back_to(server.pid, replace(before, regions=before.regions + 2))


@pytest.mark.slow
def test_a_client_killed_while_it_is_stopped(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Target) as target:
        assert target.echo(SMALL) == SMALL
        before = Holdings.of(server.pid)
        with start_program(STREAMING, server.url) as client:
            assert client.stdout is not None
            assert client.stdout.readline() == "streaming\n"
            with stopped(client.pid):
                client.kill()
                client.wait(20)
                eventually(lambda: target.closed_at("stopped") is not None, "its stream goes on")
        comes_back_to(server.pid, before)


@pytest.mark.slow
def test_a_server_killed_while_it_is_stopped(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Target) as target:
        assert target.echo(SMALL) == SMALL
        outcome: list[BaseException] = []

        def call() -> None:
            try:
                target.nap(30)
            except nearcall.RpcError as error:
                outcome.append(error)

        caller = threading.Thread(target=call)
        with stopped(server.pid):
            caller.start()
            server.kill()
        caller.join(20)
        assert [type(one) for one in outcome] == [nearcall.Unavailable]
    with ServerProcess(server.url, services=SERVICES) as successor, nearcall.connect(server.url, Target) as target:
        assert target.pid() == successor.pid
