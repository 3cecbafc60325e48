"""Servers under attack, one for each transport and set of options, and a new one after each that broke."""

from __future__ import annotations

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from ..conftest import ATTACKED
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
def bystanders(runtime_dir: Path) -> Iterator[Callable[[str], Server | None]]:
    """A server for each transport that nobody attacks, with a client: what a call takes there beside an attack, that
    time the machine takes. In the long form only.
    """
    with ExitStack() as stack:

        @functools.cache
        def get(transport: str) -> Server | None:
            if not SECONDS:
                return None
            url = URLS[transport](f"b{os.getpid()}-{next(_numbers)}", runtime_dir)
            return stack.enter_context(closing(Server(url, {}, with_clocks=False)))

        yield get


@pytest.fixture
def attempt(
    servers: Callable[[str, dict[str, Any]], Server],
    bystanders: Callable[[str], Server | None],
    request: pytest.FixtureRequest,
) -> Callable[[Attack, str], None]:
    """Runs an attack, and notes what was measured."""

    def run(attack: Attack, transport: str) -> None:
        trial = Trial(attack, servers(transport, attack.server), transport, bystanders(transport))
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
