"""Try older builds of nearcall against this one: each as the client and as the server of the other.

Usage: python tools/try_builds.py COMMIT... [--transports shm,tcp] [--checks plain,values]
"this" in place of a commit tries the working tree alone.
Builds each commit once, in target/builds/COMMIT, and runs the checks of tests/builds in four ways: both builds alone,
and the two ways in which they meet. Prints a line for each transport and pair, and each check that was not right. Ends
with status 1 if one was wrong, hung, or was refused between builds where each alone gets it right.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "tests" / "builds"
BUILDS = ROOT / "target" / "builds"
REQUIRED = ["msgspec", "numpy", "typing-extensions>=4.12"]
GRPC_CHECKS = ["plain", "values", "arrays", "long", "too_long", "errors", "deadlines", "loop", "streams"]
CHECKS = [*GRPC_CHECKS, "moved", "oneway", "threads", "anything", "objects", "topics", "lent", "statistics"]
TRANSPORTS = ["shm", "unix", "tcp", "tls", "grpc", "http"]
LONGEST = 400.0
"""Seconds that all checks over one transport may take."""


class Build(NamedTuple):
    """One build: its name, and the interpreter that imports it."""

    name: str
    python: Path


class Pair(NamedTuple):
    """Which build calls, and which serves."""

    client: Build
    server: Build

    def __str__(self) -> str:
        return f"{self.client.name} calls {self.server.name}"


def here() -> Build:
    """The build of the working tree: ``make setup`` has made it."""
    return Build("this", ROOT / ".venv" / "bin" / "python")


def build(commit: str) -> Build:
    """The build of a commit, made now if it is not there."""
    if commit == here().name:
        return here()
    full = git("rev-parse", "--short=12", f"{commit}^{{commit}}")
    place = BUILDS / full
    python = place / "venv" / "bin" / "python"
    if not (place / "built").exists():
        print(f"building {full} in {place.relative_to(ROOT)}", flush=True)
        shutil.rmtree(place / "tree", ignore_errors=True)
        (place / "tree").mkdir(parents=True)
        with subprocess.Popen(["git", "-C", ROOT, "archive", full], stdout=subprocess.PIPE) as archive:
            subprocess.run(["tar", "-x", "-C", place / "tree"], stdin=archive.stdout, check=True)
        subprocess.run([here().python, "-m", "venv", "--clear", place / "venv"], check=True)
        pip = [python, "-m", "pip", "--disable-pip-version-check", "-q", "install"]
        subprocess.run([*pip, *REQUIRED], check=True)
        # All old builds share what they compile, which is mostly the same.
        environment = os.environ | {
            "CARGO_TARGET_DIR": str(BUILDS / "cargo"),
            "PYO3_PYTHON": str(python),
            "VIRTUAL_ENV": str(place / "venv"),
            "CARGO_TERM_QUIET": "true",
            "CARGO_PROFILE_RELEASE_LTO": "off",
            "CARGO_PROFILE_RELEASE_CODEGEN_UNITS": "16",
        }
        maturin = [ROOT / ".venv" / "bin" / "maturin", "build", "-q", "--release", "--interpreter", python]
        subprocess.run([*maturin, "--out", place / "wheels"], cwd=place / "tree", env=environment, check=True)
        wheels = sorted((place / "wheels").glob("*.whl"))
        subprocess.run([*pip, "--no-deps", "--force-reinstall", wheels[-1]], check=True)
        (place / "built").touch()
    return Build(full[:8], python)


def git(*arguments: str) -> str:
    """What git says about this repository."""
    return subprocess.run(["git", "-C", ROOT, *arguments], capture_output=True, text=True, check=True).stdout.strip()


def environment(directory: Path) -> dict[str, str]:
    """That of a server or client, without what is set for this process alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "NEARCALL"))}
    return kept | {
        "XDG_RUNTIME_DIR": str(directory),
        "SSL_CERT_FILE": str(directory / "certs" / "ca.pem"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def free_port() -> int:
    """A port that nobody listens at now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def new_url(transport: str, directory: Path) -> str:
    """A URL that nobody serves yet."""
    name = f"builds-{os.getpid()}-{time.monotonic_ns()}"
    if transport == "shm":
        return f"shm://{name}"
    if transport == "unix":
        return f"unix://{directory}/{name[-12:]}.unix"
    return f"{transport}://127.0.0.1:{free_port()}"


@contextlib.contextmanager
def serving(build: Build, url: str, directory: Path) -> Iterator[str | None]:
    """A server of this build; its URL, or ``None`` if it cannot serve there. It ends in good order."""
    command = [build.python, PROGRAMS / "server.py", directory / "certs", url]
    log = directory / "server.log"
    with (
        log.open("a") as errors,
        subprocess.Popen(
            command, env=environment(directory), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        ) as process,
    ):
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            yield json.loads(line)[0] if line else None
            process.communicate("", timeout=30)
        except subprocess.TimeoutExpired:
            print(f"    a server of {build.name} does not end", flush=True)
            raise
        finally:
            process.kill()


def outcomes(pair: Pair, transport: str, checks: list[str], directory: Path) -> dict[str, str]:
    """What each check came to. A client that hangs or dies is started again for the checks that are left."""
    found: dict[str, str] = {}
    with serving(pair.server, new_url(transport, directory), directory) as url:
        if url is None:
            return dict.fromkeys(checks, "refused: the server's build has no such transport")
        while left := [name for name in checks if name not in found]:
            command = [pair.client.python, PROGRAMS / "client.py", url, *left]
            done = subprocess.run(
                command, env=environment(directory), capture_output=True, text=True, timeout=LONGEST, check=False
            )
            for line in done.stdout.splitlines():
                name, outcome, _ = json.loads(line)
                found[name] = outcome
            if done.returncode:
                died = next(name for name in left if name not in found)
                why = "hangs" if "Timeout (" in done.stderr else f"ended with {done.returncode}"
                found[died] = f"WRONG: {why}: {done.stderr[-1500:]}"
    return found


def replaced(client: Build, servers: list[Build], transport: str, directory: Path) -> str:
    """Calls of one client while its server is stopped and another build takes its place, and the first again."""
    url = new_url(transport, directory)
    errors = directory / "load.log"
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(contextlib.ExitStack())
        if server.enter_context(serving(servers[0], url, directory)) is None:
            return "refused: the server's build has no such transport"
        command = [client.python, PROGRAMS / "client.py", url, "load"]
        process = stack.enter_context(
            subprocess.Popen(
                command,
                env=environment(directory),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors.open("w"),
                text=True,
            )
        )
        stack.callback(process.kill)
        assert process.stdout is not None
        first = process.stdout.readline()
        if first.strip() != '"begun"':
            return first or errors.read_text()
        for number in range(1, 7):
            time.sleep(0.4)
            server.close()
            server.enter_context(serving(servers[number % 2], url, directory))
        time.sleep(0.4)
        out, _ = process.communicate("\n", timeout=90)
        lines = [json.loads(line) for line in out.splitlines()]
        if process.returncode:
            return f"WRONG: {errors.read_text()[-1500:]}"
        return " ".join([str(lines[-1][1]), *map(str, lines[:-1])])


def main(arguments: list[str]) -> int:
    """Try one commit after the other."""
    parser = argparse.ArgumentParser(prog="test-builds", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("commits", nargs="+")
    parser.add_argument("--transports", default=",".join(TRANSPORTS))
    parser.add_argument("--checks", default=None)
    chosen = parser.parse_args(arguments)
    failed = 0
    for commit in chosen.commits:
        failed += try_one(here(), build(commit), chosen.transports.split(","), chosen.checks)
    print(f"\ntest-builds: {failed} findings" if failed else "\ntest-builds: all right, or refused as it should be")
    return int(failed > 0)


def try_one(this: Build, old: Build, transports: list[str], wanted: str | None) -> int:
    """All pairs of two builds. How much was found."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="nb-") as name:
        directory = Path(name)
        make = [this.python, "-m", "nearcall", "dev-certs", directory / "certs", "127.0.0.1"]
        subprocess.run(make, check=True, capture_output=True)
        for transport in transports:
            checks = wanted.split(",") if wanted else GRPC_CHECKS if transport in ("grpc", "http") else CHECKS
            alone = [outcomes(Pair(build, build), transport, checks, directory) for build in (this, old) if this != old]
            for pair in dict.fromkeys([Pair(this, old), Pair(old, this)]):
                failed += report(pair, transport, outcomes(pair, transport, checks, directory), alone)
            for client in dict.fromkeys([this, old]):
                said = replaced(client, [old, this], transport, directory)
                print(f"{transport}: {client.name} calls while {old.name} and this take turns: {said}", flush=True)
                failed += "WRONG" in said
    return failed


def report(pair: Pair, transport: str, found: dict[str, str], alone: list[dict[str, str]]) -> int:
    """Print what the checks came to. How many were worse than in each build alone."""
    worse = {name for name, said in found.items() if said != "right" and all(one[name] == "right" for one in alone)}
    right = sum(said == "right" for said in found.values())
    print(f"{transport}: {pair}: {right} of {len(found)} right", flush=True)
    for name, said in found.items():
        if said != "right":
            print(f"  {'!' if name in worse else ' '} {name}: {said}", flush=True)
            for which, one in zip(("this alone", "old alone"), alone, strict=False):
                if one[name] != "right":
                    print(f"      {which}: {one[name]}", flush=True)
    return len(worse)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
