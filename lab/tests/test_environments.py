"""Environments of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from nearcall_lab.cli import main
from nearcall_lab.contract import Mechanism
from nearcall_lab.environments import manage
from nearcall_lab.environments.manage import Definition, InstallFailed
from nearcall_lab.programs import build as programs
from nearcall_lab.registry import discover, missing


@pytest.fixture
def empty_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(manage, "home", lambda name: tmp_path / name)
    return tmp_path


def test_every_environment_that_a_mechanism_names_is_defined() -> None:
    named = {entrant.mechanism.environment for entrant in discover()} - {""}
    assert named == set(manage.definitions())
    assert all(definition.why and definition.requirements for definition in manage.definitions().values())


def test_a_mechanism_says_how_to_get_its_environment(empty_home: Path) -> None:
    mechanism = Mechanism("x", "x", "rpc", requires=("whatever",), environment="grpc-framework")
    assert missing(mechanism) == "in an environment of its own: nearcall-lab install grpc-framework"


def test_an_environment_that_is_not_defined(empty_home: Path) -> None:
    assert "no environment is called 'x'" in missing(Mechanism("x", "x", "rpc", environment="x"))


def test_what_cannot_be_installed_is_not_taken_for_installed(
    empty_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = Definition("for a test", ("./no-such-directory",))
    monkeypatch.setattr(manage, "definitions", lambda: {"broken": broken})
    monkeypatch.setattr(programs, "LANGUAGES", {})
    with pytest.raises(InstallFailed, match="no-such-directory"):
        manage.install("broken")
    assert manage.python_of("broken") is None
    assert main(["install"]) == 1
    assert "broken: not installed: " in capsys.readouterr().out


def test_an_environment_of_a_lab_that_was_elsewhere_is_not_taken_for_installed(empty_home: Path) -> None:
    packages = empty_home / "grpc-framework" / "lib" / "python3.13" / "site-packages"
    packages.mkdir(parents=True)
    link = packages / "nearcall_lab.pth"
    link.write_text("/somewhere/else\n")
    assert manage.python_of("grpc-framework") is None
    link.write_text(f"{Path(manage.__file__).parents[2]}\n")
    assert manage.python_of("grpc-framework") == empty_home / "grpc-framework" / "bin" / "python"


def test_the_command_lists_and_refuses(empty_home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["install", "--list"]) == 0
    assert "grpc-framework: it needs Protobuf below 7" in capsys.readouterr().out
    assert main(["install", "grpc-framewrok"]) == 2
    said = capsys.readouterr()
    assert 'did you mean "grpc-framework"' in said.out + said.err
