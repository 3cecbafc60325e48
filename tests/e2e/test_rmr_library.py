"""Programs that load ``librmr_si.so`` of this project, beside a node of the router."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from nearcall import route

from .ports import let_go, own_port

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("ricxappframe_program.py")


@pytest.fixture(scope="module")
def library() -> Path:
    """The folder with the library."""
    for folder in ("rmr", "release", "debug", "debug/deps"):
        if (ROOT / "target" / folder / "librmr_si.so").exists():
            return ROOT / "target" / folder
    pytest.skip("librmr_si.so is not built: make rmr")


@pytest.mark.skipif(
    importlib.util.find_spec("ricxappframe") is None,
    reason="ricxappframe is not installed: pip install --no-deps ricxappframe",
)
def test_ricxappframe_runs_unchanged(library: Path, tmp_path: Path) -> None:
    node, thanked = route.Node("rmr://127.0.0.1:0"), list[bytes]()

    @node.on(1000)
    def answer(message: route.Message[Any]) -> None:
        message.reply(message.payload.rstrip(b"\0").upper(), type=1001)

    @node.on(1002)
    def thank(message: route.Message[Any]) -> None:
        thanked.append(message.payload)

    with node:
        table = tmp_path / "table.rt"
        table.write_text(f"newrt | start | t\nrte | 1000 | {node.urls[0].removeprefix('rmr://')}\nnewrt | end | 1\n")
        variables = {
            "LD_LIBRARY_PATH": str(library),
            "RMR_SEED_RT": str(table),
            "RMR_RTG_SVC": "-1",
            "RMR_BIND_IF": "127.0.0.1",
            "RMR_SRC_ID": "127.0.0.1",
        }
        command = [sys.executable, str(PROGRAM), str(own_port())]
        try:
            done = subprocess.run(
                command, env=os.environ | variables, capture_output=True, text=True, timeout=120, check=False
            )
        finally:
            let_go()
        assert done.stdout == "all is well\n", done.stderr
    assert thanked == [b"thanks"]
