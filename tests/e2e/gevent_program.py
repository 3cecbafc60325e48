"""A program that gevent has patched, for ``test_gevent.py``: calls a server elsewhere, and prints what held.

Its arguments: the server's URL, one that nobody serves yet, and ``threads`` if gevent is to leave threads as they are.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

from gevent import monkey

THREADS = "threads" in sys.argv
monkey.patch_all(thread=not THREADS)

import gevent  # noqa: E402
import gevent.event  # noqa: E402

import nearcall  # noqa: E402
from tests.e2e.deadlines import longer_and_longer  # noqa: E402
from tests.e2e.gates import Gates, Listener, Telling  # noqa: E402

CHECKS: list[Callable[[Gates], None]] = []


def check(function: Callable[[Gates], None]) -> Callable[[Gates], None]:
    CHECKS.append(function)
    return function


def under_way() -> int:
    return client._opened().in_flight


@check
def others_run_during_a_call(gates: Gates) -> None:
    waits = [gevent.spawn(gates.wait, f"gate-{number}") for number in range(30)]
    gevent.sleep(0)
    for number in range(30):
        gates.open(f"gate-{number}")
    assert [each.get() for each in waits] == [f"gate-{number}" for number in range(30)]


@check
def deadlines_hold(gates: Gates) -> None:
    def late() -> str:
        try:
            with nearcall.timeout(0.1):
                return gates.wait("never")
        except nearcall.DeadlineExceeded:
            return "late"

    other = gevent.spawn(gates.wait, "deadline")
    waits = gevent.spawn(late)
    assert waits.get() == "late"
    gates.open("deadline")
    assert other.get() == "deadline"


@check
def a_timeout_of_gevents_gives_the_call_up(gates: Gates) -> None:
    for seconds in longer_and_longer():
        with contextlib.suppress(gevent.Timeout), gevent.Timeout(seconds):
            gates.wait("slow")
            raise AssertionError("it has returned")
        assert under_way() == 0
        if gates.has_entered("slow"):
            break
    gates.await_given_up("slow")


@check
def a_killed_greenlet_leaves_nothing(gates: Gates) -> None:
    waits = gevent.spawn(gates.wait, "killed")
    gates.await_entered("killed")
    waits.kill()
    assert under_way() == 0
    gates.await_given_up("killed")


@check
def streams_leave_others_running(gates: Gates) -> None:
    items = gevent.spawn(lambda: list(gates.stream(["one", "two"])))
    gates.open("one")
    gates.open("two")
    assert items.get() == ["one", "two"]

    asked = gevent.event.Event()

    def names() -> Iterator[str]:
        yield "first"
        asked.wait()
        yield "second"

    total = gevent.spawn(gates.count, names())
    gevent.sleep(0)
    asked.set()
    assert total.get() == 2

    replies = gates.echo(iter(["a", "b"]))
    assert list(replies) == ["a", "b"]


@check
def a_stream_that_is_not_read_waits_for_credit(gates: Gates) -> None:
    def large() -> Iterator[str]:
        for _ in range(20):
            yield "x" * 200_000

    sent = gevent.spawn(gates.count_behind, "credit", large())
    gevent.sleep(0)
    gates.open("credit")
    assert sent.get() == 20


@check
def started_calls_have_several_that_wait(gates: Gates) -> None:
    calls = [nearcall.start(gates.wait, name) for name in ("s1", "s2")]
    both = [gevent.spawn(calls[0].result), gevent.spawn(calls[0].result)]
    first = gevent.spawn(lambda: next(nearcall.as_completed(calls)).result())
    told: list[object] = []
    calls[1].add_done_callback(told.append)
    gevent.sleep(0)
    gates.open("s1")
    assert [first.get(), *(each.get() for each in both)] == ["s1"] * 3
    gates.open("s2")
    while not told:
        gevent.sleep(0.001)
    assert told == [calls[1]]
    assert calls[1].result() == "s2"


@check
def one_way_calls_wait_for_room(gates: Gates) -> None:
    with nearcall.connect(sys.argv[1], Gates) as other:
        sends = gevent.spawn(lambda: [other.note("room", "x" * 200_000) for _ in range(30)])
        gevent.sleep(0)
        gates.open("room")
        sends.get()
        while other.noted("room") < 30:
            gevent.sleep(0.001)


@check
def a_server_that_comes_later_is_waited_for(gates: Gates) -> None:
    later = gevent.spawn(nearcall.connect, sys.argv[2], Gates, wait_for_ready=True)
    gevent.sleep(0.01)
    gates.serve_at(sys.argv[2])
    with later.get() as there:
        assert there.noted("nothing") == 0
    assert client.ping() > 0


@check
def other_threads_call_as_well(gates: Gates) -> None:
    pool = gevent.get_hub().threadpool
    waits = pool.spawn(gates.wait, "thread")
    gates.open("thread")
    assert waits.get() == "thread"


def refused(what: Callable[[], object], text: str) -> None:
    said = ""
    try:
        what()
    except RuntimeError as error:
        said = str(error)
    assert text in said, said


if THREADS:

    @check
    def servers_and_objects_run_in_threads(gates: Gates) -> None:
        class Ear(Listener):
            def said(self, text: str) -> str:
                gevent.sleep(0.001)  # a thread of its own, with a hub of its own
                assert gates.noted("nothing") == 0
                return text * 2

        with nearcall.connect(sys.argv[1], Telling) as telling:
            assert telling.tell(Ear(), "ab") == "abab"
        with nearcall.Server(Gates(), "inproc://here"), nearcall.connect("inproc://here", Gates) as here:
            waits = gevent.spawn(here.wait, "inside")
            here.open("inside")
            assert waits.get() == "inside"

else:

    @check
    def servers_are_refused(gates: Gates) -> None:
        refused(lambda: nearcall.Server(Gates(), "inproc://here").start(), "a server runs in threads")
        refused(lambda: nearcall.connect(sys.argv[1], Telling), "patch_all(thread=False)")


client = nearcall.connect(sys.argv[1], Gates, timeout=30)
for each in CHECKS:
    each(client.service)
    print(each.__name__, flush=True)
client.close()
