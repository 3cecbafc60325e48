"""What commands read from files and standard input, completion, and where in the user's code something failed."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import nearcall
from nearcall.cli import main


@nearcall.service
class Adder:
    def add(self, a: int, b: int) -> int:
        return a + b

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)


@pytest.fixture
def url() -> Iterator[str]:
    with nearcall.Server(Adder(), "inproc://adder-of-arguments") as server:
        yield server.urls[0]


@pytest.mark.parametrize("written", ['{"a": 1, "b": 2}', "[1,\n2]\n"])
@pytest.mark.parametrize("place", ["@", "-"])
def test_arguments_from_elsewhere(
    url: str,
    written: str,
    place: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "arguments.json").write_text(written)
    monkeypatch.setattr(sys, "stdin", io.StringIO(written))
    assert main(["call", url, "add", f"@{tmp_path}/arguments.json" if place == "@" else "-"]) == 0
    assert capsys.readouterr().out == "3\n"


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("@none.json", "none.json cannot be read: No such file or directory"),
        ("@bytes", "bytes is no text in UTF-8"),
        (
            "@five",
            "the arguments in five are neither an object nor an array: put brackets around it for a single argument",
        ),
        ("-", "the arguments in standard input are not JSON (JSON is malformed"),
    ],
)
def test_arguments_that_cannot_be_read(
    url: str,
    argument: str,
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff")
    (tmp_path / "five").write_text("5")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.StringIO("{'a': 1}"))
    assert main(["call", url, "add", argument]) == 2
    assert capsys.readouterr().err.startswith(f"nearcall: {line}")


def test_standard_input_is_read_once(
    url: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("[[1, 2]]"))
    assert main(["call", url, "total", "-"]) == 0
    assert capsys.readouterr().out == "3\n"
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}\n1\n2\n"))
    assert main(["call", url, "total", "-"]) == 2
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}"))
    assert main(["call", url, "total", "-"]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "nearcall: standard input held the arguments: write the stream among them, as a list"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    for word in ("serve", "completion", "max-pending", "tls-ca"):
        assert word in script
    if shutil.which(shell):
        (tmp_path / "script").write_text(script)
        subprocess.run([shell, "-n", tmp_path / "script"], check=True, timeout=60)


def test_bash_completes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("shtab")
    if shutil.which("bash") is None:
        pytest.skip("there is no bash")
    assert main(["completion", "bash"]) == 0
    (tmp_path / "script").write_text(capsys.readouterr().out)
    asked = (
        'source ./script; COMP_WORDS=(nearcall serve --max-p); COMP_CWORD=2; COMP_LINE="nearcall serve --max-p"; '
        'COMP_POINT=${#COMP_LINE}; _shtab_nearcall nearcall --max-p serve; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == ["--max-pending"]


def test_completion_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "zsh"]) == 2
    assert capsys.readouterr().err == "nearcall: completion needs shtab: pip install 'nearcall[completion]'\n"


@pytest.mark.parametrize(
    ("target", "line"),
    [
        (
            "make",
            "app_that_fails.py:make() failed: JSONDecodeError: Expecting value: line 1 column 1 (char 0) "
            "(app_that_fails.py, line 4; ",
        ),
        (
            "Broken",
            "app_that_fails.py:Broken() failed: ZeroDivisionError: division by zero (app_that_fails.py, line 11; ",
        ),
    ],
)
def test_a_factory_that_fails_is_named_with_its_line(
    target: str, line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With its own last line, and not that of the library it had called."""
    (tmp_path / "app_that_fails.py").write_text(
        "import json\n\ndef read():\n    return json.loads('')\n\ndef make():\n    return read()\n\n"
        "class Broken:\n    def __init__(self):\n        1 / 0\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "app_that_fails", raising=False)
    assert main(["serve", f"app_that_fails.py:{target}", "shm://none", "--config", ""]) == 2
    assert capsys.readouterr().err == f"nearcall: {line}--debug shows the traceback)\n"
    monkeypatch.delitem(sys.modules, "app_that_fails")
    assert main(["--debug", "serve", f"app_that_fails.py:{target}", "shm://none", "--config", ""]) == 2
    assert 'app_that_fails.py", line ' in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "app_that_fails")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("serve app:App shm:/x", "'shm:/x' is no URL: write shm://x"),
        ("serve app:App shm://x --token secret", "there is no option --token: did you mean --token-file?"),
        ("serve app:App shm://x --work 2", "there is no option --work: did you mean --workers?"),
        ("directory serve tcp://127.0.0.1:0 --workers 2", "a directory is one process, "),
        ("proto app:App app:Other", "each class has a .proto of its own, one command each"),
    ],
)
def test_what_is_almost_right_is_explained(words: str, told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        raise SystemExit(main(words.split()))
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert told in said
    assert "secret" not in said
