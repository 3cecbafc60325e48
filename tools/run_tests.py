"""Runs the Python tests, several files at a time: `run_tests.py WORKERS ...`. What fails runs once more, alone.

Thousands of tests with real processes share the machine. A test that fails beside the others and passes alone is named
at the end, and is to be mended; the run does not fail for it. What fails twice, or a run that broke off, fails it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MOST = 12
"""With more failures than this it is not the machine."""
SOME_FAILED = 1
"""pytest's status when some tests failed."""
CRASHED = " crashed while running "
"""In the report, when a process of tests was ended by one of them, and so the rest of its tests were not run."""


def main() -> int:
    """Pytest's own status, that of the second run if there was one."""
    workers, *options = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        # A directory of this run's own: what failed in earlier ones is not in it.
        pytest = [sys.executable, "-m", "pytest", "-o", f"cache_dir={directory}", *options]
        beside = ["--numprocesses", workers, "--dist", "loadfile", "--max-worker-restart", "0"]
        report, noted = Path(directory, "report.xml"), Path(directory, "v/cache/lastfailed")
        status = subprocess.run([*pytest, *beside, f"--junitxml={report}"], check=False).returncode
        if status != SOME_FAILED or not noted.exists() or CRASHED in report.read_text():
            return status
        failed = list(json.loads(noted.read_text()))
        if len(failed) > MOST:
            return status
        print(f"\n{len(failed)} failed beside the others; they run once more, alone", flush=True)
        status = subprocess.run([*pytest, "--last-failed", "--last-failed-no-failures", "none"], check=False).returncode
    if status == 0:
        print("\nfailed beside the others, passed alone; on a quiet machine this should not be:", *failed, sep="\n  ")
    return status


if __name__ == "__main__":
    sys.exit(main())
