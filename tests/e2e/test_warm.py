"""Programs by fork of the warm process are what interpreters of their own would be."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .process import run_program, start_program
from .warm import WarmProcess

SEEN = """
import faulthandler, json, os, random, signal, sys, threading, warnings
import numpy, __main__
print(json.dumps({
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd") if os.path.exists(f"/proc/self/fd/{name}")),
    "arguments": sys.argv,
    "first path": sys.path[0],
    "folder": os.getcwd(),
    "environment": dict(os.environ),
    "warnings": warnings.filters[0][0],
    "faulthandler": faulthandler.is_enabled(),
    "interrupt": signal.getsignal(signal.SIGINT) is signal.default_int_handler,
    "pipe": signal.getsignal(signal.SIGPIPE) == signal.SIG_IGN,
    "blocked": list(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "threads": len(os.listdir("/proc/self/task")),
    "group": os.getpgrp(),
    "main": [__name__, sorted({*vars(__main__)} - {"__annotations__"})],
    "said": sys.stdin.read(),
}))
"""


def test_it_looks_like_an_interpreter_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for the threads of numpy, which an interpreter has by chance of its machine."""
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "1")
    monkeypatch.setenv("NEARCALL_TEST_WORD", "a\nb")
    seen = []
    for env in ({}, {"NEARCALL_TEST_OTHER": "1"}):
        with start_program(SEEN, "one", "two three", **env) as process:
            out, _ = process.communicate("words\nof mine", timeout=50)
        assert process.returncode == 0
        seen.append(json.loads(out))
    warm, own = seen
    assert own["environment"].pop("NEARCALL_TEST_OTHER") == "1"
    assert warm["environment"]["NEARCALL_TEST_WORD"] == "a\nb"
    assert warm == own


def test_random_numbers_are_its_own() -> None:
    code = "import random, uuid, numpy; print(random.random(), numpy.random.random(), uuid.uuid4())"
    first, second = (run_program(code)[0].split() for _ in range(2))
    assert all(one != other for one, other in zip(first, second, strict=True))


@pytest.mark.parametrize(
    ("code", "status"),
    [
        ("pass", 0),
        ("import sys; sys.exit(7)", 7),
        ("import os; os._exit(8)", 8),
        ("raise KeyError", 1),
        ("raise KeyboardInterrupt", -signal.SIGINT),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
        ("import atexit, os; atexit.register(os._exit, 9)", 9),
        ("import os, threading, time; threading.Timer(0.01, os._exit, [5]).start()", 5),
        ("import warnings; warnings.warn('no')", 1),
    ],
)
def test_its_exit_status_is_told(code: str, status: int) -> None:
    assert run_program(code)[2] == status
    with start_program(code, stderr=subprocess.DEVNULL) as process:
        assert process.wait(50) == status


def test_it_is_signalled_polled_and_awaited_as_others() -> None:
    with start_program("import sys; print('ready', flush=True); sys.stdin.read()") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert isinstance(process, WarmProcess)
        assert process.poll() is None
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(50) == process.poll() == -signal.SIGINT
        process.kill()  # it is gone, and so is its process id: nobody is hit
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


def test_its_process_id_is_its_own_until_it_was_awaited() -> None:
    """Whoever kills what ends at the same time hits it, or nobody."""
    with start_program("") as process:
        ended = os.pidfd_open(process.pid)
        assert select.select([ended], [], [], 50)[0]
        os.close(ended)
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait(50) == 0
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)


def test_its_end_does_not_wait_for_others() -> None:
    """No program holds the pipes of one that was started before or after."""
    with (
        start_program("import sys; sys.stdin.read()") as first,
        start_program("import sys; sys.stdin.read()") as second,
    ):
        assert first.communicate("", timeout=50) == ("", None)
        assert second.poll() is None
        assert second.communicate("", timeout=50) == ("", None)


def test_what_is_wrong_is_said_to_its_own_errors() -> None:
    out, err, status = run_program("import sys; print('out'); print('err', file=sys.stderr); 1 / 0")
    assert (out, status) == ("out\n", 1)
    assert err.startswith("err\nTraceback")
    assert err.endswith("ZeroDivisionError: division by zero\n")


def test_its_session_is_its_own_if_asked_for() -> None:
    code = "import os, sys; print(os.getsid(0), flush=True); sys.stdin.read()"
    for own in (False, True):
        with WarmProcess(code, start_new_session=own) as process:
            session = int(process.communicate("", timeout=50)[0])
            assert session == (process.pid if own else os.getsid(0))


def test_it_may_be_a_script_in_a_folder_of_its_own(tmp_path: Path) -> None:
    code = "import json, os, sys; print(json.dumps([sys.argv, sys.path[0], os.getcwd(), __file__, __name__]))"
    (tmp_path / "script.py").write_text(code)
    own = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    with WarmProcess(code, file="script.py", cwd=tmp_path) as process:
        out, _ = process.communicate("", timeout=50)
    assert json.loads(out) == json.loads(own.stdout)
