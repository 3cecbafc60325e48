"""Peers are built once; ``make interop`` ends with a table of what held."""

from __future__ import annotations

import os
from collections.abc import Generator
from typing import Any

import pytest

from .cells import Cell, table
from .peers import PEERS, Peer

IS_WHOLE = bool(os.environ.get("NEARCALL_INTEROP"))
"""``make interop``: all peers, rather than those that need nothing but Python."""

_found: dict[Cell, str] = {}


@pytest.fixture(scope="session")
def built() -> dict[str, Peer]:
    """The peers that are ready."""
    return {}


@pytest.fixture
def peer(cell: Cell, built: dict[str, Peer]) -> Peer:
    """The other implementation; the test is skipped where it cannot be had."""
    name = cell.column.peer
    if name not in built:
        found = PEERS[name]
        if found.needs and not IS_WHOLE:
            pytest.skip(f"{name} is for `make interop`")
        if found.lacks:
            pytest.skip(f"{name} needs {found.lacks}, which is not installed")
        found.build()
        built[name] = found
    return built[name]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    callspec = getattr(item, "callspec", None)
    cell = callspec.params.get("cell") if callspec else None
    if isinstance(cell, Cell):
        if report.failed:
            _found[cell] = "FAILED"
        elif report.skipped:
            _found[cell] = "missing"
        else:
            _found.setdefault(cell, "ok")
    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if IS_WHOLE and _found:
        terminalreporter.section("gRPC's interoperability cases")
        for line in table(_found):
            terminalreporter.line(line)
