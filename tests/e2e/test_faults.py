"""What clients and servers make of a connection on which things go wrong, over sockets that a proxy can see into."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

import nearcall
from nearcall.testing import Fault, FaultyProxy

from ..turns import IS_WHOLE
from .conftest import TRANSPORTS
from .deadlines import longer_and_longer
from .process import ServerProcess
from .services import Basics, Streams

SEEN_THROUGH = ["unix", "tcp"]
LONG = 20_000_000
SERVICES = "tests.e2e.test_faults:small"
PATIENCE = 20.0


@nearcall.service
class Small:
    """A short description: the handshake is cut at each of its bytes."""

    def add(self, a: int, b: int) -> int:
        return a + b


def small() -> list[object]:
    return [Small()]


class Through(NamedTuple):
    proxy: FaultyProxy
    url: str
    basics: Basics
    streams: Streams


@pytest.fixture(params=SEEN_THROUGH)
def through(request: pytest.FixtureRequest, served: Callable[[str], str]) -> Iterator[Through]:
    """A proxy to a server in another process, and clients behind it."""
    url = served(str(request.param))
    with (
        FaultyProxy(url) as proxy,
        nearcall.connect(proxy.url, Basics) as basics,
        nearcall.connect(proxy.url, Streams) as streams,
    ):
        yield Through(proxy, url, basics, streams)


@pytest.fixture
def bystander(through: Through) -> Iterator[Callable[[], None]]:
    """Another client of the server; calling this makes sure that nothing has happened to it."""
    client = nearcall.connect(through.url, Basics)

    def is_well() -> None:
        assert client.service.echo(b"here") == b"here"
        assert client.connected

    is_well()
    yield is_well
    is_well()
    client.close()


def reached(fault: Fault, basics: Basics) -> bool:
    """Whether a call that is over has met what was to befall it. If it has not, it never will: the rule is removed."""
    assert basics.echo(b"all that came before") == b"all that came before"
    if fault.count:
        return True
    fault.remove()
    return False


def descriptors(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


def until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"it is not so after {PATIENCE} s: {what}"
        time.sleep(0.005)


def test_what_passes_is_not_changed(through: Through) -> None:
    proxy, _, basics, streams = through
    with proxy.watch("call", "reply", method="digest_of") as seen:
        data = os.urandom(LONG)
        assert basics.echo(data) == data
        assert list(streams.count(1000)) == list(range(1000))
        assert list(streams.scaled(iter([1.0, 2.0]), 2)) == [2.0, 4.0]
        with nearcall.timeout(PATIENCE), nearcall.metadata({"who": "me"}):
            assert basics.digest_of(b"a", memoryview(b"b"), "c").endswith(" c")
    assert [(frame.kind, frame.to, frame.method) for frame in seen.frames] == [
        ("call", "server", "Basics.digest_of"),
        ("reply", "client", "Basics.digest_of"),
    ]
    assert b"ab" in seen.frames[0].payload  # the buffers, without deadline, metadata and table
    assert seen.frames[0].call == seen.frames[1].call
    assert (proxy.connections, proxy.cuts, proxy.dropped) == (2, 0, 0)


def test_a_lost_reply_is_a_deadline_and_no_more(through: Through, bystander: Callable[[], None]) -> None:
    proxy, _, basics, _ = through
    for seconds in longer_and_longer(0.1):
        lost = proxy.drop("reply", method="add")
        cancel = proxy.watch("cancel")
        with pytest.raises(nearcall.DeadlineExceeded, match="did not answer"), nearcall.timeout(seconds):
            basics.add(1, 2)
        if reached(lost, basics):
            break
    assert (proxy.dropped, lost.count) == (1, 1)
    assert lost.frames[0].payload == b"\x03"
    assert cancel.wait().frames[0].call == lost.frames[0].call, "the client gives the call up"
    bystander()
    assert basics.add(1, 2) == 3
    assert (proxy.dropped, proxy.connections) == (1, 2), "on the same connection"


def test_a_lost_call_is_a_deadline_and_was_not_made(through: Through) -> None:
    proxy, _, basics, _ = through
    for seconds in longer_and_longer(0.1):
        lost = proxy.drop("call", method="keep")
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
            basics.keep("lost", memoryview(b"x"))
        if reached(lost, basics):
            break
    assert basics.kept("lost") == []
    assert proxy.dropped == 1


def test_an_idempotent_call_that_is_late_is_not_repeated(through: Through) -> None:
    proxy, _, basics, _ = through
    for seconds in longer_and_longer(0.1):
        calls = proxy.watch("call", method="anything")
        lost = proxy.drop("reply", method="anything", times=None)
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
            basics.anything(1)
        if reached(lost, basics):
            break
    assert calls.count == proxy.dropped == 1


def test_an_idempotent_call_survives_a_cut(through: Through) -> None:
    proxy, _, basics, _ = through
    proxy.truncate("reply", method="Basics.anything", keep=6)
    assert basics.anything([1, "two"]) == [1, "two"]
    assert (proxy.truncated, proxy.cuts, proxy.connections) == (1, 1, 3)


def test_a_delay_takes_its_time_and_nothing_overtakes(through: Through) -> None:
    proxy, _, basics, _ = through
    proxy.delay(0.3, "reply", method="add")
    begun = time.monotonic()
    results: list[tuple[str, float]] = []

    def call(name: str, function: Callable[[], object]) -> None:
        function()
        results.append((name, time.monotonic() - begun))

    first = threading.Thread(target=call, args=("delayed", lambda: basics.add(1, 2)))
    seen = proxy.watch("reply")
    first.start()
    seen.wait()
    call("behind", lambda: basics.echo(b"x"))
    first.join(PATIENCE)
    assert proxy.delayed == 1
    assert {name for name, _ in results} == {"delayed", "behind"}
    assert all(took >= 0.3 for _, took in results), results
    for seconds in longer_and_longer(0.1):
        late = proxy.delay(30, "call")
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
            basics.add(1, 2)
        if late.count:
            break
        late.remove()
    assert proxy.delayed == 2


def test_what_is_held_comes_when_it_is_released(through: Through, bystander: Callable[[], None]) -> None:
    proxy, _, basics, _ = through
    held = proxy.hold("call", method="add")
    results: list[int] = []
    callers = [threading.Thread(target=lambda n=n: results.append(basics.add(n, 0))) for n in range(5)]
    seen = proxy.watch("call")
    for caller in callers:
        caller.start()
    held.wait()
    seen.wait(5)
    bystander()
    assert results == [], "the first is held, the others wait behind it"
    held.release()
    for caller in callers:
        caller.join(PATIENCE)
    assert sorted(results) == [0, 1, 2, 3, 4]
    assert (proxy.held, proxy.connections) == (1, 2)


def test_a_stream_whose_items_are_held_goes_on(through: Through) -> None:
    proxy, _, _, streams = through
    with proxy.hold("item", to="client", skip=10) as held:
        numbers = streams.count(100_000)
        assert [next(numbers) for _ in range(10)] == list(range(10))
        held.wait()
    assert sum(1 for _ in numbers) == 100_000 - 10


def test_credit_that_is_lost_stops_a_stream(through: Through) -> None:
    proxy, _, _, streams = through
    proxy.drop("credit", times=None)
    for seconds in longer_and_longer(0.3):
        items = proxy.watch("item")
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
            list(streams.blocks(100, 100_000))
        if items.count >= 11:
            break
    assert proxy.dropped >= 1
    assert items.count == 11, "a window of 1 MiB, overdrawn by one item"


@pytest.mark.parametrize("to", ["client", "server"])
@pytest.mark.parametrize(("length", "keep"), [(5, 3), (5, 4), (5, 12), (5, -1), (LONG, 1000), (LONG, None), (LONG, -1)])
def test_a_cut_within_a_message_ends_the_call_at_once(
    through: Through, bystander: Callable[[], None], length: int, keep: int | None, to: Any
) -> None:
    proxy, _, basics, _ = through
    data = bytes(length)
    assert basics.echo(data) == data
    cut = proxy.truncate("call" if to == "server" else "reply", keep=keep)
    with pytest.raises(nearcall.Unavailable, match=f"connection to {proxy.url} was lost"):
        basics.echo(data)
    until(lambda: proxy.cuts == 1, "the proxy has cut")
    assert (cut.count, proxy.truncated) == (1, 1)
    bystander()
    assert basics.echo(b"again") == b"again"
    assert proxy.connections == 3


def test_every_call_under_way_ends_with_the_connection(through: Through, bystander: Callable[[], None]) -> None:
    proxy, _, basics, streams = through
    held = proxy.hold("reply", "item", to="client", times=None)
    outcomes: list[object] = []

    def call(function: Callable[[], object]) -> None:
        try:
            outcomes.append(function())
        except nearcall.RpcError as error:
            outcomes.append(error.code)

    calls: list[Callable[[], object]] = [lambda: basics.add(1, 2)] * 4 + [lambda: list(streams.count(5))] * 4
    threads = [threading.Thread(target=call, args=(each,)) for each in calls]
    for thread in threads:
        thread.start()
    # Not so many messages: one stream has several.
    until(lambda: len({(frame.method, frame.call) for frame in held.frames}) == 8, "something of each call is held")
    assert proxy.cut() == 2
    begun = time.monotonic()
    for thread in threads:
        thread.join(PATIENCE)
    took = time.monotonic() - begun
    assert outcomes == [nearcall.StatusCode.UNAVAILABLE] * 8
    assert took < 5, "noticed, not waited for"
    held.remove()
    bystander()
    assert basics.anything(1) == 1
    assert proxy.cuts == 2


@pytest.mark.parametrize(
    ("kinds", "change", "message"),
    [
        (("reply",), {}, "a kind that its receiver does not know"),
        (("reply",), {"change": lambda wire: wire[:5] + b"\x80" + wire[6:]}, "a flag that its receiver does not know"),
        (("reply",), {"change": lambda wire: b"\x07\0\0\0" + wire[4:11]}, "shorter than its head"),
        (("reply",), {"change": lambda wire: b"\xff\xff\xff\xff" + wire[4:]}, "4294967295 bytes"),
        (("reply",), {"change": lambda wire: wire[:5] + b"\x02" + wire[6:12] + b"\xff" * 9}, "metadata is longer"),
    ],
)
def test_a_damaged_frame_ends_that_connection_with_a_reason(
    through: Through, bystander: Callable[[], None], kinds: tuple[Any, ...], change: Any, message: str
) -> None:
    proxy, _, basics, _ = through
    proxy.corrupt(*kinds, **change)
    with pytest.raises(nearcall.Internal, match=message):
        basics.echo(b"data")
    assert proxy.corrupted == 1
    bystander()
    assert basics.echo(b"again") == b"again"
    assert proxy.connections == 3


def test_a_damaged_payload_is_an_error_of_that_call(through: Through) -> None:
    proxy, _, basics, _ = through
    proxy.corrupt("reply", method="add", at=-1)
    assert basics.add(1, 2) == -4, "nothing on the way notices: sockets have checksums of their own"
    proxy.corrupt("reply", method="add", change=lambda wire: wire[:-1] + b"\xc1")
    with pytest.raises(nearcall.Internal, match="add"):
        basics.add(1, 2)
    proxy.corrupt("call", method="add", change=lambda wire: wire[:-1] + b"\xc1")
    with pytest.raises(nearcall.InvalidArgument, match="add"):
        basics.add(1, 2)
    assert (basics.add(1, 2), proxy.connections) == (3, 2), "the connection goes on"


UNKNOWN_KIND = "a frame is of a kind that its receiver does not know"


def test_a_damaged_call_ends_that_connection_and_the_log_says_why(tmp_path: Path, key: str, runtime_dir: Path) -> None:
    for transport in SEEN_THROUGH:
        log = tmp_path / transport
        url = TRANSPORTS[transport](f"d{key}", runtime_dir)
        with (
            log.open("w") as stderr,
            ServerProcess(url, services="tests.e2e.test_faults:logged", stderr=stderr) as server,
            nearcall.connect(server.url, Small) as bystander,
            FaultyProxy(server.url) as proxy,
            nearcall.connect(proxy.url, Small) as calc,
        ):
            assert (calc.add(1, 2), bystander.add(1, 2)) == (3, 3)
            before = descriptors(server.pid)
            proxy.corrupt("call")
            with pytest.raises(nearcall.Internal, match=f"the server at .* ended the connection: {UNKNOWN_KIND}"):
                calc.add(1, 2)
            until(lambda log=log: UNKNOWN_KIND in log.read_text(), "the log says why")
            assert log.read_text().count("dropped the connection to") == 1
            assert (calc.add(1, 2), bystander.add(1, 2)) == (3, 3)
            until(lambda server=server, before=before: descriptors(server.pid) == before, "it is closed")


def logged() -> list[object]:
    import logging

    logging.basicConfig(level=logging.INFO)
    return small()


def cuts(length: int) -> list[int]:
    """Where a frame is cut: at each byte of its head and of its first values; of the rest, which is waited for as one
    piece, at every seventh and before the last.
    """
    return [keep for keep in range(length) if IS_WHOLE or keep < 24 or keep % 7 == 0 or keep == length - 1]


@pytest.mark.slow
@pytest.mark.parametrize("transport", ["unix", "tcp", "shm"])
def test_a_handshake_that_is_cut_anywhere(transport: str, key: str, runtime_dir: Path) -> None:
    with (
        ServerProcess(TRANSPORTS[transport](f"h{key}", runtime_dir), services=SERVICES) as server,
        nearcall.connect(server.url, Small) as bystander,
        FaultyProxy(server.url) as proxy,
    ):
        assert bystander.add(1, 1) == 2
        before = descriptors(server.pid)
        with proxy.watch("hello", "welcome") as seen:
            nearcall.connect(proxy.url, Small).close()
        lengths = {frame.kind: len(frame.wire) for frame in seen.frames}
        assert set(lengths) == {"hello", "welcome"}
        for kind in ("hello", "welcome"):
            for keep in cuts(lengths[kind]):
                proxy.truncate(cast(Any, kind), keep=keep)
                nearcall.connect(proxy.url, Small).close()
            for keep in (0, 20, lengths[kind] - 1):
                proxy.truncate(cast(Any, kind), keep=keep, times=3)
                with pytest.raises(nearcall.Unavailable, match=f"{proxy.url} hung up during the handshake"):
                    nearcall.connect(proxy.url, Small)
        cut = sum(len(cuts(length)) for length in lengths.values())
        assert proxy.truncated == proxy.cuts == cut + 2 * 3 * 3
        assert bystander.add(1, 2) == 3
        with nearcall.connect(proxy.url, Small) as calc:
            assert calc.add(1, 2) == 3
        until(lambda: descriptors(server.pid) == before, "the server has closed what was cut")


@pytest.mark.parametrize("transport", ["unix", "tcp", "shm"])
def test_a_damaged_handshake_is_refused_with_a_reason(
    transport: str, served: Callable[[str], str], tmp_path: Path
) -> None:
    with FaultyProxy(served(transport)) as proxy:
        for kind, change, message in [
            ("hello", lambda wire: b"X" + wire[1:], "does not speak nearcall"),
            ("hello", lambda wire: wire[:4] + b"\x09" + wire[5:], "version 9"),
            ("hello", lambda wire: wire[:12] + b"!" + wire[13:], "cannot be read"),
            ("welcome", lambda wire: b"X" + wire[1:], "does not speak nearcall"),
            ("welcome", lambda wire: wire[:4] + b"\x09" + wire[5:], "version 9"),
            ("welcome", lambda wire: wire[:12] + b"!" + wire[13:], "cannot be read"),
        ]:
            proxy.corrupt(cast(Any, kind), change=cast(Any, change))
            with pytest.raises(nearcall.RpcError, match=message) as caught:
                nearcall.connect(proxy.url, Basics)
            assert caught.value.code in (nearcall.StatusCode.FAILED_PRECONDITION, nearcall.StatusCode.PERMISSION_DENIED)
        assert proxy.corrupted == 6
        with nearcall.connect(proxy.url, Basics) as basics:
            assert basics.add(1, 2) == 3


@pytest.mark.parametrize("transport", ["unix", "tcp", "shm"])
@pytest.mark.parametrize("kind", ["hello", "welcome"])
def test_a_handshake_that_stands_still_ends_in_time(transport: str, kind: Any, served: Callable[[str], str]) -> None:
    with FaultyProxy(served(transport)) as proxy:
        for seconds in longer_and_longer(0.2):
            held = proxy.hold(kind)
            with pytest.raises((nearcall.Unavailable, nearcall.DeadlineExceeded), match="handshake"):
                nearcall.connect(proxy.url, Basics, handshake_timeout=seconds)
            if held.count:
                break
            held.remove()
        assert held.count == 1


@pytest.mark.parametrize("transport", [name for name in TRANSPORTS if name != "nats"])  # no proxy leads to a broker
def test_a_cut_is_seen_over_every_transport(transport: str, served: Callable[[str], str], key: str) -> None:
    with FaultyProxy(served(transport)) as proxy, nearcall.connect(proxy.url, Streams) as streams:
        numbers = streams.endless(key)
        assert next(numbers) == 0
        assert proxy.cut() == 1
        with pytest.raises(nearcall.Unavailable, match="was lost"):
            list(numbers)
        # At the server, too: the generator is closed.
        with nearcall.connect(proxy.url, Streams) as again:
            assert again.how_it_closed(key) == "closed"


@pytest.mark.parametrize("transport", SEEN_THROUGH)
def test_asyncio_clients_see_the_same(transport: str, served: Callable[[str], str]) -> None:
    async def main(proxy: FaultyProxy) -> None:
        async with nearcall.aio.connect(proxy.url, Basics) as basics:
            for seconds in longer_and_longer(0.1):
                lost = proxy.drop("reply", method="add")
                with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(seconds):
                    await basics.add(1, 2)
                assert await basics.anything(1) == 1
                if lost.count:
                    break
                lost.remove()
            proxy.truncate("reply")
            with pytest.raises(nearcall.Unavailable):
                await basics.echo(bytes(LONG))
            proxy.corrupt("reply")
            with pytest.raises(nearcall.Internal, match="a kind that its receiver does not know"):
                await basics.add(1, 2)
            held = proxy.hold("reply", times=None)
            calls = [asyncio.ensure_future(basics.add(n, 0)) for n in range(5)]
            await asyncio.get_running_loop().run_in_executor(None, held.wait, 5)
            proxy.cut()
            ended = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), PATIENCE)
            assert {type(each) for each in ended} == {nearcall.Unavailable}
            held.remove()
            assert await basics.anything(1) == 1

    with FaultyProxy(served(transport)) as proxy:
        asyncio.run(main(proxy))
        assert (proxy.dropped, proxy.truncated, proxy.corrupted) == (1, 1, 1)


def test_without_a_server_behind_it_a_proxy_hangs_up(key: str, runtime_dir: Path) -> None:
    with ServerProcess(TRANSPORTS["unix"](f"g{key}", runtime_dir), services=SERVICES) as server:
        proxy = FaultyProxy(server.url)
        client = nearcall.connect(proxy.url, Small)
    with proxy, client as calc, pytest.raises(nearcall.Unavailable):
        calc.add(1, 2)
