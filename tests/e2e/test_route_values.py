"""Typed messages where no handler says their type; tables that come in pieces; a manager that comes back."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import cli, route

from .test_route import PATIENCE, nodes, noting, until


@route.message(4000)
@dataclass
class Question:
    number: int


@route.message(4001)
@dataclass
class Answer:
    text: str


@route.message(4002)
@dataclass
class Left:
    number: int


@route.message(4002)
@dataclass
class Right:
    number: int


def test_a_bound_type_has_values_wherever_its_messages_come(key: str) -> None:
    server, client, inbox = (route.Node(f"shm://v{key}{name}") for name in ("server", "client", "inbox"))

    @server.on(4000)
    def answer(message: route.Message[Question]) -> None:
        message.reply(Answer(f"number {message.value.number}"))

    with nodes(server, client, inbox):
        reply = client.call(Question(7), to=server.urls[0], timeout=PATIENCE)
        assert (reply.type, reply.value) == (4001, Answer("number 7"))
        client.send(Question(8), to=inbox.urls[0])
        client.send(4002, b"\x91\x01", to=inbox.urls[0])
        client.send(4003, to=inbox.urls[0])
        received = [inbox.receive(PATIENCE) for _ in range(3)]
        assert None not in received
        typed, ambiguous, untyped = received
        assert typed is not None
        assert typed.value == Question(8)
        with pytest.raises(TypeError, match=r"messages of type 4002 may be .*Left.*, .*Right.*: name the class"):
            _ = ambiguous.value  # type: ignore[union-attr]
        with pytest.raises(TypeError, match="no Python type is bound to messages of type 4003"):
            _ = untyped.value  # type: ignore[union-attr]
        with pytest.raises(ValueError, match="a message type has 32 bits"):
            client.send(2**35, to=inbox.urls[0])
        with pytest.raises(nearcall.InvalidArgument, match="a subscription has 32 bits"):
            client.send(1, subscription=2**40, to=inbox.urls[0])


def test_a_class_that_cannot_be_a_payload_is_named() -> None:
    numpy = pytest.importorskip("numpy")

    @dataclass
    class Picture:
        pixels: numpy.ndarray  # type: ignore[name-defined]

    Picture.__annotations__["pixels"] = numpy.ndarray
    with pytest.raises(TypeError, match="Picture cannot be the payload of a message: arrays in it"):
        route.message(4004)(Picture)


def test_a_table_in_a_file_is_not_taken_half_written(key: str, tmp_path: Path, caplog: Any) -> None:
    file = tmp_path / "routes.toml"
    whole = f'id = "{{}}"\n[[route]]\ntype = 1\nto = "shm://v{key}x"\n'
    file.write_text(whole.format("first"))
    with route.Node(f"shm://v{key}sender", table=file) as sender:
        for number in range(3):
            file.write_text("")
            until(lambda: "the file is empty" in caplog.text, "the refusal")
            caplog.clear()
            table = sender.table()
            assert table is not None
            assert "mse" in table.text
            name = f"next-{number}"
            file.write_text(whole.format(name))
            until(lambda name=name: sender.status().table == name, "the new table")  # type: ignore[misc]


def test_a_manager_that_comes_back_makes_no_table_of_a_part(key: str) -> None:
    at = f"shm://v{key}routes"
    tables = list[str]()

    class Noting(route.Node):
        def install(self, text: str, *, toml: bool = False) -> None:
            tables.append(text)
            super().install(text, toml=toml)

    workers = [noting(f"shm://v{key}-{number}", 1, manager=at, group="w")[0] for number in range(5)]
    with ExitStack() as stack:
        first = stack.enter_context(nearcall.Server(route.manager(), at))
        stack.enter_context(Noting(f"shm://v{key}sender", manager=at))
        for worker in workers:
            stack.enter_context(worker)
        until(lambda: tables and tables[-1].count(f"v{key}-") == 5, "the whole table")
        ids = {text.partition("\n")[0] for text in tables}
        first.stop()
        tables.clear()
        stack.enter_context(nearcall.Server(route.manager(), at))
        until(lambda: tables, "the table of the second manager")
        assert tables[0].count(f"v{key}-") == 5
        assert tables[0].partition("\n")[0] not in ids


def test_commands_say_what_is_wrong(key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, data, said in (
        ("latin.rt", b"# one\n# caf\xe9\n", "line 2: the byte 0xe9 is no UTF-8"),
        ("empty.toml", b"\n", "the file is empty"),
    ):
        file = tmp_path / name
        file.write_bytes(data)
        assert cli.main(["route", "check", str(file)]) == 1
        assert f"{file}: {said}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["route", "send", f"shm://v{key}", str(2**32), "y"])
    assert f"{2**32} does not fit" in capsys.readouterr().err
    with route.Node(f"shm://v{key}node") as node:
        assert cli.main(["route", "status", f"shm://v{key}nobody", node.urls[0], "--json"]) == 1
        printed = capsys.readouterr()
        assert f"shm://v{key}nobody: " in printed.err
        assert printed.out.startswith(f'{{"name":"v{key}node",')


def test_a_node_is_only_where_nodes_can_be() -> None:
    for url in ("grpc://127.0.0.1:1", "http://127.0.0.1:1"):
        with pytest.raises(nearcall.InvalidArgument, match="a node takes messages at shm://"):
            route.Node(url)


def test_who_cannot_be_reached_is_not_called_slow(key: str) -> None:
    with route.Node(f"shm://v{key}", queue=100, when_full="error") as node:
        node.send(1, bytes(100), to=f"shm://v{key}nobody")
        until(lambda: node.status().endpoints[0].failure, "an attempt")
        with pytest.raises(nearcall.ResourceExhausted, match="is full, because nobody takes them: "):
            node.send(1, bytes(100), to=f"shm://v{key}nobody")
        node.close(grace=0)  # nobody will take what is queued
