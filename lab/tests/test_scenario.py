"""Scenario files: what they expand to, and what is said of wrong ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from made_up import ENTRANTS, scenario
from nearcall_lab.contract import Mechanism
from nearcall_lab.registry import Entrant, discover
from nearcall_lab.scenario.load import ScenarioError, load, parse, preset_titles, presets

EVERYTHING = Mechanism(
    *("everything", "Everything", "rpc"), operations=("echo", "quote", "wait", "count", "send"), concurrent_calls=True
)
ON_A_LOOP = Mechanism("loop", "Loop", "rpc", style="asyncio", concurrent_calls=True)


@pytest.mark.parametrize("name", presets())
def test_every_preset_is_right_and_gives_a_capable_mechanism_something_to_do(name: str) -> None:
    able = [Entrant(EVERYTHING, "made_up"), Entrant(ON_A_LOOP, "made_up")]
    found = load(name, [*discover(), *able])
    assert found.title == preset_titles()[name]
    if name not in ("floor", "scale", "payloads", "tls"):  # these name who takes part
        assert any(not p.problem for p in found.planned if p.entrant in able)
    digests = [p.cell.digest() for p in found.planned]
    assert len(set(digests)) == len(digests)


def test_the_presets_that_are_promised_are_there() -> None:
    promised = "quick demo ping-pong saturation pipelined open-loop burst one-way streams connect sizes aio"
    assert set(promised.split()) <= set(presets())


def test_lists_multiply_and_the_run_is_inherited() -> None:
    found = scenario("""
title = "x"
[run]
seconds = 2
seed = 7
placement = "same"
[[cells]]
mechanisms = ["fast", "slow"]
size = [15, "1.5 KB"]
connections = [1, 4]
[[cells]]
mechanisms = "fast"
operation = "send"
size = 20
rate = 100
placement = "free"
seconds = 1
""")
    cells = [planned.cell for planned in found.planned]
    assert len(cells) == 2 * 2 * 2 + 1
    assert {(c.mechanism, c.work.size, c.mode.connections) for c in cells[:8]} == {
        (m, s, n) for m in ("fast", "slow") for s in (15, 1500) for n in (1, 4)
    }
    assert all(c.mode.seconds == 2 and c.placement == "same" and c.seed == 7 for c in cells[:8])
    assert (cells[8].mode.kind, cells[8].mode.rate, cells[8].placement, cells[8].mode.seconds) == (
        *("one-way", 100, "free", 1),
    )


def test_what_a_glob_meets_and_cannot_run_is_a_row_with_a_reason() -> None:
    found = scenario('title = "x"\n[[cells]]\nmechanisms = ["*"]\nsize = 1\noutstanding = 8')
    problems = {p.entrant.mechanism.name: p.problem for p in found.planned}
    assert problems["fast"] == ""
    assert "one call at a time" in problems["slow"]
    assert "one call at a time" in problems["absent"]


def test_what_is_missing_is_a_row_with_a_reason_even_if_it_is_named() -> None:
    found = scenario('title = "x"\n[[cells]]\nmechanisms = ["absent"]\nsize = 1')
    assert [p.problem for p in found.planned] == ["not installed: no_such_peer"]


def test_more_connections_than_descriptors_are_a_row_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nearcall_lab.descriptors.allowed", lambda: 1_024)
    found = scenario(
        'title = "x"\n[[cells]]\nmechanisms = ["fast"]\nsize = 15\ncallers = 8\nconnections = [100, 10_000]'
    )
    enough, too_many = found.planned
    assert not enough.problem
    assert too_many.problem == "needs 10200 open descriptors, and 1024 are allowed: ulimit -Hn 10200, as root"
    assert too_many.cell.title() == "15 B echo, 10000 connections, 8 callers"
    assert (enough.cell.mode.slots, too_many.cell.mode.slots) == (8, 8)


def test_mechanisms_can_be_left_out_and_chosen_by_style() -> None:
    text = 'title = "x"\n[[cells]]\nmechanisms = ["*"]\nexclude = ["s*", "absent"]\nsize = 1\n'
    assert [p.cell.mechanism for p in scenario(text).planned] == ["fast", "on-a-loop"]
    assert [p.cell.mechanism for p in scenario(text + 'style = "asyncio"').planned] == ["on-a-loop"]


HEAD = 'title = "x"\n[[cells]]\nmechanisms = ["fast"]\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = x\n", "x.toml: not TOML: Invalid value .at line 1, column 9"),
        ("", "x.toml, line 1: title is missing; it takes a text"),
        ('title = "x"', r"x.toml, line 1: there is no \[\[cells\]\] table"),
        ('titel = "x"', 'line 1: unknown key "titel"; did you mean "title"\\?; known are title, baseline, run, cells'),
        ("title = 3", "line 1: title is 3; it takes a text"),
        ('title = "x"\nbaseline = "fats"', 'line 2: baseline names no mechanism "fats"; did you mean "fast"\\?'),
        ('title = "x"\ncells = 3', r"line 2: cells must be written as a table, \[\[cells\]\]"),
        ('title = "x"\n[run]\nlaunches = 0', r"\[run\], line 3: launches is 0; it takes a whole number of at least 1"),
        ('title = "x"\n[run]\n\norder = "abab"', r'line 4: order is "abab"; did you mean "abba"\?; it takes one of'),
        ('title = "x"\n[run]\nseconds = true', "line 3: seconds is true; it takes a number above 0"),
        (
            'title = "x"\n[[cells]]\nsize = 1',
            r"\[\[cells\]\] 1, line 2: mechanisms is missing; it takes a list of names",
        ),
        (
            'title = "x"\n[[cells]]\nmechanisms = ["fsat"]\nsize = 1',
            'line 3: .*"fsat" matches no mechanism; did you mean "fast"',
        ),
        ('title = "x"\n[[cells]]\nmechanisms = ["f*"]\nexclude = ["fast"]\nsize = 1', "line 4: exclude leaves none"),
        (HEAD + "sise = 1", r'\[\[cells\]\] 1, line 4: unknown key "sise"; did you mean "size"\?'),
        (HEAD + 'size = "1 Kb"', 'line 4: size is "1 Kb"; it takes bytes as a whole number'),
        (HEAD + "size = []", "line 4: size is an empty list"),
        (HEAD + "size = [1, 1]", "line 4: size names a value twice"),
        (HEAD + 'size = 1\nmode = "opne"', 'line 5: mode is "opne"; did you mean "open"'),
        (HEAD, r"line 2: size is missing; operation \"echo\" in mode \"closed\" needs it"),
        (HEAD + "size = 1\nrate = 5", r'line 5: rate means nothing in mode "closed"; it belongs to "open", "one-way"'),
        (HEAD + 'size = 1\nmode = "open"', "line 2: rate is missing"),
        (HEAD + 'operation = ["echo", "quote"]\nsize = 1', 'line 5: size means nothing to operation "quote"'),
        (HEAD + 'operation = "send"\nsize = 20\nmode = "closed"', 'line 6: mode "closed" cannot run operation "send"'),
        (HEAD + 'operation = "send"\nsize = 8', "line 5: size is 8; one-way messages carry number and time, 16 bytes"),
        (HEAD + 'size = 1\nmode = "burst"\ncalls = 9', "line 2: a burst over one connection with one call outstanding"),
        (HEAD + "size = 1\nclient_processes = 2", "line 5: client_processes is 2 for 1 connection"),
        (HEAD + "size = 1\ncallers = 2\noutstanding = 2", "line 6: outstanding means nothing with callers"),
        (HEAD + 'size = 1\nmode = "burst"\ncalls = 9\ncallers = 2', 'line 7: callers means nothing in mode "burst"'),
        (
            HEAD + "size = 1\ncallers = 2\nconnections = 8\nclient_processes = 4",
            "line 5: callers is 2 for 4 client processes",
        ),
        (HEAD + 'operation = "send"\nsize = 20\narrivals = "fixed"', "line 6: arrivals means nothing without rate"),
        (HEAD + 'mode = "mixed"\nsizes = [1]\nsize = 1', 'line 6: size means nothing to mode "mixed"'),
        (
            HEAD + 'size = 1\n[[cells]]\nmechanisms = ["*"]\nsize = [2, 1]',
            r"\[\[cells\]\] 2, line 6: fast \(1 B echo\) is already in \[\[cells\]\] 1, line 3",
        ),
        (
            'title = "x"\n[run]\ntrack = "raw"\n[[cells]]\nmechanisms = ["fast"]\noperation = "quote"',
            'line 6: operation "quote" is not of the track "raw"',
        ),
        (
            'title = "x"\n[[cells]]\nmechanisms = ["slow"]\nsize = 1\noutstanding = 2',
            "line 5: slow takes one call at a time",
        ),
        ('title = "x"\n[[cells]]\nmechanisms = ["slow"]\noperation = "count"\nitems = 2', "line 4: slow has no count"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(text: str, said: str) -> None:
    with pytest.raises(ScenarioError, match=said) as caught:
        parse("x.toml", text, ENTRANTS)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match='no scenario "quik"; did you mean "quick"'):
        load("quik", ENTRANTS)
    with pytest.raises(ScenarioError, match="cannot be read: No such file"):
        load(str(tmp_path / "none.toml"), ENTRANTS)
    (tmp_path / "latin.toml").write_bytes(b'title = "\xe9"')
    with pytest.raises(ScenarioError, match="not a text in UTF-8"):
        load(str(tmp_path / "latin.toml"), ENTRANTS)


def test_only() -> None:
    found = scenario()
    assert [p.cell.mechanism for p in found.only(["f*"]).planned] == ["fast"]
    with pytest.raises(ScenarioError, match=r'"fats" matches none of its mechanisms; did you mean "fast"'):
        found.only(["fats"])
