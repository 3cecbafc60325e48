"""The pipeline in examples/: a part of it is killed, and every frame is accounted for."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/pipeline"


@pytest.mark.crash
def test_every_frame_is_in_the_log_or_counted_as_lost(runtime_dir: Path, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLE / "pipeline.py"), "--seconds", "1", "--output", str(tmp_path)]
    ours, theirs = pty.openpty()  # it draws
    with subprocess.Popen(command, stdout=theirs, env={**os.environ, "TERM": "xterm"}) as process:
        os.close(theirs)
        said = b""
        with suppress(OSError):  # nobody writes there any more
            while part := os.read(ours, 65536):
                said += part
    os.close(ours)
    shown = said.decode().replace("\r\n", "\n")
    assert process.returncode == 0, shown
    assert re.search(r"frames ─→ detector-1 .*/s", shown)
    assert re.search(r"\x1b\[31m.*detector-1 .*not connected", shown), "the dead one is red"
    assert "table three-detectors" in shown
    found = re.findall(r"^ *([\d,]+)  (\D+(?:-\d)?)$", shown, re.MULTILINE)
    journal = {words: int(number.replace(",", "")) for number, words in found}
    lost = {words: number for words, number in journal.items() if words.startswith("lost: ")}
    assert len(lost) == 6
    lines = (tmp_path / "track.csv").read_text(encoding="utf-8").splitlines()
    assert len(lines) == journal["in the log"] == journal["frames sent"] - sum(lost.values())
    assert {line.rpartition("-")[2] for line in lines} == {"1", "2", "3"}
    assert lost.pop("lost: dropped by frames, as no detector had room") > 0
    del lost["lost: in the hands of detector-1"]  # as many as were in the memory to it
    assert not any(lost.values())
