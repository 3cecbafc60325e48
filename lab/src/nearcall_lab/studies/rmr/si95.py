"""RMR over SI95 as the study measured it: two programs in C, with whatever ``librmr_si.so`` this machine has."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.resources import as_file, files
from pathlib import Path

from nearcall_lab.adapters.librmr import ITS_OWN, absent, library, whose
from nearcall_lab.adapters.ports import free_port

_HOST = "127.0.0.1"
_LIMIT_S = 120.0


def name_of_row() -> str:
    """The study's name only where the library is the study's."""
    path = library()
    if path is None or whose(path) == ITS_OWN:
        return "RMR over SI95"
    return f"SI95, C programs with librmr_si.so, {whose(path)}"


@contextmanager
def programs() -> Iterator[Path]:
    """The program, compiled. Raises `RuntimeError` with the reason where it cannot be."""
    path = library()
    if path is None:
        raise RuntimeError(absent())
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    if compiler is None:
        raise RuntimeError("there is no C compiler on the PATH: sudo apt install gcc")
    with tempfile.TemporaryDirectory() as directory, as_file(files(__package__) / "one_way.c") as source:
        program = Path(directory) / "one_way"
        # Its directory may have the library under one of its two names only.
        (Path(directory) / "librmr_si.so").symlink_to(path)
        (Path(directory) / "librmr_si.so.4").symlink_to(path)
        command = [
            compiler,
            "-O2",
            "-o",
            str(program),
            str(source),
            "-L",
            directory,
            "-lrmr_si",
            f"-Wl,-rpath,{directory}",
        ]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"the program in C does not compile: {done.stderr.strip()[:300]}")
        yield program


def rate(program: Path, size: int, messages: int) -> float:
    """Messages per second, as the receiver saw them. Raises `RuntimeError`."""
    port = free_port(_HOST)
    table = program.with_name("table.rt")
    table.write_text(f"newrt | start | t\nrte | 1000 | {_HOST}:{port}\nnewrt | end | 1\n", encoding="utf-8")
    variables = {
        **os.environ,
        "RMR_SEED_RT": str(table),
        "RMR_RTG_SVC": "-1",
        "RMR_BIND_IF": _HOST,
        "RMR_SRC_ID": _HOST,
        "RMR_LOG_VLEVEL": "1",
    }

    def start(*words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([str(program), *words], stdin=pipe, stdout=pipe, stderr=pipe, env=variables, text=True)

    with start("receive", str(port), str(messages)) as receiver:
        try:
            assert receiver.stdout is not None
            receiver.stdout.readline()
            with start("send", str(free_port(_HOST)), str(messages), str(size)) as sender:
                try:
                    seen, missing = receiver.communicate(timeout=_LIMIT_S)
                    _, why = sender.communicate("\n", timeout=_LIMIT_S)
                finally:
                    sender.kill()
        finally:
            receiver.kill()
    if receiver.returncode:
        raise RuntimeError(f"the program in C: {(why or missing).strip()[-200:]}")
    return float(seen)
