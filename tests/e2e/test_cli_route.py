"""``nearcall route``, against nodes of this process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import cli, route

from .test_route import table_of, until

PATIENCE = 30.0


@contextmanager
def answering(key: str) -> Generator[route.Node, None, None]:
    node = route.Node(f"shm://c{key}node")

    @node.on(7)
    def answer(message: route.Message[Any]) -> None:
        message.reply(f"{message.payload.decode()} {message.subscription} {message.entity}".encode())

    with node:
        yield node


def test_tables_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    right, wrong = tmp_path / "right.rt", tmp_path / "wrong.toml"
    right.write_text(table_of("mse | 1 | -1 | shm://a,shm://b; shm://c", "rte | 2 | shm://a", name="mine"))
    wrong.write_text('[[route]]\ntype = 1\ntoo = "shm://a"\n')
    assert cli.main(["route", "check", str(right)]) == 0
    assert capsys.readouterr().out == f"{right}: table 'mine' is right: 2 entries for 3 endpoints\n"
    assert cli.main(["route", "check", "--print", str(right)]) == 0
    printed = capsys.readouterr().out
    right.write_text(printed)
    assert cli.main(["route", "check", "--print", str(right)]) == 0
    assert capsys.readouterr().out == printed
    assert cli.main(["route", "check", str(right), str(wrong)]) == 1
    assert f"{wrong}: line 3: " in capsys.readouterr().err


def test_a_node_is_asked_and_sent_to(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(key) as node:
        url = node.urls[0]
        assert cli.main(["route", "table", url]) == 1
        assert f"the node at {url} has no table in force" in capsys.readouterr().err
        node.install(table_of(f"rte | 7 | {url}", name="mine"))
        assert cli.main(["route", "table", url]) == 0
        assert "newrt|start|mine" in capsys.readouterr().out.replace(" ", "")
        command = ["route", "send", url, "7", "hello", "-s", "3", "-e", "cell"]
        assert cli.main([*command, "--call"]) == 0
        assert capsys.readouterr().out == "hello 3 cell\n"
        assert cli.main(command) == 0
        until(lambda: node.status().taken == 2, "the message")
        assert cli.main(["route", "status", url, url]) == 0
        said = capsys.readouterr().out
        assert said.count(f"at {url}: table 'mine'") == 2
        assert "2 taken, 0 waiting" in said
    assert cli.main(["route", "send", url, "7"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err


def test_a_manager_runs_until_it_is_told_to_end(key: str) -> None:
    at = f"shm://c{key}routes"
    command = [sys.executable, "-m", "nearcall", "route", "manager", at]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as manager:
        assert manager.stdout is not None
        assert manager.stdout.readline() == f"a route manager at {at}\n"
        with route.Node(f"shm://c{key}node", manager=at) as node:
            until(lambda: node.table() is not None, "the first table")
            with nearcall.connect(at, route.RouteManager) as client:
                assert [each.node.name for each in client.nodes()] == [node.name]
        manager.terminate()
        assert manager.wait(PATIENCE) == 0
