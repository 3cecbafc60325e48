"""The adapter that the documentation shows is complete: taken from the page, it is checked and measured."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from nearcall_lab.cli import main
from nearcall_lab.registry import PROGRAMS, at, discover
from nearcall_lab.results.store import read

PAGE = Path(__file__).parent.parent / "docs" / "adapters.md"


@pytest.fixture
def adapter(tmp_path: Path) -> Path:
    found = re.findall(r"^```python (\S+\.py)\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert [name for name, _ in found] == ["my_adapter.py"]
    name, text = found[0]
    assert text.count("\n") < 60
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    return file


def test_it_keeps_its_promises(adapter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["check", str(adapter), "--quick"])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "kept   echo integrity: 0 B to 1 MB" in shown
    assert "kept   several connections" in shown
    assert "connections; at the server at open" in shown
    assert "kept   a killed server" in shown
    assert "kept   nothing left behind" in shown


def test_it_is_a_row_like_any_other(adapter: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAMS, str(adapter))
    scenario = tmp_path / "two.toml"
    scenario.write_text(
        'title = "two"\n[run]\nlaunches = 1\nseconds = 0.05\nwarmup_s = 0.0\n'
        '[[cells]]\nmechanisms = ["my-xmlrpc", "noop"]\nsize = 15\n'
    )
    assert main(["run", str(scenario), "--out", str(tmp_path / "run")]) == 0
    row = next(cell for cell in read(tmp_path / "run").cells if cell.cell.mechanism == "my-xmlrpc")
    assert (row.label, row.status, len(row.launches)) == ("xmlrpc, standard library", "ok", 1)


def test_a_file_does_not_hide_what_it_is_named_after(adapter: Path) -> None:
    same = adapter.with_name("xmlrpc.py")
    adapter.rename(same)
    assert [entrant.problem for entrant in at(str(same))] == [""]


def test_a_file_that_does_not_load_is_a_row_with_its_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "broken.py"
    file.write_text("import no_such_module\n")
    assert main(["check", str(file)]) == 2
    assert "cannot run here: adapter does not load: ModuleNotFoundError" in capsys.readouterr().out
    monkeypatch.setenv(PROGRAMS, str(file))
    assert "no_such_module" in next(entrant.problem for entrant in discover() if entrant.mechanism.name == "broken")


def test_a_file_that_is_not_there_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", "./no_such_adapter.py"]) == 2
    assert "./no_such_adapter.py: there is no such file" in capsys.readouterr().err
    monkeypatch.setenv(PROGRAMS, str(tmp_path / "gone.py"))
    with pytest.raises(ValueError, match=r"gone\.py', but there is no such file"):
        discover()
