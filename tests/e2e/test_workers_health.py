"""What several workers tell health checks: the same, whichever of them is asked or told."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack

import pytest

import nearcall
from nearcall.health import Health, HealthCheckRequest, ServingStatus

from .test_workers import until
from .workers_program import WorkersProcess, is_alive


@nearcall.service
class Doctor:
    """Says how it is, for all workers."""

    def __init__(self) -> None:
        self.server: nearcall.Server | None = None
        self.lifespan: asyncio.Task[object] | None = None

    def pid(self) -> int:
        return os.getpid()

    def say(self, name: str, serving: bool) -> None:
        assert doctor.server is not None
        doctor.server.health.set(name, serving)

    async def break_lifespan(self) -> None:
        assert doctor.lifespan is not None
        doctor.lifespan.cancel()


doctor = Doctor()


def lifespan(server: nearcall.Server) -> Iterator[None]:
    doctor.server = server
    yield
    os.write(1, f"left {os.getpid()}\n".encode())  # at once: others write there, too


async def fragile(server: nearcall.Server) -> AsyncIterator[None]:
    doctor.server, task = server, asyncio.current_task()
    assert task is not None
    doctor.lifespan = task
    yield


def cannot_begin(server: nearcall.Server) -> Iterator[None]:
    raise LookupError("there is no database")
    yield


@pytest.fixture(scope="module")
def served() -> Iterator[WorkersProcess]:
    urls = ["grpc://127.0.0.1:0", f"shm://doctors{os.getpid()}"]
    options = {"workers": 3, "lifespan": "lifespan"}
    with WorkersProcess(*urls, maker="tests.e2e.test_workers_health:Doctor", **options) as served:
        yield served
        status, out = served.end()
        assert status == 0
        ended, *left = sorted(out.splitlines())
        assert ended == "ended in good order"
        assert {f"left {pid}" for pid in served.pids} <= set(left)  # and those that were replaced


class Probes:
    """A client at each worker: they are handed out in turn."""

    def __init__(self, served: WorkersProcess, stack: ExitStack) -> None:
        self._health = [stack.enter_context(nearcall.connect(served.urls[0], Health)) for _ in served.pids]

    def all(self, name: str) -> list[ServingStatus | None]:
        return [self._of(health, name) for health in self._health]

    def _of(self, health: Health, name: str) -> ServingStatus | None:
        try:
            return health.check(HealthCheckRequest(name)).status
        except nearcall.NotFound:
            return None


def test_every_worker_says_the_same(served: WorkersProcess) -> None:
    with ExitStack() as stack:
        doctors = [stack.enter_context(nearcall.connect(served.urls[1], Doctor)) for _ in served.pids]
        assert {one.pid() for one in doctors} == set(served.pids)
        probes = Probes(served, stack)
        assert probes.all("") == [ServingStatus.SERVING] * 3
        assert probes.all("ready") == [None] * 3
        for one, serving in zip(doctors, (True, False, True), strict=True):
            one.say("ready", serving)
            expected = ServingStatus.SERVING if serving else ServingStatus.NOT_SERVING
            until(lambda expected=expected: probes.all("ready") == [expected] * 3, "what another worker was told")  # type: ignore[misc]
        for at in range(1000):
            doctors[0].say("often", at % 2 == 0)
            doctors[at % 3].say("disputed", at % 2 == 0)
        for number, one in enumerate(doctors):
            one.say(f"last of {number}", True)
        until(
            lambda: all(probes.all(f"last of {number}") == [ServingStatus.SERVING] * 3 for number in range(3)),
            "the last word of each",
        )
        assert probes.all("often") == [ServingStatus.NOT_SERVING] * 3
        assert len(set(probes.all("disputed"))) == 1


def test_the_parent_is_told_and_a_new_worker_learns_of_it(served: WorkersProcess) -> None:
    os.kill(served.process.pid, signal.SIGUSR1)
    with ExitStack() as stack:
        probes = Probes(served, stack)
        until(lambda: probes.all("parent") == [ServingStatus.NOT_SERVING] * 3, "what the parent was told")
        victim = served.pids[0]
        os.kill(victim, signal.SIGTERM)
        until(lambda: not is_alive(victim), "its end")
        # With one client for each worker the new one gets the fourth, as the others have one already.
        fourth = stack.enter_context(nearcall.connect(served.urls[0], Health, wait_for_ready=True))
        assert fourth.check(HealthCheckRequest("parent")).status == ServingStatus.NOT_SERVING
        served.pids.remove(victim)


def test_a_lifespan_that_cannot_begin(key: str) -> None:
    options = {"workers": 2, "lifespan": "cannot_begin"}
    served = WorkersProcess(f"shm://ill{key}", maker="tests.e2e.test_workers_health:Doctor", **options)
    with served:
        assert "could not begin to serve: LookupError: there is no database" in served.first_line
        assert served.wait()[0] == 1


def test_a_worker_whose_lifespan_ends_is_replaced(key: str) -> None:
    options = {"workers": 1, "lifespan": "fragile"}
    url = f"shm://fragile{key}"
    with (
        WorkersProcess(url, maker="tests.e2e.test_workers_health:Doctor", **options) as served,
        nearcall.connect(url, Doctor, wait_for_ready=True) as doctor,
    ):
        first = doctor.pid()
        assert [first] == served.pids
        doctor.break_lifespan()  # type: ignore[unused-coroutine]
        until(lambda: not is_alive(first), "its end")
        assert doctor.pid() != first
        assert "the server's lifespan has ended while it served: it stops" in served.errors()


@pytest.mark.parametrize("name", [7, "x" * 1001])
def test_names(name: object, key: str) -> None:
    with nearcall.Server(Doctor(), f"inproc://{key}") as server, pytest.raises(nearcall.InvalidArgument):
        server.health.set(name, True)  # type: ignore[arg-type]
