"""Several processes behind one URL: who gets which client, and what a death does."""

from __future__ import annotations

import collections
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .conftest import SHARED
from .workers_program import Crew, WorkersProcess, is_alive

PATIENCE = 25.0


def until(check: Callable[[], bool], what: str) -> None:
    """Waits for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not check():
        assert time.monotonic() < deadline, f"in vain for {what}"
        time.sleep(0.01)


@pytest.fixture
def clients() -> Iterator[Callable[[str, int], list[Crew]]]:
    """Makes clients that are closed at the end."""
    with ExitStack() as stack:
        yield lambda url, count: [stack.enter_context(nearcall.connect(url, Crew)) for _ in range(count)]


@pytest.mark.slow
def test_clients_spread_evenly(outside_url: str, clients: Any) -> None:
    with WorkersProcess(outside_url, workers=4) as served:
        assert len(set(served.pids)) == 4
        crew = clients(served.url, 20)
        # They are busy meanwhile: a worker that spins must not take them all.
        counts = collections.Counter(one.pid() for one in crew)
        assert counts == dict.fromkeys(served.pids, 5)
        assert sorted({one.number() for one in crew}) == [0, 1, 2, 3]


def test_clients_that_come_early_spread_evenly(tmp_path: Path) -> None:
    url, go = f"unix://{tmp_path}/early.sock", tmp_path / "go"
    numbers: list[int] = []

    def connect() -> None:
        with ExitStack() as stack:
            crew = [stack.enter_context(nearcall.connect(url, Crew, wait_for_ready=True)) for _ in range(6)]
            numbers.extend(one.number() for one in crew)

    early = threading.Thread(target=connect)
    early.start()

    def let_them_begin() -> None:
        # Long enough for worker 0 to take them all, if it may.
        early.join(1.0)
        go.touch()

    threading.Thread(target=let_them_begin).start()
    with WorkersProcess(url, workers=2, maker="tests.e2e.workers_program:late"):
        early.join(PATIENCE)
    assert sorted(numbers) == [0, 0, 0, 1, 1, 1]


@pytest.mark.slow
def test_handlers_see_the_client_and_not_the_parent(outside: str, outside_url: str, clients: Any) -> None:
    with WorkersProcess(outside_url, workers=2) as served:
        expected = (
            str(os.getpid()) if outside in ("shm", "unix") else "nats://127.0.0.1" if outside == "nats" else "127.0.0.1"
        )
        assert {one.who() for one in clients(served.url, 4)} == {expected}


@pytest.mark.slow
def test_those_that_left_make_room(outside_url: str, clients: Any) -> None:
    with WorkersProcess(outside_url, workers=3) as served:
        staying = clients(served.url, 3)
        assert len({one.pid() for one in staying}) == 3
        lonely = staying[1].pid()
        # The next ones go to each in turn, and all but one worker's leave again.
        leaving = [nearcall.connect(served.url, Crew) for _ in range(9)]
        for client in leaving:
            if client.service.pid() == lonely:
                client.close()

        def next_is_lonely() -> bool:
            with nearcall.connect(served.url, Crew) as crew:
                return crew.pid() == lonely

        until(next_is_lonely, "the worker with the fewest clients to be next")
        assert [one.pid() for one in clients(served.url, 2)] == [lonely] * 2
        for client in leaving:
            client.close()


def test_workers_close_what_they_have(tmp_path: Path) -> None:
    """Seen by the warnings that Python leaves out if it is not told otherwise at its start."""
    program = """
import os, signal, sys
import nearcall

@nearcall.service
class Farm:
    def worker(self) -> int:
        return os.getpid()

def end(workers):
    print(len(workers.pids))
    os.kill(os.getpid(), signal.SIGTERM)

nearcall.serve(Farm, sys.argv[1], workers=2, on_ready=end)
"""
    command = [sys.executable, "-X", "dev", "-W", "always", "-c", program, f"unix://{tmp_path}/farm.sock"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("2\n", "", 0)


@pytest.mark.slow
@pytest.mark.crash
def test_a_killed_worker_harms_its_own_clients_only(outside_url: str) -> None:
    with WorkersProcess(outside_url, workers=3) as served:
        calling = [nearcall.connect(served.url, Crew, wait_for_ready=True) for _ in range(6)]
        mine = [client.service.pid() for client in calling]
        victim = mine[0]
        lost: list[list[int]] = [[] for _ in calling]
        answered: list[int] = [0] * len(calling)
        over = threading.Event()

        def call(index: int) -> None:
            while not over.is_set():
                try:
                    calling[index].service.number()
                    answered[index] += 1
                except nearcall.Unavailable:
                    lost[index].append(answered[index])

        threads = [threading.Thread(target=call, args=(index,)) for index in range(len(calling))]
        for thread in threads:
            thread.start()
        until(lambda: min(answered) > 10, "calls before the death")
        os.kill(victim, signal.SIGKILL)
        until(lambda: not is_alive(victim), "its end")
        before = list(answered)
        until(lambda: all(now > then + 10 for now, then in zip(answered, before, strict=True)), "calls after it")
        over.set()
        for thread in threads:
            thread.join(PATIENCE)
        # A client that was between two calls loses none.
        assert all(len(each) <= (pid == victim) for each, pid in zip(lost, mine, strict=True)), lost
        assert victim not in {client.service.pid() for client in calling}

        def replaced() -> bool:
            with nearcall.connect(served.url, Crew) as crew:
                return crew.pid() not in served.pids

        until(replaced, "a new worker")
        assert "ended by SIGKILL; another one is started" in served.errors()
        for client in calling:
            client.close()


@pytest.mark.slow
@pytest.mark.crash
def test_workers_end_with_a_killed_parent(outside_url: str, outside: str, tmp_path: Path, clients: Any) -> None:
    if outside == "nats":
        pytest.skip("there the clients are the parent's, and end with it")
    path = str(tmp_path / "notes")
    with WorkersProcess(outside_url, workers=3, grace=PATIENCE) as served:
        url = served.url
        outcomes: list[object] = []
        client = nearcall.connect(url, Crew)
        caller = threading.Thread(target=lambda: outcomes.append(client.service.note(path, "begun", 0.5)))
        caller.start()
        until(lambda: Path(path).exists(), "the call")
        served.process.kill()
        served.process.wait(PATIENCE)
        caller.join(PATIENCE)
        assert outcomes == ["begun"], "what was under way is finished"
        until(lambda: not any(is_alive(pid) for pid in served.pids), "the workers' end")
        client.close()
        with WorkersProcess(url, workers=1) as successor:
            assert [one.pid() for one in clients(url, 1)] == successor.pids


@pytest.mark.crash
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM], ids=lambda how: how.name)
def test_a_worker_that_hangs_ends_with_its_parent(key: str, tmp_path: Path, how: signal.Signals) -> None:
    path = tmp_path / "notes"
    with WorkersProcess(f"shm://{key}", workers=2, grace=0.1) as served:
        client = nearcall.connect(served.url, Crew)

        def call() -> None:
            with pytest.raises(nearcall.Unavailable):
                client.service.hog(str(path))

        caller = threading.Thread(target=call)
        caller.start()
        until(path.exists, "the call")
        served.process.send_signal(how)
        served.process.wait(PATIENCE)
        until(lambda: not any(is_alive(pid) for pid in served.pids), "the workers' end")
        caller.join(PATIENCE)
        client.close()
    # What a killed parent left behind goes with the next one.
    with nearcall.Server(Crew(), f"shm://{key}"):
        pass


def test_a_second_parent_is_refused(outside_url: str, outside: str, clients: Any) -> None:
    if outside in SHARED:
        pytest.skip("several servers may be there")
    with WorkersProcess(outside_url, workers=2) as first:
        with WorkersProcess(first.url, workers=2) as second:
            assert second.first_line.startswith("AlreadyExists: "), second.errors()
            assert first.url in second.first_line
            assert second.wait() == (1, "")
        assert {one.pid() for one in clients(first.url, 2)} == set(first.pids)


@pytest.mark.slow
@pytest.mark.parametrize("whole_group", [False, True], ids=["parent", "group"])
@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT], ids=lambda how: how.name)
def test_stopping_under_load_loses_no_call(
    outside_url: str, tmp_path: Path, how: signal.Signals, whole_group: bool
) -> None:
    """What a handler began reaches its caller, whichever processes are told to end: a terminal tells all."""
    path = tmp_path / "notes"
    with WorkersProcess(outside_url, workers=2, grace=PATIENCE) as served:
        calling = [nearcall.connect(served.url, Crew) for _ in range(6)]
        answered: list[str] = []

        def call(index: int) -> None:
            number = 0
            while True:
                number += 1
                try:
                    answered.append(calling[index].service.note(str(path), f"{index}/{number}", 0.05))
                except nearcall.Unavailable:
                    return

        threads = [threading.Thread(target=call, args=(index,)) for index in range(len(calling))]
        for thread in threads:
            thread.start()
        until(lambda: len(answered) > 20, "calls")
        status, said = served.end(how, whole_group=whole_group)
        for thread in threads:
            thread.join(PATIENCE)
        for client in calling:
            client.close()
        assert (status, said) == (0, "ended in good order\n"), served.errors()
        assert sorted(path.read_text().split()) == sorted(answered)
        assert not any(is_alive(pid) for pid in served.pids)


@pytest.mark.slow
def test_a_worker_that_does_not_end_is_killed(outside_url: str, tmp_path: Path) -> None:
    with WorkersProcess(outside_url, workers=2, grace=0) as served:
        client = nearcall.connect(served.url, Crew)

        def call() -> None:
            with pytest.raises(nearcall.Unavailable):
                client.service.note(str(tmp_path / "n"), "x", 3600)

        caller = threading.Thread(target=call)
        caller.start()
        until((tmp_path / "n").exists, "the call")
        assert served.end() == (0, "ended in good order\n")
        caller.join(PATIENCE)
        assert not any(is_alive(pid) for pid in served.pids)
        client.close()


@pytest.mark.slow
def test_a_worker_told_to_end_is_replaced(outside_url: str, clients: Any) -> None:
    with WorkersProcess(outside_url, workers=1) as served:
        os.kill(served.pids[0], signal.SIGTERM)
        until(lambda: not is_alive(served.pids[0]), "its end")
        crew = nearcall.connect(served.url, Crew, wait_for_ready=True, handshake_timeout=PATIENCE)
        assert crew.service.pid() != served.pids[0]
        crew.close()


@pytest.mark.slow
def test_while_the_only_worker_finishes_clients_wait_for_the_next(outside_url: str, tmp_path: Path) -> None:
    path = tmp_path / "notes"
    with WorkersProcess(outside_url, workers=1, grace=PATIENCE) as served:
        calling, other = (nearcall.connect(served.url, Crew) for _ in range(2))
        outcomes: list[object] = []
        caller = threading.Thread(target=lambda: outcomes.append(calling.service.note(str(path), "done", 0.7)))
        caller.start()
        until(path.exists, "the call")
        os.kill(served.pids[0], signal.SIGTERM)
        until(lambda: other.service.pid() != served.pids[0], "the next worker")  # and no call fails
        caller.join(PATIENCE)
        assert outcomes == ["done"]
        calling.close()
        other.close()


def test_a_worker_that_cannot_begin_says_why(outside_url: str) -> None:
    with WorkersProcess(outside_url, maker="tests.e2e.workers_program:broken", workers=3) as served:
        assert served.wait() == (1, "")
        assert "could not begin to serve: LookupError: the model is not there" in served.first_line
        assert "in broken" in served.errors(), "the traceback shows where"
        assert "Process nearcall-worker" not in served.errors()


def test_workers_that_die_at_once_are_given_up(key: str) -> None:
    with WorkersProcess(f"shm://{key}", maker="tests.e2e.workers_program:short_lived", workers=2) as served:
        status, out = served.wait()
        assert status == 1
        said = served.first_line + out
        assert "workers die at once again and again, 5 times in a row" in said or "before it began" in said
        assert "with status 7" in said


def test_options_are_checked_in_the_workers(key: str) -> None:
    with WorkersProcess(f"shm://{key}", workers=2, max_pending="many") as served:
        assert served.wait() == (1, "")
        assert "could not begin to serve: max_pending must be" in served.first_line


class Plain: ...


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((Crew(), "shm://x"), TypeError, "give the class Crew, or a function that returns one"),
        ((Plain, "shm://x"), TypeError, "Plain is not a service"),
        ((Crew, "inproc://x"), ValueError, "reaches one process only"),
        ((Crew,), ValueError, "nowhere to serve"),
        (("shm://x",), TypeError, "nothing to serve"),
        ((Crew, 3, "shm://x"), TypeError, "3 cannot be served"),
    ],
)
def test_mistakes(arguments: tuple[object, ...], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        nearcall.serve(*arguments, workers=2)


def test_a_number_of_workers_is_needed() -> None:
    with pytest.raises(nearcall.InvalidArgument, match="workers must be"):
        nearcall.serve(Crew, "shm://x", workers=0)


def test_a_misspelt_option_is_noticed_at_once() -> None:
    with pytest.raises(TypeError, match="max_pendin"):
        nearcall.serve(Crew, "shm://x", workers=1, max_pendin=3)


def test_it_is_for_the_main_thread() -> None:
    outcomes: list[str] = []

    def serve() -> None:
        try:
            nearcall.serve(Crew, "shm://x", workers=1)
        except RuntimeError as error:
            outcomes.append(str(error))

    thread = threading.Thread(target=serve)
    thread.start()
    thread.join(PATIENCE)
    assert len(outcomes) == 1
    assert "must be called in the main thread" in outcomes[0]
