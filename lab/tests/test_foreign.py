"""An adapter in another language takes part through two descriptors and a file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from nearcall_lab import checked
from nearcall_lab.cli import main
from nearcall_lab.engine.launch import measure
from nearcall_lab.registry import PROGRAMS, discover, program_of
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.workers.worker import LaunchFailed, Unsupported

HERE = Path(__file__).parent / "foreign_echo"
pytestmark = pytest.mark.skipif(not shutil.which("python3"), reason="python3 is not on the PATH")


def test_it_is_found_and_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PROGRAMS, str(HERE.parent))
    entrant = next(e for e in discover() if e.mechanism.name == "foreign-echo")
    assert entrant.problem == ""
    assert entrant.version == "1.0"
    launch = measure(Cell("foreign-echo", Work(size=100), Mode(seconds=0.1)), entrant, 0, 0)
    assert launch.calls > 0
    assert launch.warmup_calls > 0
    assert launch.response is not None
    assert launch.response.n == launch.calls
    assert launch.client.cpu_s > 0
    assert launch.server.cpu_s > 0
    assert launch.canary_ns == 0
    assert launch.server_opened == 1


def test_it_keeps_its_promises(capsys: pytest.CaptureFixture[str]) -> None:
    status = main(["check", str(HERE), "--quick"])
    shown = capsys.readouterr().out
    assert status == 0, shown
    assert "kept   a server that stands still" in shown
    assert "kept   a killed server" in shown
    assert checked.has_passed(program_of(HERE / "adapter.toml"))


def test_what_it_cannot_do_it_says() -> None:
    with pytest.raises(Unsupported, match="only a closed loop") as caught:
        measure(Cell("foreign-echo", Work(size=100), Mode("open", rate=10)), program_of(HERE / "adapter.toml"), 0, 0)
    assert caught.value.logs is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = "x"', "missing required field `label`"),
        ('name = "x"\nlabel = "x"\nfamily = "rpc"\nprogram = ["no-such-program"]', "no program 'no-such-program'"),
        ('name = "x"\nlabel = "x"\nfamily = "rpc"\nprogram = []', "program is an empty list"),
        ('name = "x"\nlabel = "x"\nfamily = "rpc"\nprogram = ["sh"]\ncolour = 1', "unknown field `colour`"),
        ("name =", "adapter.toml"),
    ],
)
def test_a_wrong_file_is_a_row_with_its_reason(tmp_path: Path, text: str, problem: str) -> None:
    file = tmp_path / "adapter.toml"
    file.write_text(text)
    assert problem in program_of(file).problem


def test_a_directory_without_adapters_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(PROGRAMS, str(tmp_path))
    with pytest.raises(ValueError, match=r"there is no adapter.toml in it"):
        discover()


def test_a_program_that_talks_nonsense_fails_alone(tmp_path: Path) -> None:
    program = 'program = ["sh", "-c", "echo nonsense >&2; exit 9"]'
    (tmp_path / "adapter.toml").write_text(f'name = "x"\nlabel = "x"\nfamily = "rpc"\n{program}')
    with pytest.raises(LaunchFailed, match=r"server ended unexpectedly \(exit status 9\): nonsense") as caught:
        measure(Cell("x", Work(size=10), Mode()), program_of(tmp_path / "adapter.toml"), 0, 0)
    assert caught.value.logs is not None
    shutil.rmtree(caught.value.logs)


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("not json", "server sent something that is not a message"),
        ('{"loaded": true}', "its first answer must be where it is ready"),
    ],
)
def test_a_program_that_breaks_the_protocol_fails_alone(tmp_path: Path, says: str, reason: str) -> None:
    (tmp_path / "adapter.py").write_text(
        "import json, os, sys\n"
        f"os.write(json.loads(sys.argv[2])['write_fd'], {(says + chr(10)).encode()!r})\n"
        "sys.stdin.read()\nimport time; time.sleep(60)\n"
    )
    program = 'program = ["python3", "-S", "adapter.py"]'
    (tmp_path / "adapter.toml").write_text(f'name = "x"\nlabel = "x"\nfamily = "rpc"\n{program}')
    with pytest.raises(LaunchFailed, match=reason) as caught:
        measure(Cell("x", Work(size=10), Mode()), program_of(tmp_path / "adapter.toml"), 0, 0)
    assert caught.value.logs is not None
    shutil.rmtree(caught.value.logs)
