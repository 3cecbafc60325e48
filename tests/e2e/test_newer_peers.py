"""Peers of a later nearcall, which say what this one does not know: it is ignored where the protocol says so, and
refused with a sentence elsewhere. Nothing hangs, and no error blames what is right.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import json
import os
import struct
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nearcall
from nearcall import cli
from nearcall.introspection import Introspection, MethodStatistics, Statistics
from nearcall.service.describing import describe
from nearcall.service.service import plan_of

from ..hostile import raw
from ..hostile.frames import (
    CALL,
    ERROR,
    GOAWAY,
    HELLO,
    REJECT,
    REPLY,
    WELCOME,
    Ext,
    Received,
    decode,
    encode,
    frame,
    message,
)
from .conftest import OUTSIDE, TRANSPORTS

LATER_KIND, LATER_FLAG = 13, 128
LATER_EXTENSION = Ext(9, b"\1")
_numbers = itertools.count(1)


@nearcall.service
class Served:
    def add(self, a: int, b: int) -> int:
        return a + b

    def same(self, value: Any) -> Any:
        return value

    def two(self) -> int:
        return 2


@pytest.fixture(params=OUTSIDE)
def transport(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def server(transport: str, key: str, runtime_dir: Path, certificates: Path) -> Iterator[str]:
    """Where today's server is, in this process."""
    with nearcall.Server(Served(), TRANSPORTS[transport](f"n{key}", runtime_dir)) as running:
        yield running.urls[0]


Answer = Callable[[raw.Peer, Received], None]


@contextlib.contextmanager
def later_server(
    transport: str, directory: Path, answer: Answer, description: dict[str, Any] | None = None, first: bytes = b""
) -> Iterator[str]:
    """The URL of a server of a later nearcall. ``first``: what it sends in place of a welcome."""
    listener = raw.Listener(transport, directory, f"l{os.getpid()}-{next(_numbers)}")
    said = {
        "version": "9.0.0",
        "limits": {"max_message": 1 << 20, "max_later": 1},
        "later": {"abilities": [1]},
        "memory": transport == "shm",
        "description": json.dumps(description or describe([plan_of(Served)])),
    }

    def serve() -> None:
        while True:
            try:
                connection = listener.accept()
            except OSError:
                return
            welcome = first or message(WELCOME, json.dumps(said).encode())
            with contextlib.suppress(raw.Gone, TimeoutError), listener.serve(connection, welcome) as peer:
                while not first:
                    answer(peer, peer.receive(raw.PATIENCE))

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.url
    finally:
        listener.close()
        thread.join()


def right(peer: raw.Peer, call: Received) -> None:
    peer.send(frame(REPLY, encode(3), call=call.call))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (struct.pack("<BBHI", LATER_KIND, 0, 0, 1), "a frame is of a kind that its receiver does not know"),
        (struct.pack("<BBHI", CALL, LATER_FLAG, 0, 1), "a frame has a flag that its receiver does not know"),
    ],
)
class TestFrames:
    """What a later version may send only if it has asked before: the connection ends, and both sides can say why."""

    def test_a_server_says_why_it_hangs_up(self, server: str, said: bytes, why: str) -> None:
        with raw.connect(server) as client:
            client.send(said)
            goodbye = client.receive()
            assert (goodbye.kind, goodbye.call) == (GOAWAY, 0)
            assert why in goodbye.rest.decode()
            assert client.hung_up()

    def test_a_client_says_why_its_calls_end(self, transport: str, runtime_dir: Path, said: bytes, why: str) -> None:
        with (
            later_server(transport, runtime_dir, lambda peer, call: bool(peer.send(said))) as url,
            nearcall.connect(url, Served, timeout=20.0) as client,
            pytest.raises(nearcall.Internal, match=why),
        ):
            client.add(1, 2)


def test_a_client_tells_what_the_server_said_when_it_hung_up(transport: str, runtime_dir: Path) -> None:
    def end(peer: raw.Peer, call: Received) -> None:
        peer.send(frame(GOAWAY, b"the client sent\x1b what is too new", call=0))
        raise raw.Gone

    with (
        later_server(transport, runtime_dir, end) as url,
        nearcall.connect(url, Served, timeout=20.0) as client,
        pytest.raises(nearcall.Internal, match=r"ended the connection: the client sent.* what is too new") as caught,
    ):
        client.add(1, 2)
    assert "\x1b" not in str(caught.value)


class TestHandshake:
    def test_a_hello_may_say_more(self, transport: str, server: str) -> None:
        if transport == "shm":
            pytest.skip("its hello comes with memory; the fields are read by the same code")
        said = {"version": "9.0.0", "limits": {"max_message": 1 << 20, "max_later": 1}, "later": [1]}
        with contextlib.closing(raw.dial(server)) as connection:
            connection.sendall(message(HELLO, json.dumps(said).encode()))
            assert b"description" in raw.read_message(connection, WELCOME)

    def test_a_welcome_may_say_more(self, transport: str, runtime_dir: Path) -> None:
        with later_server(transport, runtime_dir, right) as url, nearcall.connect(url, Served, timeout=20.0) as client:
            assert client.add(1, 2) == 3

    @pytest.mark.parametrize(("version", "older"), [(2, "server"), (0, "client")])
    def test_a_server_refuses_another_version_and_says_who_is_older(
        self, server: str, version: int, older: str
    ) -> None:
        with contextlib.closing(raw.dial(server)) as connection:
            connection.sendall(b"NCAL" + struct.pack("<BBHI", version, HELLO, 0, 2) + b"{}")
            said = raw.read_message(connection, REJECT).decode()
        assert f"the client speaks version {version} " in said
        assert said.endswith(f": update nearcall at the {older}")

    @pytest.mark.parametrize(("version", "older"), [(2, "client"), (0, "server")])
    def test_so_does_a_client(self, transport: str, runtime_dir: Path, version: int, older: str) -> None:
        first = b"NCAL" + struct.pack("<BBHI", version, WELCOME, 0, 2) + b"{}"
        with (
            later_server(transport, runtime_dir, right, first=first) as url,
            pytest.raises(nearcall.FailedPrecondition, match=f"version {version}: update nearcall at the {older}$"),
        ):
            nearcall.connect(url, Served, timeout=20.0)

    def test_a_rejection_is_read_whatever_its_version(self, transport: str, runtime_dir: Path) -> None:
        why = b"this server wants clients of nearcall 9"
        first = b"NCAL" + struct.pack("<BBHI", 2, REJECT, 0, len(why)) + why
        with (
            later_server(transport, runtime_dir, right, first=first) as url,
            pytest.raises(nearcall.RpcError, match=why.decode()),
        ):
            nearcall.connect(url, Served, timeout=20.0)


class TestFailures:
    def test_an_unknown_code_is_unknown(self, transport: str, runtime_dir: Path) -> None:
        def fail(peer: raw.Peer, call: Received) -> None:
            peer.send(frame(ERROR, struct.pack("<BI", 99, 5) + b"later", call=call.call))

        with (
            later_server(transport, runtime_dir, fail) as url,
            nearcall.connect(url, Served, timeout=20.0) as client,
            pytest.raises(nearcall.Unknown, match="later"),
        ):
            client.add(1, 2)


VALUES = [
    (LATER_EXTENSION, "an extension of type 9"),
    (Ext(7, encode(["complex", [1, 2]])), "a value of the type 'complex'"),
    ([{"a": Ext(4, encode([LATER_EXTENSION]))}], "an extension of type 9"),
]


class TestValues:
    """What stands for a type that this side does not know is refused, and never handed on as something else."""

    @pytest.mark.parametrize(("value", "what"), VALUES)
    def test_of_a_client(self, server: str, value: Any, what: str) -> None:
        with raw.connect(server) as client:
            client.send(frame(CALL, encode([value]), method=client.methods["same"]))
            said = client.receive()
            assert said.kind == ERROR
            assert said.rest[0] == nearcall.StatusCode.INVALID_ARGUMENT
            assert what in said.rest.decode(errors="replace")
            assert "newer" in said.rest.decode(errors="replace")
            client.send(frame(CALL, encode([1, 2]), method=client.methods["add"]))
            assert decode(client.receive().rest) == 3

    @pytest.mark.parametrize(("value", "what"), VALUES)
    def test_of_a_server(self, transport: str, runtime_dir: Path, value: Any, what: str) -> None:
        def reply(peer: raw.Peer, call: Received) -> None:
            peer.send(frame(REPLY, encode(value), call=call.call))

        with (
            later_server(transport, runtime_dir, reply) as url,
            nearcall.connect(url, Served, timeout=20.0) as client,
            pytest.raises(nearcall.Internal, match=f"{what}.* newer"),
        ):
            client.same(1)

    def test_extensions_of_users_are_their_own(self, server: str) -> None:
        with raw.connect(server) as client:
            client.send(frame(CALL, encode([Ext(32, b"x")]), method=client.methods["same"]))
            assert client.receive().rest.endswith(encode(Ext(32, b"x")))


CHANGES: dict[str, Callable[[dict[str, Any]], object]] = {
    "kind": lambda method: method.update(kind="batch"),
    "form": lambda method: method["returns"].update(form="columns"),
    "schema": lambda method: method["returns"].update(schema={"matrix": ["float", 2]}),
}


def described(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """A description in which the method ``two`` is as no method is today."""
    description = copy.deepcopy(describe([plan_of(Served)]))
    change(next(method for method in description["services"][0]["methods"] if method["name"] == "two"))
    return description


@nearcall.service(name="Served")
class Fewer:
    """A client that does not know the method."""

    def add(self, a: int, b: int) -> int:
        raise NotImplementedError


class TestDescriptions:
    """A method that is described as this version does not know costs nobody the others."""

    @pytest.mark.parametrize("change", CHANGES)
    @pytest.mark.parametrize("cls", [Fewer, None])
    def test_other_methods_work(self, runtime_dir: Path, change: str, cls: type | None) -> None:
        with (
            later_server("unix", runtime_dir, right, described(CHANGES[change])) as url,
            nearcall.connect(url, cls, timeout=20.0) as client,
        ):
            assert client.add(1, 2) == 3

    @pytest.mark.parametrize("change", CHANGES)
    def test_who_declares_the_method_is_told_what_differs(self, runtime_dir: Path, change: str) -> None:
        with (
            later_server("unix", runtime_dir, right, described(CHANGES[change])) as url,
            pytest.raises(nearcall.FailedPrecondition, match=r"Served\.two .*(batch|columns|matrix)"),
        ):
            nearcall.connect(url, Served, timeout=20.0)

    @pytest.mark.parametrize("change", ["kind", "form"])
    def test_without_a_class_its_calls_are_refused(self, runtime_dir: Path, change: str) -> None:
        with (
            later_server("unix", runtime_dir, right, described(CHANGES[change])) as url,
            nearcall.connect(url, timeout=20.0) as client,
            pytest.raises(nearcall.FailedPrecondition, match=r"Served\.two .*(batch|columns)"),
        ):
            client.two()

    def test_new_fields_and_lists_are_ignored(self, runtime_dir: Path) -> None:
        description = described(lambda method: method.update(later=[1]))
        description["later"] = [{"name": "Later"}]
        description["services"][0]["later"] = True
        with (
            later_server("unix", runtime_dir, right, description) as url,
            nearcall.connect(url, Served, timeout=20.0) as client,
        ):
            assert client.two() == 3

    def test_another_format_says_who_is_older(self, runtime_dir: Path) -> None:
        description = describe([plan_of(Served)]) | {"nearcall": 2}
        with (
            later_server("unix", runtime_dir, right, description) as url,
            pytest.raises(nearcall.FailedPrecondition, match=r"in format 2.* knows format 1: update the client"),
        ):
            nearcall.connect(url, Served, timeout=20.0)


class TestIntrospection:
    """What ``nearcall top`` asks is asked of servers of any age."""

    def test_a_client_leaves_out_what_a_newer_server_counts(self, runtime_dir: Path) -> None:
        description = describe([plan_of(Served)], plan_of(Introspection))
        types = description["introspection"]["types"]
        for name, more in {"Statistics": {"later": 5, "even_later": None}, "MethodStatistics": {"later": 5}}.items():
            fields = [{"name": field, "required": True, "type": "any"} for field in more]
            fields[0] |= {"required": False, "default": 0}
            types[name]["fields"] += fields
        known = MethodStatistics("Served.add", "unary", 1, {"OK": 1}, 0, 0, 2, 1, 900, [(1000, 1)])
        method = msgspec.to_builtins(known) | {"later": 7}
        statistics = Statistics(1, "9.0.0", 0.5, 2.0, 1, 1, 2, 1, 0, 1, [], 3, 4)
        told = msgspec.to_builtins(statistics) | {"methods": [method], "later": 5, "even_later": [1]}

        def reply(peer: raw.Peer, call: Received) -> None:
            peer.send(frame(REPLY, encode(told), call=call.call))

        with (
            later_server("unix", runtime_dir, reply, description) as url,
            nearcall.connect(url, Introspection, timeout=20.0) as server,
        ):
            assert server.read() == msgspec.structs.replace(statistics, methods=[known])

    def test_no_field_is_taken_away(self) -> None:
        """Older clients need these: the lists only grow."""
        needed = "pid version measurement seconds watchers connections threads idle_threads queued in_flight methods"
        assert Statistics.__struct_fields__[:13] == (*needed.split(), "memory", "max_memory")
        needed = "method kind started ended items_in items_out bytes_in bytes_out latency_sum latency"
        assert MethodStatistics.__struct_fields__[:10] == tuple(needed.split())
        assert len(Statistics.__struct_defaults__) >= len(Statistics.__struct_fields__) - 11
        assert len(MethodStatistics.__struct_defaults__) >= len(MethodStatistics.__struct_fields__) - 10

    def test_top_says_what_to_do_where_a_field_has_another_name(
        self, runtime_dir: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        description = describe([plan_of(Served)], plan_of(Introspection))
        fields = description["introspection"]["types"]["Statistics"]["fields"]
        next(field for field in fields if field["name"] == "threads")["name"] = "busy"
        with later_server("unix", runtime_dir, right, description) as url:
            assert cli.main(["top", "--once", url]) == 1
        assert "threads: int" in (said := capsys.readouterr().err)
        assert "use the nearcall top of the server's own version" in said
