"""Run the short test suite on every Python that pyproject.toml promises and this machine has.

Usage: python tools/try_versions.py [version ...]     for example 3.10 3.13; all of them without
Looks on the PATH and where pyenv and uv keep theirs. Each version is built in target/versions/, but for that of .venv,
which is there already. Prints one line for each version at the end; ends with status 1 if one of them failed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILDS = ROOT / "target" / "versions"
WHICH = "import sys; print('%d.%d.%d' % sys.version_info[:3], getattr(sys, '_is_gil_enabled', lambda: True)())"


def promised() -> list[str]:
    """The versions that the package's classifiers name, oldest first."""
    manifest = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.findall(r'"Programming Language :: Python :: (3\.\d+)"', manifest)


def version_of(python: Path) -> str | None:
    """Its full version; ``None`` if it does not start, as a shim of pyenv may, or works without a GIL."""
    try:
        answer = subprocess.run(
            [python, "-I", "-c", WHICH], capture_output=True, text=True, timeout=20, check=False
        ).stdout.split()
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer[0] if len(answer) == 2 and answer[1] == "True" else None


def candidates(version: str) -> Iterator[Path]:
    """Where a Python of this version may be."""
    for directory in os.get_exec_path():
        yield Path(directory) / f"python{version}"
    homes = [
        Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions",
        Path(os.environ.get("UV_PYTHON_INSTALL_DIR") or Path.home() / ".local/share/uv/python"),
    ]
    for home in homes:
        yield from home.glob(f"*/bin/python{version}")


def find(version: str) -> Path | None:
    """The newest Python of a version that is here."""
    found: dict[tuple[int, ...], Path] = {}
    for python in candidates(version):
        full = version_of(python) if python.is_file() else None
        if full is not None and full.startswith(f"{version}."):
            found.setdefault(tuple(map(int, full.split("."))), python)
    return found[max(found)] if found else None


def test(version: str, python: Path) -> bool:
    """Build and test one version by the Makefile's own rules; say whether all went well."""
    command = ["make", "-C", str(ROOT), "--no-print-directory", "test-short", f"PYTHON={python}"]
    environment = dict(os.environ)
    if (version_of(ROOT / ".venv" / "bin" / "python") or "").rpartition(".")[0] != version:
        command.append(f"VENV={BUILDS / version / 'venv'}")
        environment["CARGO_TARGET_DIR"] = str(BUILDS / version / "cargo")
    return subprocess.run(command, env=environment, check=False).returncode == 0


def main(wanted: list[str]) -> int:
    """Test one version after the other."""
    versions = promised()
    if unknown := [version for version in wanted if version not in versions]:
        print(f"test-versions: not promised: {', '.join(unknown)}; there are {', '.join(versions)}", file=sys.stderr)
        return 2
    results: dict[str, str] = {}
    failed = False
    for version in wanted or versions:
        python = find(version)
        if python is None:
            results[version] = "skipped, there is none here"
            continue
        print(f"\n== Python {version}: {python}", flush=True)
        begin = time.monotonic()
        passed = test(version, python)
        failed |= not passed
        results[version] = f"{'passed' if passed else 'FAILED'} after {time.monotonic() - begin:.0f} s"
    print()
    for version, result in results.items():
        print(f"Python {version}: {result}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
