"""What passed `check` is remembered for as long as nothing of it changes, and `run` says what has not."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import msgspec
import pytest

from nearcall_lab import checked
from nearcall_lab.cli import main
from nearcall_lab.registry import PROGRAMS, at, discover
from nearcall_lab.results.store import read

HERE = Path(__file__).parent


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return Path(shutil.copy(HERE / "liars.py", tmp_path / "honest_or_not.py"))


def test_a_pass_holds_until_the_source_or_the_version_changes(file: Path) -> None:
    entrant = at(str(file))[0]
    assert not checked.has_passed(entrant)
    checked.remember(entrant, True)
    assert checked.has_passed(entrant)
    assert not checked.has_passed(dataclasses.replace(entrant, version="2"))
    assert not checked.has_passed(at(str(file))[1]), "another mechanism of the same file"
    file.write_text(file.read_text() + "\n# changed\n")
    assert not checked.has_passed(entrant)


def test_a_later_failure_takes_the_pass_away(file: Path) -> None:
    entrant = at(str(file))[0]
    checked.remember(entrant, True)
    checked.remember(entrant, False)
    assert not checked.has_passed(entrant)


def test_a_program_is_known_by_all_its_files(tmp_path: Path) -> None:
    directory = Path(shutil.copytree(HERE / "foreign_echo", tmp_path / "program"))
    [entrant] = at(str(directory))
    before = checked.digest(entrant)
    (directory / "library.so").write_bytes(b"new")
    assert checked.digest(entrant) != before


def test_what_an_adapter_imports_from_its_package_belongs_to_it() -> None:
    rows = {entrant.mechanism.name: entrant for entrant in discover()}
    names = {path.name for path in checked._sources(rows["pyro5"])}
    assert {"pyro5.py", "pyro.py"} <= names
    assert "grpcio.py" not in names


SHIPPED = checked.SHIPPED


def test_what_ships_has_passed_as_it_is() -> None:
    """After a change in an adapter, in what it imports from the lab or in the promises: ``make check-adapters``."""
    kept = msgspec.json.decode(SHIPPED.read_bytes(), type=dict[str, str])
    own = {entrant.mechanism.name: entrant for entrant in discover() if checked.ships(entrant)}
    assert kept
    assert set(kept) <= set(own)
    changed = [name for name in kept if checked.source_digest(own[name]) != kept[name]]
    assert not changed, "they have changed since they passed: make check-adapters"


def test_what_ships_counts_until_it_changes_or_fails_here(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = next(entrant for entrant in discover() if entrant.mechanism.name == "raw-pipe")
    assert not checked.has_passed(pipe)
    checked.ship(pipe, True)
    other_version = dataclasses.replace(pipe, version="2")
    assert checked.has_passed(pipe)
    assert checked.has_passed(other_version)
    checked.remember(pipe, False)
    assert not checked.has_passed(pipe), "it failed here"
    assert checked.has_passed(other_version)
    mechanism = dataclasses.replace(pipe.mechanism, settings="others")
    assert not checked.has_passed(dataclasses.replace(pipe, mechanism=mechanism))
    monkeypatch.setattr(checked, "_PROMISES", HERE / "liars.py")
    assert not checked.has_passed(other_version), "other promises"
    checked.ship(pipe, False)
    assert not checked.has_passed(other_version)


def test_only_the_whole_check_ships(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "raw-pipe", "--quick", "--ship"]) == 2
    said = capsys.readouterr()
    assert "--quick leaves out a part of it" in said.out + said.err
    assert not checked.SHIPPED.exists()


def test_what_an_adapter_imports_from_the_lab_belongs_to_it() -> None:
    queue = next(entrant for entrant in discover() if entrant.mechanism.name == "multiprocessing")
    assert {"contract.py", "workloads.py"} <= {path.name for path in checked._sources(queue)}


def test_a_broken_record_is_none(file: Path) -> None:
    checked.FILE.parent.mkdir(parents=True, exist_ok=True)
    checked.FILE.write_text("{")
    assert checked.unchecked(at(str(file))[:1]) == ["honest"]


def test_run_names_what_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(PROGRAMS, str(HERE / "foreign_echo"))
    checked.remember(next(entrant for entrant in discover() if entrant.mechanism.name == "foreign-echo"), True)
    scenario = tmp_path / "two.toml"
    scenario.write_text(
        'title = "two"\n[run]\nlaunches = 1\nseconds = 0.05\nwarmup_s = 0.0\n'
        '[[cells]]\nmechanisms = ["foreign-echo", "raw-pipe"]\nsize = 15\n'
    )
    assert main(["run", str(scenario), "--out", str(tmp_path / "run")]) == 0
    shown = capsys.readouterr()
    assert "not checked as they are now: raw-pipe" in " ".join((shown.out + shown.err).split())
    assert {cell.cell.mechanism: cell.checked for cell in read(tmp_path / "run").cells} == {
        "foreign-echo": True,
        "raw-pipe": False,
    }
