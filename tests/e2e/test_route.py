"""The message router: nodes in this process and in others."""

from __future__ import annotations

import contextlib
import json
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import cli, route

from ..hostile import raw
from ..hostile.frames import CALL, ONEWAY, encode, frame
from .conftest import TRANSPORTS

PATIENCE = 30.0


@route.message(1000)
@dataclass
class Measurement:
    cell: int
    values: bytes


def until(holds: Callable[[], object], what: str) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, f"it takes too long: {what}"
        time.sleep(0.005)


def error_of(send: Callable[[], object]) -> nearcall.ResourceExhausted | None:
    """The error for a message that finds no room."""
    try:
        send()
    except nearcall.ResourceExhausted as error:
        return error
    return None


def table_of(*lines: str, name: str = "t") -> str:
    return "\n".join((f"newrt | start | {name}", *lines, f"newrt | end | {len(lines)}", ""))


@pytest.fixture
def url_of(transport: str, key: str, runtime_dir: Path) -> Callable[[str], str]:
    if transport == "tls":
        pytest.skip("a node's connections need a certificate of their own: see test_it_encrypts")
    return lambda name: TRANSPORTS[transport](f"r{key}{name}", runtime_dir)


@contextmanager
def nodes(*asked: route.Node) -> Generator[None, None, None]:
    with ExitStack() as stack:
        for node in asked:
            stack.enter_context(node)
        yield


def noting(url: str, *types: int, **options: Any) -> tuple[route.Node, list[bytes]]:
    """A node that notes the payloads that come."""
    node, seen = route.Node(url, **options), list[bytes]()

    @node.on(*types)
    def note(message: route.Message[Any]) -> None:
        seen.append(message.payload)

    return node, seen


def test_members_take_turns_and_each_group_gets_a_copy(url_of: Callable[[str], str]) -> None:
    (a, of_a), (b, of_b), (log, of_log) = (noting(url_of(name), 1, 2) for name in ("a", "b", "log"))
    sender = route.Node(url_of("sender"))
    with nodes(a, b, log, sender):
        at = [node.urls[0] for node in (a, b, log)]
        sender.install(table_of(f"mse | 1 | -1 | {at[0]},{at[1]}; {at[2]}", f"mse | 2 | 7 | {at[2]}"))
        sender.ready(PATIENCE)
        for number in range(100):
            sender.send(1, b"%d" % number)
        sender.send(2, b"by subscription", subscription=7)
        until(lambda: len(of_log) == 101 and len(of_a) + len(of_b) == 100, "the messages")
        with pytest.raises(nearcall.NotFound, match='table "t" has no entry for type 2 and subscription 8'):
            sender.send(2, b"", subscription=8)
    assert of_log == [b"%d" % number for number in range(100)] + [b"by subscription"]
    assert (len(of_a), len(of_b)) == (50, 50)
    assert of_a == sorted(of_a, key=int)
    status = sender.status()
    assert (status.unrouted, [each.sent for each in status.endpoints if each.name == at[2]]) == (1, [101])


def test_a_reply_needs_no_table_and_a_call_waits_for_it(url_of: Callable[[str], str]) -> None:
    server, client = route.Node(url_of("server")), route.Node(url_of("client"))

    @server.on(5)
    def answer(message: route.Message[Any]) -> None:
        if message.payload != b"silence":
            message.reply(message.payload[::-1], type=6)

    with nodes(server, client):
        client.install(table_of(f"rte | 5 | {server.urls[0]}"))

        def ask(number: int) -> None:
            text = b"call %d" % number
            reply = client.call(5, text, timeout=PATIENCE, trace=text, entity="e")
            assert (reply.payload, reply.type, reply.trace, reply.entity) == (text[::-1], 6, text, "e")
            assert reply.source == server.name

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(ask, range(200)))
        with pytest.raises(TimeoutError, match=r"no reply to a message of type 5 within 0\.05 s"):
            client.call(5, b"silence", timeout=0.05)
        assert client.call(5, b"ab", to=server.urls[0], timeout=PATIENCE).payload == b"ba"


def test_typed_payloads(url_of: Callable[[str], str]) -> None:
    receiver, sender = route.Node(url_of("receiver")), route.Node(url_of("sender"))
    seen = list[Measurement]()

    @receiver.on(Measurement)
    def measured(message: route.Message[Measurement]) -> None:
        seen.append(message.value)

    with nodes(receiver, sender):
        sender.install(table_of(f"rte | 1000 | {receiver.urls[0]}"))
        sender.send(Measurement(7, b"v"))
        sender.send(1000, Measurement(8, b"w"), subscription=3)
        sender.send(1000, b"\x01 is no measurement")
        until(lambda: len(seen) == 2 and receiver.status().failed == 1, "the messages")
        assert seen == [Measurement(7, b"v"), Measurement(8, b"w")]
        with pytest.raises(TypeError, match="a Measurement is of type 1000, and is sent as one of type 1001"):
            sender.send(1001, Measurement(1, b""))
        with pytest.raises(TypeError, match="a dict has no message type"):
            sender.send({})
        with pytest.raises(nearcall.InvalidArgument, match="cell"):
            sender.send(Measurement("x", b""))  # type: ignore[arg-type]


def test_a_table_is_swapped_under_load_and_nothing_is_lost_or_doubled(url_of: Callable[[str], str]) -> None:
    receivers = [noting(url_of(str(number)), 1) for number in range(3)]
    sender = route.Node(url_of("sender"))
    with nodes(sender, *(node for node, _ in receivers)):
        at = [node.urls[0] for node, _ in receivers]
        tables = [table_of(f"mse | 1 | -1 | {at[one]},{at[other]}") for one, other in ((0, 1), (1, 2), (2, 0))]
        sender.install(tables[0])
        over, sent, swapped = threading.Event(), 0, list[int]()

        def swap() -> None:
            while not over.is_set():
                swapped.append(1)
                sender.install(tables[len(swapped) % 3])

        swapping = threading.Thread(target=swap)
        swapping.start()
        end = time.monotonic() + PATIENCE
        while sent < 10_000 or len(swapped) < 30 or not all(seen for _, seen in receivers):
            assert time.monotonic() < end, "some receiver gets nothing"
            sender.send(1, b"%d" % sent)
            sent += 1
        over.set()
        swapping.join(PATIENCE)
        until(lambda: sum(len(seen) for _, seen in receivers) >= sent, "the messages")
    counted = Counter(int(payload) for _, seen in receivers for payload in seen)
    assert set(counted) == set(range(sent))
    assert max(counted.values()) == 1
    assert all(seen for _, seen in receivers)


def test_what_is_sent_before_a_receiver_is_there_waits_for_it(key: str) -> None:
    sender = route.Node(f"shm://r{key}sender")
    late, seen = noting(f"shm://r{key}late", 1)
    with sender:
        sender.install(table_of(f"rte | 1 | shm://r{key}late"))
        with pytest.raises(TimeoutError, match=rf"not connected to shm://r{key}late \(.*nobody has served it"):
            sender.ready(0.3)
        for number in range(50):
            sender.send(1, b"%d" % number)
        assert sender.status().endpoints[0].queued == 50
        with late:
            sender.ready(PATIENCE)
            until(lambda: len(seen) == 50, "the messages")
    assert seen == [b"%d" % number for number in range(50)]


@pytest.mark.parametrize("policy", ["error", "drop_oldest", "drop_newest", "block"])
def test_a_full_queue_does_what_was_asked_and_counts(key: str, policy: route.WhenFull) -> None:
    sender = route.Node(f"shm://r{key}sender", when_full=policy, queue=4096)
    late, seen = noting(f"shm://r{key}late", 1)
    refused = 0
    with sender:
        sender.install(table_of(f"rte | 1 | shm://r{key}late"))
        for number in range(10):
            if (error := error_of(partial(sender.send, 1, b"%d" % number * 1000, timeout=0.01))) is not None:
                assert f"the queue for shm://r{key}late is full" in str(error)
                refused += 1
        status = sender.status().endpoints[0]
        assert status.queued_bytes <= 4096
        assert status.queued + status.dropped + refused == 10
        assert (status.failed_soft, status.dropped > 0) == (refused, policy.startswith("drop"))
        with late:
            until(lambda: len(seen) == status.queued, "the messages")
    kept = [int(payload[:1]) for payload in seen]
    assert kept == (list(range(10))[-len(kept) :] if policy == "drop_oldest" else list(range(len(kept))))


RECEIVER = """
import os, sys
from nearcall import route
node = route.Node(sys.argv[1])
@node.on(1)
def seen(message): os.write(1, message.payload + b"\\n")
with node:
    os.write(1, b"ready\\n")
    sys.stdin.read()
"""


@contextmanager
def receiver(url: str) -> Generator[subprocess.Popen[bytes], None, None]:
    command = [sys.executable, "-c", RECEIVER, url]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        yield process
        # The end of its standard input ends it.


def test_the_table_of_a_file_is_in_force_when_the_first_message_is_handled(key: str, tmp_path: Path) -> None:
    """The successor of a member that died has a sender who waits for it."""
    end, seen = noting(f"shm://r{key}end", 2)
    table = tmp_path / "table.rt"
    table.write_text(table_of(*(f"rte | {number} | shm://r{key}end" for number in range(2, 9000))))
    sender = route.Node(f"shm://r{key}sender")
    with nodes(end, sender):
        sender.send(1, b"first", to=f"shm://r{key}middle")  # it waits until the node is there
        middle = route.Node(f"shm://r{key}middle", table=table)

        @middle.on(1)
        def pass_on(message: route.Message[Any]) -> None:
            middle.send(2, message.payload)

        with middle:
            until(lambda: seen == [b"first"], "the message")
            assert middle.status().failed == 0


@pytest.mark.crash
def test_a_member_that_dies_is_left_out_and_its_successor_gets_its_turns(key: str, tmp_path: Path) -> None:
    dying, staying = f"unix://{tmp_path}/dying", f"unix://{tmp_path}/staying"
    node, seen = noting(staying, 1)
    sender = route.Node(f"shm://r{key}sender")
    with nodes(node, sender), receiver(dying) as first:
        sender.install(table_of(f"mse | 1 | -1 | {dying},{staying}"))
        sender.ready(PATIENCE)
        sender.send(1, b"one")
        assert first.stdout is not None
        assert first.stdout.readline() == b"one\n"
        first.send_signal(signal.SIGKILL)
        first.wait(PATIENCE)
        for number in range(100):
            sender.send(1, b"%d" % number)
        # At most the message that found out is lost with the dead: the system had taken it.
        until(lambda: len(seen) >= 99, "the messages")
        with receiver(dying) as second:
            until(sender.is_ready, "the successor")
            sender.send(1, b"x")
            sender.send(1, b"x")
            assert second.stdout is not None
            assert second.stdout.readline() == b"x\n"


@pytest.mark.crash
def test_what_waits_for_a_member_that_dies_goes_to_another_and_every_message_is_accounted_for(
    key: str, tmp_path: Path
) -> None:
    """Each message is in the journal of one receiver, or the system had taken it for the dead one."""
    dying, staying = f"unix://{tmp_path}/dying", f"unix://{tmp_path}/staying"
    sender = route.Node(f"shm://r{key}sender", queue=8 << 20, when_full="error")
    with sender, receiver(dying) as first:
        assert first.stdout is not None
        sender.install(table_of(f"mse | 1 | -1 | {dying},{staying}"))
        until(lambda: any(each.connected for each in sender.status().endpoints), "the connection")
        first.send_signal(signal.SIGSTOP)  # the socket fills, then the queue
        sent = 0
        try:
            while sender.status().endpoints[0].queued < 100:
                sender.send(1, b"%-20000d" % sent)
                sent += 1
        finally:
            first.kill()
        node, seen = noting(staying, 1)
        with node:
            first.wait(PATIENCE)
            until(lambda: {each.name: each for each in sender.status().endpoints}[dying].queued == 0, "the move")
            counts = {each.name: each for each in sender.status().endpoints}
            until(lambda: len(seen) == counts[dying].handed_on, "the messages")
            counts = {each.name: each for each in sender.status().endpoints}
        written = first.stdout.read()
    here = [int(payload) for payload in seen]
    there = [int(line) for line in written.splitlines()]
    assert here == sorted(set(here))
    assert not set(here) & set(there)
    assert counts[dying].handed_on == len(here)
    assert counts[dying].sent + counts[staying].sent == sent
    assert len(there) <= counts[dying].sent
    assert counts[dying].dropped == counts[staying].dropped == 0


def test_hostile_messages_are_counted_and_harm_nobody(url_of: Callable[[str], str], transport: str) -> None:
    if transport == "inproc":
        pytest.skip("nobody else gets there")
    node, seen = noting(url_of("node"), 1)
    with node:
        wrong = [
            b"",
            b"\xc1",
            encode([1, 2]),
            encode([b"", b""]),
            encode([b"\1" * 14, b""]),
            encode([b"\xff" * 15, b""]),
        ]
        wrong += [
            encode([b"\1" + bytes(8) + b"\xff\xff\xff\xff\xff\xff", b""]),
            b"\x92\xc6\xff\xff\xff\xff",
            b"\x92\xc4\x0f",
        ]
        wrong += [b"\x92" + encode(b"\1" + bytes(14)) + b"\xc6\x7f\xff\xff\xff"]
        with raw.connect(node.urls[0]) as peer:
            for body in wrong:
                assert peer.send(frame(CALL, body, method=peer.methods["deliver"], call=0xFFFFFFFF, flags=ONEWAY))
            until(lambda: node.status().malformed == len(wrong), "the refusals")
            good = encode([b"\1" + (1).to_bytes(4, "little") + b"\xff" * 4 + bytes(6), b"good"])
            assert peer.send(frame(CALL, good, method=peer.methods["deliver"], call=0xFFFFFFFF, flags=ONEWAY))
            until(lambda: seen == [b"good"], "the good one")


def test_messages_are_received_without_handlers(url_of: Callable[[str], str]) -> None:
    node, sender = route.Node(url_of("node")), route.Node(url_of("sender"))
    with nodes(node, sender):
        at = node.urls[0]
        assert node.receive(0.01) is None
        with selectors.DefaultSelector() as selector:
            selector.register(node, selectors.EVENT_READ)
            assert not selector.select(0)
            sender.send(1, b"1", to=at)
            sender.send(1, memoryview(b"2"), to=at)
            sender.send(1, bytearray(b"3" * 300_000), to=at)
            assert selector.select(PATIENCE)
            first = node.receive(PATIENCE)
            assert first is not None
            assert (first.payload, len(first), first.type) == (b"1", 1, 1)
            second, third = node.receive(PATIENCE), node.receive(PATIENCE)
            assert second is not None
            assert third is not None
            assert (second.payload, bytes(third.view)) == (b"2", b"3" * 300_000)
            assert not selector.select(0)
        threading.Timer(0.05, node.close).start()
        assert list(node) == []


def test_arrays_and_views_are_payloads_and_a_message_has_a_buffer(url_of: Callable[[str], str]) -> None:
    np = pytest.importorskip("numpy")
    node, sender = route.Node(url_of("node")), route.Node(url_of("sender"))
    with nodes(node, sender):
        straight = sender.direct(node.urls[0])
        array = np.arange(100_000, dtype=np.float64)
        straight.send(1, array)
        straight.send(1, memoryview(array)[10:20])
        straight.send(1, array[::2].copy())
        with pytest.raises(TypeError, match="not C-contiguous"):
            straight.send(1, array[::2])
        with pytest.raises(TypeError, match="bytes-like"):
            straight.send(1, 7)
        first, second, third = (node.receive(PATIENCE) for _ in range(3))
        assert first is not None
        assert second is not None
        assert third is not None
        assert (np.frombuffer(first.view, np.float64) == array).all()
        assert (np.frombuffer(first, np.float64) == array).all()
        assert (np.frombuffer(second.payload, np.float64) == array[10:20]).all()
        assert (np.frombuffer(third.view, np.float64) == array[::2]).all()
        view = first.view
        del first
        assert view.readonly
        assert np.frombuffer(view, np.float64)[-1] == array[-1]


def test_a_way_straight_to_a_node_needs_no_table(url_of: Callable[[str], str]) -> None:
    server, client = route.Node(url_of("server")), route.Node(url_of("client"))

    @server.on(5)
    def answer(message: route.Message[Any]) -> None:
        message.reply(message.payload * 2)

    with nodes(server, client):
        straight = client.direct(server.urls[0])
        until(straight.is_connected, "the connection")
        assert straight.call(5, b"a", timeout=PATIENCE).payload == b"aa"
        assert straight.url == server.urls[0]


def test_counts_are_shown_to_prometheus_and_in_top(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    client = pytest.importorskip("prometheus_client")
    node, seen = noting(f"shm://r{key}node", 1)
    registry = client.CollectorRegistry()
    with node, route.Node(f"shm://r{key}sender", when_full="error", queue=100) as sender:
        route.prometheus(sender, node, registry=registry)
        sender.install(table_of(f"rte | 1 | shm://r{key}node", f"rte | 2 | shm://r{key}nobody"))
        until(lambda: next(each for each in sender.status().endpoints if each.name.endswith("node")).connected, "it")
        for _ in range(3):
            sender.send(1, b"x")
        sender.send(2, b"waits")
        assert error_of(partial(sender.send, 2, b"has no room")) is not None
        until(lambda: len(seen) == 3, "the messages")
        sent = {"node": f"r{key}sender", "endpoint": f"shm://r{key}node"}
        waits = {"node": f"r{key}sender", "endpoint": f"shm://r{key}nobody"}
        values = registry.get_sample_value
        assert values("nearcall_route_sent_total", sent) == 3
        assert values("nearcall_route_connected", sent) == 1
        assert values("nearcall_route_queued", waits) == 1
        assert values("nearcall_route_failed_soft_total", waits) == 1
        assert values("nearcall_route_connected", waits) == 0
        assert values("nearcall_route_taken_total", {"node": f"r{key}node"}) == 3
        with pytest.raises(ValueError, match="Duplicated"):
            route.prometheus(node, registry=registry)
        assert cli.main(["top", "--once", "-i", "0.05", f"shm://r{key}sender"]) == 0
        rows = {line.split()[0]: line.split() for line in capsys.readouterr().out.splitlines() if line}
        assert rows[f"shm://r{key}node"][1:3] == ["3", "0"]
        assert rows[f"shm://r{key}nobody"][1:3] == ["0", "1"]
        assert cli.main(["top", "--once", "-i", "0.05", "--connections", "--json", f"shm://r{key}sender"]) == 0
        (client,) = json.loads(capsys.readouterr().out)["clients"]
        assert client["watches"], "one connection tells of the server and of the node"
        sender.close(grace=0)  # nobody will take what is queued


def test_a_node_answers_health_messages(key: str) -> None:
    node, prober = noting(f"shm://r{key}node", 1)[0], route.Node(f"shm://r{key}prober")
    with nodes(node, prober):
        reply = prober.call(100, b"are you there?", to=node.urls[0], timeout=PATIENCE)
        assert (reply.type, reply.payload) == (101, b"OK\n")


def test_who_falls_behind_slows_its_senders_down_and_loses_nothing(url_of: Callable[[str], str]) -> None:
    gate, seen = threading.Event(), list[bytes]()
    slow, sender = route.Node(url_of("slow")), route.Node(url_of("sender"), when_full="error", queue=100_000)

    @slow.on(1)
    def handle(message: route.Message[Any]) -> None:
        gate.wait(PATIENCE)
        seen.append(message.payload)

    with nodes(slow, sender):
        sender.install(table_of(f"rte | 1 | {slow.urls[0]}"))
        sender.ready(PATIENCE)
        sent = 0
        while error_of(partial(sender.send, 1, b"%8d" % sent * 1000)) is None:
            sent += 1
            assert sent < 1_000_000, "it is never slowed down"
        gate.set()
        until(lambda: len(seen) == sent, "what was sent")
    assert [int(payload[:8]) for payload in seen] == list(range(sent))


def test_a_table_in_a_file_is_read_again_and_a_wrong_one_changes_nothing(
    key: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    node, seen = noting(f"shm://r{key}node", 1, 2)
    file = tmp_path / "routes.rt"
    file.write_text(table_of(f"rte | 1 | shm://r{key}node", name="first"))
    with node, route.Node(f"shm://r{key}sender", table=file) as sender:
        sender.ready(PATIENCE)
        sender.send(1, b"a")
        file.write_text("newrt | start | wrong\nrte | 2 | shm://x\nnewrt | end | 2\n")
        # It may also have been read when only half of it was there.
        until(lambda: f"the table before stays in force: {file}: line 3" in caplog.text, "the refusal")
        sender.send(1, b"b")
        file.write_text(table_of(f"rte | 2 | shm://r{key}node", name="second"))
        until(lambda: sender.status().table == "second", "the new table")
        sender.send(2, b"c")
        until(lambda: seen == [b"a", b"b", b"c"], "the messages")
    with pytest.raises(nearcall.InvalidArgument, match="line 1"):
        sender.install("nonsense\n")


def test_a_manager_makes_tables_and_nodes_outlive_it(key: str) -> None:
    at = f"shm://r{key}routes"
    nodes_of = {
        name: noting(f"shm://r{key}{name}", 1, manager=at, group=group)
        for name, group in (("a", "workers"), ("b", "workers"), ("log", "log"))
    }
    sender = route.Node(f"shm://r{key}sender", manager=at)
    with ExitStack() as stack:
        serving = stack.enter_context(nearcall.Server(route.manager(), at))
        for node, _ in nodes_of.values():
            stack.enter_context(node)
        stack.enter_context(sender)
        until(lambda: len(takers(sender)) == 3, "all nodes in the table")
        sender.ready(PATIENCE)
        for number in range(10):
            sender.send(1, b"%d" % number)
        until(lambda: len(nodes_of["log"][1]) == 10, "the copies")
        until(lambda: len(nodes_of["a"][1]) == len(nodes_of["b"][1]) == 5, "the turns")
        nodes_of["a"][0].close()
        until(lambda: takers(sender) == {f"shm://r{key}b", f"shm://r{key}log"}, "it leaves the table")
        with nearcall.connect(at, route.RouteManager) as manager:
            attached = {each.node.name: each for each in manager.nodes()}
            assert set(attached) == {f"r{key}{name}" for name in ("b", "log", "sender")}
        serving.stop()
        sender.send(1, b"without the manager")
        until(lambda: nodes_of["b"][1][-1:] == [b"without the manager"], "the message")
        stack.enter_context(nearcall.Server(route.manager(), at))
        until(lambda: takers(sender) == {f"shm://r{key}b", f"shm://r{key}log"}, "they attach again")


def takers(node: route.Node) -> set[str]:
    table = node.table()
    return set() if table is None else {each.name for each in node.status().endpoints}


def test_nodes_whose_ports_the_system_chooses_have_names_of_their_own(key: str) -> None:
    at = f"shm://r{key}routes"
    with nearcall.Server(route.manager(), at):
        made = [route.Node("tcp://127.0.0.1:0", manager=at) for _ in range(2)]
        for node in made:
            node.on(1)(lambda message: message.reply(message.source.encode()))
        with nodes(*made), route.Node("tcp://127.0.0.1:0", manager=at) as asker:
            assert [node.name for node in made] == [node.urls[0].removeprefix("tcp://") for node in made]
            until(lambda: takers(asker) == {node.urls[0] for node in made}, "both are in the table")
            assert asker.call(1, timeout=PATIENCE).payload.startswith(asker.name.encode())
            assert asker.status().name == asker.name


@pytest.mark.crash
def test_a_node_that_is_killed_leaves_the_managers_table(key: str, tmp_path: Path) -> None:
    at, dying = f"shm://r{key}routes", f"unix://{tmp_path}/dying"
    program = RECEIVER.replace("route.Node(sys.argv[1])", f"route.Node(sys.argv[1], manager={at!r})")
    with nearcall.Server(route.manager(), at), route.Node(f"shm://r{key}sender", manager=at) as sender:
        process = subprocess.Popen([sys.executable, "-c", program, dying], stdin=subprocess.PIPE)
        try:
            until(lambda: takers(sender) == {dying}, "it is in the table")
            process.kill()
            process.wait(PATIENCE)
            until(lambda: not takers(sender), "it is out of the table")
        finally:
            process.kill()
            process.communicate()


def test_it_encrypts(certificates: Path, key: str) -> None:
    server = nearcall.TLS(cert=str(certificates / "server.pem"), key=str(certificates / "server.key"))
    client = nearcall.TLS(ca=str(certificates / "ca.pem"))
    node, seen = noting("tls://127.0.0.1:0", 1, tls=server)
    with node, route.Node(f"shm://r{key}sender", tls=client) as sender:
        sender.send(1, b"secret", to=node.urls[0])
        until(lambda: seen == [b"secret"], "the message")


def test_mistakes_say_what_to_do(key: str) -> None:
    with pytest.raises(ValueError, match="give a URL such as shm://filter"):
        route.Node()
    with pytest.raises(TypeError, match="a node has no option 'interceptors'"):
        route.Node("shm://x", interceptors=[])  # type: ignore[call-arg]
    with pytest.raises(nearcall.InvalidArgument, match='when_full must be "block", "error"'):
        route.Node("shm://x", when_full="wait")  # type: ignore[arg-type]
    node = route.Node(f"shm://r{key}")
    node.on(1)(print)

    async def coroutine(message: route.Message[Any]) -> None: ...

    with pytest.raises(TypeError, match=r"write 'def', or use a node of nearcall\.route\.aio"):
        node.on(2)(coroutine)
    with pytest.raises(TypeError, match="messages of type 1 have a handler already"):
        node.on(1)(print)
    with pytest.raises(TypeError, match="str has no message type"):
        node.on(str)
    with pytest.raises(TypeError, match=r"@node.on\(1000\), and not @node.on"):
        node.on(print)  # type: ignore[call-overload]
    with pytest.raises(ValueError, match="a message type has 32 bits"):
        route.message(1 << 31)
    with node:
        with pytest.raises(nearcall.NotFound, match="no table is in force"):
            node.send(1)
        with pytest.raises(RuntimeError, match="this node has handlers"):
            node.receive()
        with pytest.raises(nearcall.InvalidArgument, match="the transaction number has 33 bytes, 32 is the most"):
            node.send(1, transaction=bytes(33), to="shm://x")
        with pytest.raises(nearcall.InvalidArgument):
            node.send(1, to="no url at all://")
        node.send(1, b"to itself", to=f"shm://r{key}")
        node.install(table_of(f"rte | 1 | shm://r{key}"))
        with pytest.raises(nearcall.NotFound, match="its entry names this node only"):
            node.send(1)
    with pytest.raises(nearcall.FailedPrecondition, match="the node is closed"):
        node.send(1, to="shm://x")


def test_a_server_that_is_no_node_is_named(key: str) -> None:
    @nearcall.service
    class Other:
        def deliver(self, text: str) -> None: ...

    with nearcall.Server(Other(), f"shm://r{key}other"), route.Node(f"shm://r{key}sender") as sender:
        sender.install(table_of(f"rte | 1 | shm://r{key}other"))
        sender.send(1, b"x")
        until(lambda: "is no node of the router" in str(sender.status().endpoints[0].failure), "the failure")
        sender.close(grace=0)  # nobody will take what is queued


FORGETFUL = """
import ctypes, sys
from nearcall import route
library = ctypes.CDLL(None)
library.__cxa_atexit(library.getchar, None, None)
node = route.Node(sys.argv[1]).start()
node.send(1, b"x", to=sys.argv[1])
print(node.receive(20).payload, flush=True)
"""


def test_it_ends_with_its_program(key: str) -> None:
    """Also a program that forgets to close its nodes, whose threads go on when the interpreter has ended. This one ends
    when its input does.
    """
    command = [sys.executable, "-c", FORGETFUL, f"shm://r{key}a"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        with contextlib.suppress(subprocess.TimeoutExpired):
            program.wait(1)  # it ended by itself, by a signal
        said = program.communicate(timeout=PATIENCE)
    assert (*said, program.returncode) == (b"b'x'\n", b"", 0)
