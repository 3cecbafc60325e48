"""Servers under attack, one for each transport and set of options, and a new one after each that broke."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from ..conftest import ATTACKED
from ..e2e.process import ROOT
from .lateness import Lateness
from .machine import Machine
from .meeting import AT_ONCE
from .target import SECONDS, URLS, Attack, Server, Trial
from .victim import Victims

_numbers = itertools.count(1)


@pytest.fixture(scope="session", autouse=True)
def encrypted(certificates: Path) -> None:
    """For tls://, on both sides."""


@pytest.fixture(scope="module")
def servers(runtime_dir: Path) -> Iterator[Callable[[str, dict[str, Any]], Server]]:
    """A server for a transport and options, started or left by the attack before."""
    running: dict[str, Server] = {}

    def get(transport: str, options: dict[str, Any]) -> Server:
        key = f"{transport} {json.dumps(options, sort_keys=True)}"
        if key in running and running[key].broken:
            running.pop(key).close()
        if key not in running:
            url = URLS[transport](f"h{os.getpid()}-{next(_numbers)}", runtime_dir)
            running[key] = Server(url, options)
        return running[key]

    yield get
    failures = []
    for server in running.values():
        try:
            server.close()
        except AssertionError as error:
            failures.append(str(error))
    assert failures == []


@pytest.fixture(scope="session")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lateness | None]:
    """How late a process wakes that does nothing; in the long form only."""
    if not SECONDS:
        yield None
        return
    lateness = Lateness(tmp_path_factory.mktemp("lateness") / "machine")
    with subprocess.Popen([sys.executable, "-m", "tests.hostile.lateness", str(lateness.path)], cwd=ROOT) as process:
        yield lateness
        process.kill()
    lateness.close()


@pytest.fixture
def attempt(
    servers: Callable[[str, dict[str, Any]], Server], machine: Lateness | None, request: pytest.FixtureRequest
) -> Callable[[Attack, str], None]:
    """Runs an attack, and notes what was measured."""

    def run(attack: Attack, transport: str) -> None:
        trial = Trial(attack, servers(transport, attack.server), transport, machine)
        try:
            trial.run()
        finally:
            request.node.user_properties.append((ATTACKED, trial.row | {"complaints": trial.complaints}))

    return run


@pytest.fixture(scope="module")
def victims() -> Iterator[Queue[Victims]]:
    """Makers of clients that meet hostile servers: those that are free."""
    with ExitStack() as stack:
        free = Queue[Victims]()
        for _ in range(AT_ONCE):
            free.put(stack.enter_context(Victims()))
        yield free


@pytest.fixture(scope="module")
def stalls() -> Iterator[Machine]:
    """How long the machine lets nobody run, beside clients that meet hostile servers."""
    with closing(Machine()) as ticking:
        yield ticking
