"""Makes what is published, in dist/: wheels, source distributions, and lists of what they need.

Usage: python tools/distribution.py [--versions 3.10 3.13] [--compatibility manylinux_2_28] [--counts FILE]

A wheel of nearcall is made for each Python that pyproject.toml promises and that is here; the others are named. All
know the same counts of usual work (see :mod:`profiled_build`). Whether they work, tests/wheels finds out.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import try_versions
from profiled_build import ROOT, profiled

DIST = ROOT / "dist"
_TAG = re.compile(r'consistent with the following platform tag: "(\w+)"')


def pythons(wanted: list[str]) -> dict[str, Path]:
    """Those that are promised, or wanted, and here; says which are not."""
    versions = try_versions.promised()
    if unknown := [version for version in wanted if version not in versions]:
        sys.exit(f"distribution: not promised: {', '.join(unknown)}; there are {', '.join(versions)}")
    found = {version: try_versions.find(version) for version in wanted or versions}
    for version, python in found.items():
        if python is None:
            say(f"there is no Python {version} here: no wheel is made for it")
    here = {version: python for version, python in found.items() if python is not None}
    if not here:
        sys.exit("distribution: none of the promised Pythons is here")
    return here


def wheels(interpreters: list[Path], compatibility: str | None, counts: Path | None) -> None:
    """Makes the wheels of nearcall. Fails if their code needs a newer C library than they are to promise."""
    command: list[str | Path] = ["build", "--locked", "--strip", "--out", DIST]
    if compatibility:
        command += ["--compatibility", compatibility]
    profiled(*command, "--interpreter", *interpreters, counts=counts)


def check_tags() -> None:
    """Asks auditwheel whether maturin, which gave the wheels their tags, has promised too much."""
    for wheel in sorted(DIST.glob("nearcall-*linux*.whl")):
        command = (sys.executable, "-m", "auditwheel", "show", wheel)
        said = " ".join(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())
        found = _TAG.search(said)
        if found is None or found[1] not in wheel.name:
            sys.exit(f"distribution: the tag of {wheel.name} promises too much: {said}")


def sources() -> None:
    """Makes the source distributions of both packages, and from the lab's the wheel, which is for every Python."""
    maturin = Path(sys.executable).with_name("maturin")
    subprocess.run([maturin, "sdist", "--out", DIST], check=True, cwd=ROOT, capture_output=True)
    subprocess.run([sys.executable, "-m", "build", "--outdir", DIST, ROOT / "lab"], check=True, capture_output=True)


def list_dependencies(package: str, python: Path) -> None:
    """Writes what a fresh environment with one of the packages consists of, as CycloneDX.

    The Rust code in a wheel is listed in the wheel itself.
    """
    version = next(DIST.glob(f"{package.replace('-', '_')}-*.whl")).name.split("-")[1]
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
        fresh = Path(folder, "bin", "python")
        pip = (sys.executable, "-m", "pip", "-q", "--disable-pip-version-check", "--python", fresh, "install")
        only = ("--only-binary", ":all:", f"{package}=={version}")
        # By its name, and not by the path of its wheel, which would be listed. First without an index: what is
        # listed is what was made here.
        subprocess.run([*pip, "--no-deps", "--no-index", "--find-links", DIST, *only], check=True)
        subprocess.run([*pip, *only], check=True)
        form = ("environment", "--output-reproducible", "--of", "JSON", "--mc-type", "library")
        out = DIST / f"{package.replace('-', '_')}-{version}.cdx.json"
        subprocess.run([sys.executable, "-m", "cyclonedx_py", *form, "-o", out, fresh], check=True)


def main() -> None:
    """Makes all of it, and lists it with its sizes."""
    parser = argparse.ArgumentParser(description="make what is published, in dist/")
    parser.add_argument("--versions", nargs="*", default=[], help="of Python; all that are promised and here without")
    parser.add_argument("--compatibility", help="what the wheels are to promise, such as manylinux_2_28")
    parser.add_argument("--counts", type=Path, help="merged counts of an earlier build of the same source")
    options = parser.parse_args()
    interpreters = pythons(options.versions)
    shutil.rmtree(DIST, ignore_errors=True)
    wheels(list(interpreters.values()), options.compatibility, options.counts and options.counts.absolute())
    check_tags()
    sources()
    oldest = next(iter(interpreters.values()))  # it needs most
    for package in ("nearcall", "nearcall-lab"):
        list_dependencies(package, oldest)
    for made in sorted(DIST.iterdir()):
        say(f"{made.stat().st_size / 1e6:6.2f} MB  {made.name}")


def say(what: str) -> None:
    """Shows how far it is, and what is missing."""
    print(f"distribution: {what}", flush=True)


if __name__ == "__main__":
    main()
