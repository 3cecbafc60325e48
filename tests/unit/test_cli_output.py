"""What commands print is UTF-8, whatever the locale says; and commands that another program has are known."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall.cli import parser

MODULE = '''
import nearcall


@nearcall.service
class Cafe:
    """Un café."""

    def order(self, was: str = "crème") -> str:
        """Bestellt, mit Grüßen."""
        return was
'''


@nearcall.service
class Cafe:
    """Un café."""

    def order(self, was: str) -> str:
        return was


@pytest.fixture(
    params=[{"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}, {"PYTHONIOENCODING": "latin-1"}],
    ids=["C", "latin-1"],
)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., str]:
    """Runs a command in a process with that locale; gives what it prints."""
    (tmp_path / "cafe.py").write_text(MODULE, encoding="utf-8")

    def call(*arguments: str, stdin: str = "") -> str:
        done = subprocess.run(
            [sys.executable, "-m", "nearcall", *arguments],
            cwd=tmp_path,
            env={**os.environ, **request.param},
            input=stdin.encode(),
            capture_output=True,
            timeout=50,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()

    return call


@pytest.fixture
def url() -> Iterator[str]:
    with nearcall.Server(Cafe(), "tcp://127.0.0.1:0") as server:
        yield server.urls[0]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("openapi", ["Un café.", "Bestellt, mit Grüßen.", '"default": "crème"']),
        ("proto", ["// Un café.", "// Bestellt, mit Grüßen."]),
        ("stub", ['"""Un café."""', '"""Bestellt, mit Grüßen."""']),
    ],
)
def test_documents_are_utf8(run: Any, command: str, words: list[str]) -> None:
    text = run(command, "cafe:Cafe")
    assert [each for each in words if each not in text] == []


def test_what_a_server_says_is_utf8(run: Any, url: str) -> None:
    assert "Cafe  # Un café." in run("list", url)
    assert run("call", url, "order", "-", stdin='{"was": "thé"}') == '"thé"\n'
    assert "Un café." in run("stub", url)


def test_commands_of_the_lab_are_known() -> None:
    command = pytest.importorskip("nearcall_lab.cli.command")
    command_line: Any = parser()
    (own,) = (action.choices for action in command_line._actions if isinstance(action.choices, dict))
    assert set(command_line.elsewhere) == {each.NAME for each in command.find_commands()} - own.keys()
