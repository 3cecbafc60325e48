"""``nearcall check``: what an update would break, and the exit status that pipelines read."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall.cli import main

OLD = """
import nearcall
from dataclasses import dataclass

@dataclass
class Point:
    x: int

@nearcall.service
class Shapes:
    def move(self, point: Point, by: int = 1) -> Point: ...
    def gone(self) -> None: ...

@nearcall.service
class Other:
    def method(self) -> None: ...

@nearcall.service(name="Shapes")
class Same:
    def move(self, point: Point, by: int = 1) -> Point: ...
    def gone(self) -> None: ...
"""
NEW = """
import nearcall
from dataclasses import dataclass

@dataclass
class Point:
    x: int
    y: int = 0

@nearcall.service
class Shapes:
    def move(self, point: Point, by: int = 2, quickly: bool = False) -> Point: ...
    def gone(self) -> None: ...
    def come(self) -> None: ...

@nearcall.service(name="Shapes")
class Broken:
    def move(self, point: Point, by: str) -> Point: ...
"""


@pytest.fixture(autouse=True)
def versions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("old.py").write_text(OLD, encoding="utf-8")
    Path("new.py").write_text(NEW, encoding="utf-8")


def test_equal_versions(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "old.py:Shapes", "old.py:Same"]) == 0
    assert capsys.readouterr().out == (
        "old client, new server:\n  nothing breaks\nnew client, old server:\n  nothing breaks\n"
    )


def test_what_is_new_does_not_count_as_broken(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "old.py:Shapes", "new.py:Shapes"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "old client, new server:",
        "  refuses what is new: the old Shapes.move returns Point but the new returns Point "
        "(y: no such field here, int there)",
        "new client, old server:",
        "  refuses what is new: the new Shapes.move(point: Point) but the old has point: Point "
        "(y: int here, no such field there)",
        "  refuses what is new: the new Shapes.move(quickly: bool) but the old has no parameter 'quickly': "
        "it is move(point: Point, by: int = ...) -> Point",
        "  refuses what is new: the old Shapes has no method 'come'",
    ]


def test_what_would_break(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "old.py:Shapes", "new.py:Broken", "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {"method": "Shapes.gone", "breaks": True, "text": "the new Shapes has no method 'gone'"} in found[
        "old client, new server"
    ]
    assert found["new client, old server"][1] == {
        "method": "Shapes.move",
        "breaks": True,
        "text": "the new Shapes.move(by: str) but the old has by: int",
    }
    # A downgrade is an update, too: the new client's field comes back from nowhere, but its method is missed.
    assert main(["check", "new.py:Shapes", "old.py:Shapes"]) == 1


def test_a_server_and_a_file_can_be_compared(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    @nearcall.service
    class Shapes:
        def gone(self) -> None: ...

    with nearcall.Server(Shapes(), "inproc://check-me"):
        assert main(["list", "inproc://check-me", "--json"]) == 0
        Path("saved.json").write_text(capsys.readouterr().out, encoding="utf-8")
        assert main(["check", "inproc://check-me", "saved.json"]) == 0
        assert main(["check", "inproc://check-me", "new.py:Shapes"]) == 0
        assert main(["check", "new.py:Shapes", "inproc://check-me"]) == 1


PASSING = """
import nearcall
from dataclasses import dataclass

@nearcall.service
class Listener:
    def said(self, text: str{listener}) -> None: ...
    {method}

@nearcall.service
class Seat:
    def say(self, text: str{seat}) -> None: ...

@dataclass
class Guest:
    name: str
    listeners: list[Listener]

@nearcall.service
class Room:
    def join(self, guest: Guest) -> Seat | None: ...
"""


def check_passing(
    old: dict[str, str], new: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> tuple[int, list[str]]:
    """The exit status, and the lines that were printed."""
    for name, parts in (("before.py", old), ("after.py", new)):
        Path(name).write_text(PASSING.format(**{"listener": "", "seat": "", "method": "", **parts}), encoding="utf-8")
    status = main(["check", "before.py:Room", "after.py:Room"])
    return status, capsys.readouterr().out.splitlines()


def test_objects_that_are_passed_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_passing({}, {}, capsys)[0] == 0
    assert check_passing({}, {"seat": ", loud: bool = False", "listener": ", who: str = ''"}, capsys)[0] == 0
    assert check_passing({}, {"seat": ", loud: bool"}, capsys) == (
        1,
        [
            "old client, new server:",
            "  breaks: the old Seat.say has no parameter 'loud' but the new requires loud: bool",
            "new client, old server:",
            "  breaks: the new Seat.say(loud: bool) but the old has no parameter 'loud': it is say(text: str) -> None",
        ],
    )


def test_objects_that_a_client_passes_are_called_by_the_server(capsys: pytest.CaptureFixture[str]) -> None:
    """What the server in use calls must stay; what only a new one calls was never right."""
    left = {"method": "def left(self) -> None: ..."}
    assert check_passing({}, left, capsys) == (
        0,
        [
            "old client, new server:",
            "  refuses what is new: the old Listener has no method 'left'",
            "new client, old server:",
            "  nothing breaks",
        ],
    )
    assert check_passing(left, {}, capsys) == (
        1,
        [
            "old client, new server:",
            "  nothing breaks",
            "new client, old server:",
            "  breaks: the new Listener has no method 'left'",
        ],
    )
    assert check_passing({}, {"listener": ", who: str"}, capsys) == (
        1,
        [
            "old client, new server:",
            "  breaks: the new Listener.said(who: str) but the old has no parameter 'who': it is said(text: str) -> "
            "None",
            "new client, old server:",
            "  breaks: the old Listener.said has no parameter 'who' but the new requires who: str",
        ],
    )


def test_a_saved_description_names_what_is_passed(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_passing({}, {"seat": ", loud: bool"}, capsys)[0] == 1
    assert main(["check", "before.py:Room", "before.py:Room"]) == 0
    room: Any = runpy.run_path("before.py")["Room"]
    with nearcall.Server(room(), "inproc://check-passing"):
        capsys.readouterr()
        assert main(["list", "inproc://check-passing", "--json"]) == 0
        Path("saved.json").write_text(capsys.readouterr().out, encoding="utf-8")
        assert main(["check", "saved.json", "before.py:Room"]) == 0
        assert main(["check", "saved.json", "after.py:Room"]) == 1


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("old.py:Shapes", "old.py:Other", "serves Shapes and old.py:Other serves Other: name two versions"),
        ("old.py:Shapes", "old.py:Point", "old.py:Point is not a service's class"),
        ("old.py:Shapes", "nothing.py:Shapes", "there is no file nothing.py"),
        ("old.py:Shapes", "old.py:Nothing", "old.py has no 'Nothing'"),
        ("old.py:Shapes", "nothing.json", "nothing.json cannot be read: No such file or directory"),
        ("old.py", "old.py:Shapes", "name the class, too: old.py:CLASS"),
        ("old.py:Shapes", "nonsense", "'nonsense' is not MODULE:CLASS"),
        ("old.py:Shapes", "shm://nobody-serves-this", "nobody has served it"),
    ],
)
def test_versions_that_cannot_be_compared(old: str, new: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", old, new]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
