"""Builds nearcall as it is published: the compiler lays out the code by what usual work runs.

Three steps: a build that counts what runs, :mod:`usual_work` with it, and the build proper, which knows the counts::

    python tools/profiled_build.py              # into this environment, as `maturin develop` does
    python tools/profiled_build.py dist         # a wheel, into dist/

The counts are merged by LLVM's own tool, which must be of rustc's version: rustup's component llvm-tools. Without it,
an ordinary release build is made; `nearcall._core.PROFILED` says which it was. See docs/measurements/0111.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "target" / "profiling"
COUNTS = FOLDER / "counts"
LAST = ROOT / "target" / "profiled"
"""Of the last step. Nothing in it serves again: no two counts are alike, and Cargo sees only the name of their file."""
LONGEST = 900.0
"""Seconds that the work may take. It takes 15."""
QUICK = ("-Clto=off", "-Clinker-plugin-lto=no", "-Cdebuginfo=0")
"""Spares the build that counts what takes longest. Cargo's own settings would change the names of all functions."""
NEUTRAL = (
    f"--remap-path-prefix={ROOT}=.",
    f"--remap-path-prefix={os.environ.get('CARGO_HOME') or Path.home() / '.cargo'}/registry/src=crates",
)
"""Messages of panics name source files: in what is published not by the folders of the machine that built it."""
MATURIN = Path(sys.executable).with_name("maturin")


def merger() -> Path | None:
    """LLVM's tool that merges counts, of the version that rustc has. Installs it if rustup is there and can."""
    host = next(line for line in _said("rustc", "-vV").splitlines() if line.startswith("host: "))[len("host: ") :]
    tool = Path(_said("rustc", "--print", "sysroot").strip(), "lib", "rustlib", host, "bin", "llvm-profdata")
    if not tool.exists() and shutil.which("rustup"):
        say("installing LLVM's tools (rustup component add llvm-tools)")
        subprocess.run(["rustup", "-q", "component", "add", "llvm-tools"], check=False, cwd=ROOT)
    return tool if tool.exists() else None


def maturin(command: str, *arguments: str | Path, flags: tuple[str, ...] = ()) -> None:
    """Runs maturin, with flags for rustc after those of the environment."""
    environment = dict(os.environ, CARGO_TERM_QUIET="true", PIP_QUIET="1")
    if flags:
        flags = (*environment.pop("RUSTFLAGS", "").split(), *flags)
        environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)  # a folder's name may have spaces
    subprocess.run([MATURIN, command, "-q", "--release", *arguments], check=True, cwd=ROOT, env=environment)


def counted(tool: Path) -> Path:
    """The counts of what usual work runs."""
    for old in (COUNTS, FOLDER / "wheels", FOLDER / "site"):
        shutil.rmtree(old, ignore_errors=True)
    say("building what counts, 1 of 3")
    places = ("--target-dir", FOLDER, "--out", FOLDER / "wheels")
    maturin("build", "--interpreter", sys.executable, *places, flags=(*QUICK, f"-Cprofile-generate={COUNTS}"))
    # Beside the environment, in which a build that counts shall never be left.
    pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "install", "--target", FOLDER / "site")
    subprocess.run([*pip, *(FOLDER / "wheels").glob("*.whl")], check=True)
    say("counting what usual work runs, 2 of 3")
    environment = dict(os.environ, PYTHONPATH=str(FOLDER / "site"), LLVM_PROFILE_FILE=f"{COUNTS}/%m-%p.profraw")
    subprocess.run([sys.executable, ROOT / "tools" / "usual_work.py"], check=True, env=environment, timeout=LONGEST)
    merged = FOLDER / "merged.profdata"
    subprocess.run([tool, "merge", "-o", merged, *COUNTS.glob("*.profraw")], check=True)
    return merged


def profiled(command: str, *arguments: str | Path, counts: Path | None = None) -> None:
    """Runs maturin so that the compiler knows what usual work runs.

    Args:
        command: ``build`` or ``develop``.
        arguments: Those of the command. With several interpreters all their builds know the same counts. A function
            that has another shape for another interpreter is built without: see docs/adr/0129.
        counts: Merged counts of an earlier build of the same source; counted now if not given.
    """
    neutral = NEUTRAL if command == "build" else ()
    if counts is None:
        tool = merger()
        if tool is None:
            say("LLVM's tools for this rustc are missing: an ordinary release build is made, which is slower")
            maturin(command, *arguments, flags=neutral)
            return
        counts = counted(tool)
    say("building nearcall with the counts, 3 of 3")
    shutil.rmtree(LAST, ignore_errors=True)
    maturin(command, *arguments, "--target-dir", LAST, flags=(f"-Cprofile-use={counts}", *neutral))


def main() -> None:
    """The three steps."""
    if out := sys.argv[1:2]:
        profiled("build", "--strip", "--interpreter", sys.executable, "--out", *out)
    else:
        profiled("develop")


def say(what: str) -> None:
    """Shows how far it is."""
    print(f"profiled build: {what}", flush=True)


def _said(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout


if __name__ == "__main__":
    main()
