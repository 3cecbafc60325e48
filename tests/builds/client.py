"""A client of one build, for ``make test-builds``: makes calls at a server of any build.

Usage: python client.py URL CHECK...
Prints a line of JSON for each check: its name, and "right", "refused: ..." or "WRONG: ...".
"""

from __future__ import annotations

import asyncio
import contextlib
import faulthandler
import gc
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import exchanged as ex
import numpy as np

import nearcall

LONGEST = 60.0
"""Seconds that a check may take; then it hangs."""
CHECKS: dict[str, Callable[[str], object]] = {}


def check(function: Callable[[str], object]) -> Callable[[str], object]:
    CHECKS[function.__name__] = function
    return function


@contextlib.contextmanager
def client(url: str, cls: type, **options: Any) -> Iterator[Any]:
    with nearcall.connect(url, cls, **options) as found:
        yield found


def equal(found: Any, expected: Any) -> None:
    assert same(found, expected), f"{found!r} is not {expected!r}"


def same(found: Any, expected: Any) -> bool:
    """Equal, and of the same types all the way down."""
    if isinstance(expected, np.ndarray):
        return isinstance(found, np.ndarray) and found.dtype == expected.dtype and np.array_equal(found, expected)
    if type(found) is not type(expected):
        return False
    if isinstance(expected, (list, tuple)):
        return len(found) == len(expected) and all(map(same, found, expected))
    if isinstance(expected, dict):
        return found.keys() == expected.keys() and all(same(found[key], expected[key]) for key in expected)
    if hasattr(expected, "utcoffset"):
        return bool(found == expected and found.utcoffset() == expected.utcoffset() and found.fold == expected.fold)
    return bool(found == expected)


def raised(kind: Any, call: Callable[[], object]) -> Any:
    """The exception of this class that the call raises."""
    try:
        found = call()
    except kind as error:
        return error
    raise AssertionError(f"{found!r} came, and no {kind.__name__}")


@check
def plain(url: str) -> None:
    with client(url, ex.Basics) as basics:
        equal(basics.add(1, 2), 3)
        equal(basics.add(1), 6)
        equal(basics.add(b=2, a=1), 3)
        equal(basics.forms(1, 2, d=4), [1, 2, 3, 4, 5])
        equal(basics.forms(1, b=2, c=9, d=4, e=0), [1, 2, 9, 4, 0])
        equal(basics.both(b"abc", 5, memoryview(b"de")), [3, 5, 2])
        for _ in range(3000):
            equal(basics.add(2**40, -1), 2**40 - 1)


@check
def moved(url: str) -> None:
    with client(url, ex.CalledMoved) as service:
        equal(service.transfer("A", "B"), "A B 5 none")
        equal(service.transfer("A", "B", 1), "A B 1 none")
        equal(service.transfer(target="B", source="A"), "A B 5 none")
        equal(service.draw(ex.Point(1), b"x", 3), "3 b'x' Point(x=1, label='', data=b'')")
        said = raised(nearcall.FailedPrecondition, lambda: service.draw(ex.Point(1), b"x", 3, "blue"))
        assert "'colour: str' was given" in str(said), said


@check
def values(url: str) -> None:
    with client(url, ex.Basics) as basics:
        for value in ex.everything():
            if value.at.tzinfo is None and url.startswith(("grpc", "http")):
                continue  # Protobuf has no type for it
            equal(basics.same(value), value)
        places = [ex.Place(1, 2.5), ex.Place(-1, 0.0)]
        equal(basics.places(places, {"name": "n", "size": 1}), (places, {"name": "n", "size": 1}))
        for length in (0, 1, 500, 70_000):
            equal(basics.text("ü" * length), "ü" * length)


@check
def anything(url: str) -> None:
    with client(url, ex.Loose) as loose:
        for value in ex.anything():
            equal(loose.same(value), value)


@check
def arrays(url: str) -> None:
    with client(url, ex.Arrays) as service:
        for shape in [(0,), (3,), (2, 3), (300, 500)]:
            array = np.arange(np.prod(shape), dtype=float).reshape(shape)
            equal(service.same(array), array)
            equal(service.scale(array, 2.0), array * 2)
        equal(service.same(np.asfortranarray(np.eye(3))), np.eye(3))
        equal(service.total({"a": np.ones(5), "b": np.ones(100_000)}), {"a": 5.0, "b": 100_000.0})


@check
def long(url: str) -> None:
    """Around each length at which a message travels in another way."""
    with client(url, ex.Basics, timeout=50.0) as basics:
        edges = [4096, 8000, 16_384, 32_700, 65_472, 65_536, 262_144, 1 << 20, 4 << 20, 16 << 20]
        for edge in edges:
            for size in (edge - 65, edge - 1, edge, edge + 1, edge + 4032):
                data = (b"0123456789abcdef" * (size // 16 + 1))[:size]
                assert basics.echo(data) == data, size
                assert bytes(basics.view(data)) == data, size
        for size in (30_000_000, 60_000_000, (64 << 20) - 100, 1_000):
            made = basics.made(size)
            equal((len(made), made[-1]), (size, (size - 1) % 251))
            assert basics.echo(made) == made, size
        kept = [basics.view(bytes([n]) * 3_000_000) for n in range(12)]
        assert all(bytes(view[-2:]) == bytes([n, n]) for n, view in enumerate(kept))


@check
def too_long(url: str) -> None:
    with client(url, ex.Basics, timeout=50.0) as basics:
        raised(nearcall.ResourceExhausted, lambda: basics.echo(bytes(70 << 20)))
        raised(nearcall.ResourceExhausted, lambda: basics.made(70 << 20))
        equal(basics.add(1, 2), 3)


@check
def errors(url: str) -> None:
    with client(url, ex.Basics) as basics:
        empty = raised(ex.Empty, lambda: basics.fail("declared"))
        equal((empty.args, empty.since), (("top", 7), [1.5, None]))
        missing = raised(nearcall.NotFound, lambda: basics.fail("status"))
        equal((missing.message, missing.details), ("no such thing", {"id": 7}))
        said = str(raised(nearcall.Unknown, lambda: basics.fail("other")))
        assert "a mistake" in said, said
        equal(basics.add(1, 2), 3)


@check
def deadlines(url: str) -> None:
    with client(url, ex.Basics) as basics:
        equal(basics.left(), -1.0)
        with nearcall.timeout(30):
            assert 20 < basics.left() <= 30
        with nearcall.timeout(0.3):
            raised(nearcall.DeadlineExceeded, lambda: basics.wait(20.0))
        assert basics.was_cancelled(), "the handler was not told"
        with nearcall.metadata({"test": "a", "test-bin": b"\0"}):
            equal(basics.told(), [("test", "a"), ("test-bin", "b'\\x00'")])


@check
def loop(url: str) -> None:
    async def main() -> None:
        async with await nearcall.aio.connect(url, ex.Basics) as basics:
            results = await asyncio.gather(*(basics.add(n, n) for n in range(500)))
            equal(results, [2 * n for n in range(500)])
            waiting = asyncio.ensure_future(basics.wait(20.0))
            await asyncio.sleep(0.2)
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
            assert await basics.was_cancelled(), "the handler was not told"
        async with await nearcall.aio.connect(url, ex.Streams) as streams:
            equal([n async for n in streams.count(1000)], list(range(1000)))

    asyncio.run(main())


@check
def streams(url: str) -> None:
    with client(url, ex.Streams, timeout=50.0) as service:
        equal(list(service.count(0)), [])
        equal(list(service.count(20_000)), list(range(20_000)))
        equal(service.has_ended(), True)
        equal([len(block) for block in service.blocks(60, 100_000)], [100_000] * 60)
        equal([block[-1] for block in service.blocks(3, 5_000_000)], [0, 1, 2])
        equal(service.total(iter(range(20_000)), start=5), sum(range(20_000)) + 5)
        equal(service.first(iter(range(10**6)), 3), [0, 1, 2])
        points = [ex.Point(n, "p", b"\0" * 500) for n in range(2000)]
        equal(list(service.doubled(iter(points))), [ex.Point(2 * point.x, point.label, point.data) for point in points])
        equal(list(service.arrays(np.arange(n * 1000.0) for n in range(30)))[29], np.arange(29_000.0) + 1)
        service.has_ended()
        items = service.count(10**9)
        equal([next(items) for _ in range(5)], [0, 1, 2, 3, 4])
        items.close()
        equal(service.has_ended(), True)
        items = service.broken(5)
        equal([next(items) for _ in range(5)], [0, 1, 2, 3, 4])
        said = raised(nearcall.DataLoss, lambda: next(items))
        assert "the rest is gone" in str(said), said
        equal(list(service.count(3)), [0, 1, 2])


@check
def oneway(url: str) -> None:
    with client(url, ex.Basics, timeout=50.0) as basics:
        before = basics.notes()
        for _ in range(5000):
            basics.note(1, b"x" * 1000)
        for _ in range(30):
            basics.note(1, b"x" * 1_000_000)
        assert ex.wait_until(lambda: basics.notes() == before + 5030, 30), basics.notes() - before


@check
def threads(url: str) -> None:
    failures: list[BaseException] = []

    def work(basics: Any) -> None:
        try:
            for n in range(300):
                equal(basics.add(n, 1), n + 1)
                equal(len(basics.echo(b"a" * (n * 37))), n * 37)
        except BaseException as error:
            failures.append(error)

    with client(url, ex.Basics) as basics:
        running = [threading.Thread(target=work, args=(basics,)) for _ in range(8)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
    if failures:
        raise failures[0]


def needs(url: str, ability: str) -> None:
    with client(url, ex.Basics) as basics:
        both = ex.has(ability) and ability in basics.abilities()
    if not both:
        raise nearcall.Unimplemented(f"one side has no {ability}")


@check
def objects(url: str) -> None:
    needs(url, "release")
    from exchanged_objects import Room

    with client(url, Room, timeout=30.0) as room:
        ear = ex.Ear()
        equal(room.ask(ear, "hello"), "HELLO")
        equal(room.ask_many(ear, 5000), sum(range(5000)))
        assert room.same(ear) is ear, "an object did not come home"
        for n in range(50):
            equal(room.keep(ear), n + 1)
        equal(room.forget(), ["BYE"] * 50)
        equal(room.seat(7).number(), 7)
        seats = room.seats(300)
        equal([seat.number() for seat in seats], list(range(300)))
        equal(room.number_of(seats[17]), 17)
        del seats
        gc.collect()
        equal(room.seat(8).number(), 8)
        for _ in range(2000):
            room.seat(1)


@check
def topics(url: str) -> None:
    needs(url, "Topic")
    from exchanged_topics import News

    with client(url, News, timeout=30.0) as news:
        items = news.watch()
        first = next(items)[0]
        news.publish(10_000)
        found = [first]
        while found[-1] != 9_999:
            found.append(next(items)[0])
        equal(found[1:], sorted(found[1:]))


@check
def lent(url: str) -> None:
    needs(url, "empty")
    from exchanged_buffers import Lent

    with client(url, Lent, timeout=30.0) as service:
        for round_ in range(60):
            values = nearcall.empty((100_000,), np.float64)
            values[:] = round_
            equal(service.total(values), 100_000.0 * round_)
            equal(service.same(values), values)
            made = service.made(50_000 + round_)
            equal(made[-1], np.float64(49_999 + round_))
            equal(service.total(made), float(made.sum()))
        kept = [service.made(200_000) for _ in range(40)]
        assert all(made[5] == 5 for made in kept)


@check
def statistics(url: str) -> None:
    """What ``nearcall top`` asks."""
    from nearcall.introspection import Introspection

    with client(url, Introspection) as server, client(url, ex.Basics) as basics:
        server.read()
        basics.add(1, 2)
        read = server.read()
        (found,) = [method for method in read.methods if method.method == "Basics.add"]
        assert found.started >= 1, found


@check
def load(url: str) -> None:
    """Calls until the input says that there are enough; servers come and go meanwhile. Prints what failed."""
    failed: dict[str, int] = {}
    pids: set[int] = set()
    stop = threading.Event()
    wrong: list[str] = []
    calls: list[int] = []

    def work(basics: Any) -> None:
        n = 0
        while not stop.is_set():
            n += 1
            try:
                with nearcall.timeout(20):
                    if basics.add(n, 1) != n + 1 or basics.echo(b"a" * (n % 60_000)) != b"a" * (n % 60_000):
                        wrong.append(f"call {n}")
                    pids.add(basics.pid())
                calls.append(n)
            except nearcall.Unavailable as error:
                said = str(error).partition(" (")[0].replace(url, "URL")
                failed[said] = failed.get(said, 0) + 1
                time.sleep(0.01)
            except nearcall.RpcError as error:
                wrong.append(repr(error))

    with client(url, ex.Basics) as basics:
        running = [threading.Thread(target=work, args=(basics,), daemon=True) for _ in range(3)]
        for thread in running:
            thread.start()
        print(json.dumps("begun"), flush=True)
        sys.stdin.readline()
        seen = len(calls)
        assert ex.wait_until(lambda: len(calls) > seen + 100, 30), "no calls come through any more"
        stop.set()
        for thread in running:
            thread.join(30)
            assert not thread.is_alive(), "a call hangs"
        equal(basics.add(1, 2), 3)
    assert not wrong, wrong[:5]
    print(json.dumps({"failed": failed, "servers": len(pids), "calls": len(calls)}), flush=True)


def outcome(function: Callable[[str], object], url: str) -> str:
    try:
        function(url)
    except nearcall.RpcError as error:
        where = traceback.extract_tb(error.__traceback__)
        line = next(
            (frame.line for frame in where if frame.filename == __file__ and frame.name == function.__name__), ""
        )
        return f"refused: {type(error).__name__}: {error} [{line}]"
    except BaseException as error:
        return f"WRONG: {type(error).__name__}: {error} [{traceback.extract_tb(error.__traceback__)[-1].line}]"
    return "right"


def main(url: str, *names: str) -> None:
    for name in names:
        faulthandler.dump_traceback_later(LONGEST, exit=True)
        begin = time.monotonic()
        found = outcome(CHECKS[name], url)
        faulthandler.cancel_dump_traceback_later()
        print(json.dumps([name, found, round(time.monotonic() - begin, 1)]), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
