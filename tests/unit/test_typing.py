"""Both type checkers see what users see: see the files in ``tests/typing``."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import nearcall
from nearcall import plugin, sandbox, testing

ROOT = Path(__file__).parents[2]
REFUSED = "tests/typing/refused.py"
FILES = ["tests/typing/calculator.py", "tests/typing/accepted.py", "tests/typing/everything.py", REFUSED]


def run(*command: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=55, check=False
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    return done.stdout


def expected() -> set[tuple[str, int]]:
    lines = (ROOT / REFUSED).read_text().splitlines()
    return {(REFUSED, number) for number, line in enumerate(lines, 1) if line.endswith("# error")}


def test_every_public_name_is_looked_at() -> None:
    text = "".join((ROOT / file).read_text(encoding="utf-8") for file in FILES)
    used = set(re.findall(r"\w+", text))
    attributes = set(re.findall(r"(?<=\bnearcall\.)\w+", text)) | {"plugin"}
    assert [name for name in nearcall.__all__ if name not in attributes] == []
    rooms = [
        nearcall.aio,
        nearcall.directory,
        nearcall.observe,
        nearcall.health,
        nearcall.introspection,
        nearcall.route,
        plugin,
        sandbox,
        testing,
    ]
    assert [name for room in rooms for name in room.__all__ if name not in used] == []


def test_mypy() -> None:
    output = run("mypy", "--no-error-summary", "--show-absolute-path", *FILES)
    found = re.findall(r"^(.*?):(\d+): error: ", output, re.MULTILINE)
    assert {(str(Path(path).relative_to(ROOT)), int(line)) for path, line in found} == expected(), output


def test_pyright(tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    # The project's own settings leave out the file that is all errors.
    settings = {
        "include": [os.path.relpath(ROOT / file, tmp_path) for file in FILES],
        "extraPaths": [str(ROOT), str(ROOT / "python")],
        "typeCheckingMode": "strict",
        "pythonVersion": "3.10",
    }
    config = tmp_path / "pyrightconfig.json"
    config.write_text(json.dumps(settings))
    output = run("pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(config))
    problems = json.loads(output)["generalDiagnostics"]
    found = {
        (str(Path(problem["file"]).relative_to(ROOT)), problem["range"]["start"]["line"] + 1)
        for problem in problems
        if problem["severity"] == "error"
    }
    assert found == expected(), output
