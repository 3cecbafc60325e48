"""Machines in scenario files: what is understood, and what is said of wrong ones."""

from __future__ import annotations

import pytest

from made_up import scenario
from nearcall_lab.registry import discover
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.host import Host, HostProblem, host_of
from nearcall_lab.scenario.load import ScenarioError, parse


def test_a_url_names_a_machine() -> None:
    assert host_of("ssh://box") == Host("box")
    assert host_of("ssh://me@Box.example:2222/") == Host("Box.example", "me", 2222)
    found = host_of("ssh://me@box?python=/opt/python3.12&address=10.0.0.2&directory=/var/tmp/lab")
    assert found == Host("box", "me", 0, "/opt/python3.12", "10.0.0.2", "/var/tmp/lab")
    assert str(found) == "ssh://me@box"


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("box", "is not reached by ssh; it is"),
        ("tcp://box", "is not reached by ssh"),
        ("ssh://", "has no name of a machine"),
        ("ssh://-oProxyCommand=x", "has no name of a machine"),
        ("ssh://-l@box", "has no name of a machine"),
        ("ssh://a b", "has no name of a machine"),
        ("ssh://box:99999", "is no URL: Port out of range"),
        ("ssh://me:secret@box", "has a password in it"),
        ("ssh://box/home", "has a path, which means nothing here"),
        ("ssh://box?pyhton=x", "has the option 'pyhton'; there are python, address, directory"),
        ("ssh://box?python=", "has an option python that is empty"),
        ("ssh://box?python=-c", "begins with a hyphen"),
        ("ssh://box?address=box", "has the address 'box', which is no IPv4 address"),
    ],
)
def test_what_is_said_of_a_wrong_one(url: str, expected: str) -> None:
    with pytest.raises(HostProblem) as problem:
        host_of(url)
    assert expected in str(problem.value)
    with pytest.raises(ScenarioError) as error:
        scenario(f'title = "x"\n[[cells]]\nmechanisms = ["fast"]\nsize = 1\nhosts = ["local", "{url}"]\n')
    assert ", line 5: hosts: " in str(error.value) or "line 5" in str(error.value)
    assert expected in str(error.value)


def _parsed(mechanisms: str, more: str = "") -> list[tuple[str, str, str]]:
    text = f'title = "x"\n[[cells]]\nmechanisms = {mechanisms}\nsize = 1\nhosts = ["local", "ssh://box"]\n{more}'
    found = parse("x.toml", text, discover())
    return [(p.cell.mechanism, p.cell.host, p.problem) for p in found.planned]


def test_each_machine_is_a_cell() -> None:
    assert _parsed('["raw-tcp"]') == [("raw-tcp", "", ""), ("raw-tcp", "ssh://box", "")]


def test_what_does_not_reach_another_machine() -> None:
    problems = {name: problem for name, host, problem in _parsed('["raw-*", "noo*"]') if host}
    assert problems["raw-tcp"] == ""
    assert problems["raw-unix"] == "goes by UDS, which does not reach another machine"
    assert problems["noop"] == "has its server in the client's process"
    with pytest.raises(ScenarioError, match="line 5: raw-unix goes by UDS, which does not reach another machine"):
        _parsed('["raw-unix"]')
    with pytest.raises(ScenarioError, match="hosts means nothing where server and client are in one process"):
        _parsed('["raw-tcp"]', "same_process = true")


def test_cells_of_this_machine_keep_their_digest() -> None:
    here = Cell("raw-tcp", Work("echo", size=100), Mode())
    assert b"host" not in here.canonical()
    assert here.digest() == "a1e0f4ecfc60ca93"
    assert Cell("raw-tcp", Work("echo", size=100), Mode(), host="ssh://box").digest() != here.digest()
    assert Cell("raw-tcp", Work("echo", size=100), Mode(), host="ssh://box?python=p").title() == (
        "100 B echo, server at ssh://box"
    )
