"""Which mechanism for what: facts, needs, and the numbers of stored runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcall_lab.choice import show
from nearcall_lab.choice.choose import choose
from nearcall_lab.choice.facts import all_facts, facts_of
from nearcall_lab.choice.needs import Needs, against
from nearcall_lab.cli import main
from nearcall_lab.registry import Entrant, discover
from nearcall_lab.results.model import CellResult
from nearcall_lab.results.store import Recorded, read
from nearcall_lab.scenario.cell import Mode, Work
from whole_run import Maker, write

ENTRANTS = {entrant.mechanism.name: entrant for entrant in discover()}
PAGE = Path(__file__).parents[1] / "docs" / "choosing.md"


def why(needs: Needs, name: str) -> list[str]:
    facts = facts_of(ENTRANTS[name])
    assert facts is not None
    return against(needs, ENTRANTS[name].mechanism, facts)


def test_every_adapter_of_the_lab_has_its_facts_and_no_others_are_there() -> None:
    used = {facts_of(entrant) for entrant in ENTRANTS.values()}
    assert None not in used
    assert used == set(all_facts().values())


def test_the_page_has_the_facts() -> None:
    assert PAGE.read_text(encoding="utf-8").endswith(show.page()), "nearcall-lab choose --facts prints them"


def test_what_does_not_do_says_why() -> None:
    assert why(Needs(), "nearcall-shm") == []
    assert why(Needs(other_host=True), "nearcall-shm") == ["goes by shared memory, which stays on one machine"]
    assert why(Needs(other_host=True), "nearcall-tcp") == []
    assert why(Needs(languages=("go",)), "rpyc") == ["is not for go"]
    assert "grpc://" in why(Needs(languages=("go",)), "nearcall-unix")[0]
    assert why(Needs(languages=("go",)), "nearcall-grpc") == []
    assert why(Needs(streaming=True), "thrift") == ["has no streams"]
    assert why(Needs(fan_out=True), "grpcio-tcp") == ["sends to one"]
    assert why(Needs(fan_out=True, keeps=True), "pyzmq-pubsub") == ["keeps no messages for who is not there"]
    assert why(Needs(keeps=True), "nats") == []
    assert why(Needs(keeps=True), "nearcall-route-nats") == []
    [reason] = why(Needs(keeps=True), "nearcall-route-tcp")
    assert reason.startswith("keeps no messages for who is not there at this URL, but by a NATS server with JetStream")
    assert why(Needs(keeps=True), "nearcall-nats") == ["keeps no messages for who is not there"]
    assert why(Needs(languages=("c",)), "nearcall-route-rmr") == []
    assert why(Needs(languages=("c",)), "nearcall-route-nats") == ["is not for c at this URL"]
    assert why(Needs(languages=("any",)), "http-uvicorn") == []
    assert why(Needs(languages=("any",)), "rpyc") == ["is not for other languages"]
    assert why(Needs(system="macos"), "nearcall-tcp") == ["does not run on macos"]
    assert why(Needs(at_once=8), "multiprocessing") == ["takes one call at a time on a connection"]
    assert why(Needs(security="encrypted"), "xmlrpc") == [], "not on one machine"
    assert why(Needs(security="encrypted", other_host=True), "xmlrpc") == ["has no encryption of its own"]
    assert why(Needs(security="strangers"), "rpyc")[0].startswith("is not for strangers: ")
    assert why(Needs(style="asyncio"), "grpcio-tcp") == ["is called from threads"]
    assert why(Needs(payload="array"), "array-pyzmq") == []
    assert why(Needs(payload="frame"), "array-pyzmq") == ["is not measured with frames"]
    assert why(Needs(), "frame-nearcall-shm") == ["is not measured with bytes"]


def stored(tmp_path: Path, cells: list[CellResult]) -> Recorded:
    for cell in cells:
        cell.digest = cell.cell.digest()
    return read(write(tmp_path / "run", cells))


def cell(name: str, like: str, work: Work, mode: Mode) -> CellResult:
    """A cell of a real mechanism with made-up numbers."""
    from msgspec.structs import replace

    made = Maker().cell(like, work, mode)
    made.cell, made.label = replace(made.cell, mechanism=name), ENTRANTS[name].mechanism.label
    return made


def test_the_cell_that_comes_closest_is_shown_and_the_fastest_comes_first(tmp_path: Path) -> None:
    found = stored(
        tmp_path,
        [
            cell("grpcio-tcp", "web", Work(size=1_000), Mode()),
            cell("raw-unix", "quick-shm", Work(size=1_000), Mode()),
            cell("raw-unix", "quick-shm", Work(size=100_000), Mode()),
            cell("nearcall-shm", "socket", Work(size=1_000), Mode()),
            cell("nearcall-shm", "socket", Work(size=1_000), Mode(connections=8)),
        ],
    )
    choice = choose(Needs(size=2_000), list(ENTRANTS.values()), [found])
    shown = show.rows([candidate for candidate in choice.candidates if candidate.number is not None])
    assert [(row[0], row[5]) for row in shown] == [
        ("raw socket, UDS", "1 KB echo"),
        ("nearcall shm", "1 KB echo"),
        ("grpcio, TCP", "1 KB echo"),
    ]
    assert "raw socket, UDS is ahead of nearcall here." in list(show.remarks(choice, Needs()))
    assert choice.left_out["nearcall inproc"] == ["stays in one process"]
    fast = choose(Needs(rate=1e9), list(ENTRANTS.values()), [found])
    assert {candidate.entrant.mechanism.name for candidate in fast.too_slow} == {
        "grpcio-tcp",
        "raw-unix",
        "nearcall-shm",
    }
    far = choose(Needs(size=100_000_000), list(ENTRANTS.values()), [found])
    assert all(candidate.number is None for candidate in far.candidates), "a kilobyte says nothing of 100 MB"


def test_where_nearcall_is_not_the_answer_is_said() -> None:
    needs = Needs(fan_out=True, keeps=True, languages=("go",))
    choice = choose(needs, list(ENTRANTS.values()), [])
    assert [candidate.facts.name for candidate in choice.candidates] == ["NATS"]
    remarks = list(show.remarks(choice, needs))
    assert "nearcall is not the answer: it keeps no messages for who is not there." in remarks
    assert remarks[-1] == "No stored run has such work: nearcall-lab run one-way measures it."


def test_messages_that_are_kept_are_a_broker_s_with_or_without_nearcall() -> None:
    needs = Needs(fan_out=True, keeps=True)
    choice = choose(needs, list(ENTRANTS.values()), [])
    assert {candidate.entrant.mechanism.name for candidate in choice.candidates} == {"nats", "nearcall-route-nats"}
    remarks = list(show.remarks(choice, needs))
    assert any(remark.startswith("nearcall.route keeps messages by a NATS server with JetStream") for remark in remarks)
    assert not any("nearcall is not the answer" in remark for remark in remarks)


def test_an_adapter_of_somebody_else_s_has_no_facts() -> None:
    other = Entrant(ENTRANTS["rpyc"].mechanism, "their_package.rpyc")
    assert facts_of(other) is None
    choice = choose(Needs(), [other], [])
    assert choice.unknown == ["RPyC"]
    assert show.left_out(choice) == [("come from elsewhere, and the lab has no facts of them", "RPyC")]


def test_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["choose", "--languages", "Go", "--other-host", "--security", "encrypted", "--size", "10 KB"]) == 0
    said = capsys.readouterr().out
    assert "Candidates that no stored run has measured" in said
    assert "nearcall grpc" in said
    assert main(["choose", "--system", "windows", "--keeps", "--streaming"]) == 1
    assert "Nothing that the lab knows does all of this" in capsys.readouterr().out
    assert main(["choose", "--other-host", "--languages", "any"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert "  is not for other languages:" in shown, "a reason, and below it those that it concerns"
    assert "RPyC, TCP · RPyC, TCP, tuned" in shown[shown.index("  is not for other languages:") + 1]
    assert main(["choose", "--languages", "go,Klingon"]) == 2
    said = capsys.readouterr().err
    assert "the lab knows nothing of 'Klingon', but of c, c#, c++, go, java," in said
    assert "'any' is another one that has an HTTP client" in said
    assert main(["choose", "--size", "much"]) == 2
    assert "--size: size is" in capsys.readouterr().err
