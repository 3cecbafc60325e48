"""For all tests: a runtime directory of their own, and a look at what they leave behind."""

from __future__ import annotations

import gc
import json
import logging
import os
import shutil
import signal
import statistics
import tempfile
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from .e2e.ports import let_go
from .turns import take_turns

NOTICED = "how soon a death was noticed"
"""What a test reports as a property of its own: by whom, and lists of seconds."""
ATTACKED = "what attacks did to an honest client"
"""The property with what was measured during one attack."""


def pytest_configure() -> None:
    """A shell's background jobs ignore Ctrl-C, and so would every program that the tests start and interrupt."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, Any, Any]:
    """What is made meanwhile stays, and need not be looked through again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left = take_turns(items)
    if left:
        config.hook.pytest_deselected(items=left)
        without = set(left)
        items[:] = [item for item in items if item not in without]


def pytest_collection_finish() -> None:
    _pass_over_what_stays()


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """After each file: of every test something is kept to the end, a hundred objects or so."""
    if nextitem is None or nextitem.path != item.path:
        _pass_over_what_stays()


def _pass_over_what_stays() -> None:
    """What was made until now stays to the end: tests that look for garbage need not look through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Made by ``nearcall dev-certs``, and trusted by this process, which reads whom to trust once: one set for all."""
    from nearcall import cli

    directory = tmp_path_factory.mktemp("certificates")
    assert cli.main(["dev-certs", str(directory), "127.0.0.1"]) == 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(directory / "ca.pem"))
        patch.setenv("NEARCALL_TEST_CERTIFICATES", str(directory))
        yield directory


@pytest.fixture(scope="session", autouse=True)
def runtime_dir() -> Iterator[Path]:
    """Where the sockets of named servers are; empty again when the tests are through."""
    # Not pytest's own directory for temporary files: the path of a socket must be short.
    directory = Path(tempfile.mkdtemp(prefix="nc-"))
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(directory)
    shared = set(os.listdir("/dev/shm"))
    yield directory
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before
    left = [str(path.relative_to(directory)) for path in directory.rglob("*") if not path.is_dir()]
    shutil.rmtree(directory)
    assert left == [], "servers left files behind"
    # Others may use it at the same time, but under names of their own.
    ours = [name for name in set(os.listdir("/dev/shm")) - shared if "nearcall" in name]
    assert ours == []


@pytest.fixture(autouse=True)
def logs() -> None:
    """What nearcall logs is heard, even if a program that an earlier test ran in this process has turned that off."""
    logger = logging.getLogger("nearcall")
    logger.setLevel(logging.NOTSET)
    logger.disabled = False


@pytest.fixture(autouse=True)
def ports() -> Iterator[None]:
    """A test's TCP ports are its own until its end."""
    yield
    let_go()


@pytest.hookimpl(wrapper=True)
def pytest_report_to_serializable() -> Generator[None, Any, Any]:
    """What tests say on purpose may not be UTF-8, which is all that a worker process can tell."""
    return _as_utf8((yield))


def _as_utf8(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    if isinstance(value, dict):
        return {key: _as_utf8(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_as_utf8, value))
    return value


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Here and from reports, since the tests may have run in worker processes."""
    noticed = defaultdict[str, list[float]](list)
    attacked = []
    for report in (report for reports in terminalreporter.stats.values() for report in reports):
        if getattr(report, "when", None) == "teardown":
            for name, found in report.user_properties:
                if name == NOTICED:
                    noticed[found[0]] += found[1]
                elif name == ATTACKED:
                    attacked.append(found)
    if attacked:
        _tell_attacks(terminalreporter, attacked)
    if noticed:
        terminalreporter.section(NOTICED)
    for who, seconds in sorted((who, seconds) for who, seconds in noticed.items() if seconds):
        took = sorted(1000 * one for one in seconds)
        late = took[int(0.99 * (len(took) - 1))]
        terminalreporter.line(
            f"{who:<24} {len(took):>5} deaths, median {statistics.median(took):.2f} ms, "
            f"p99 {late:.2f} ms, longest {took[-1]:.2f} ms"
        )


_GOAL = 0.001
"""Seconds: what the p99 of an honest client is to stay below."""


def _tell_attacks(terminalreporter: Any, rows: list[dict[str, Any]]) -> None:
    """A table in the long form, a line in the short one; both are in ``out/hostile`` in full."""
    path = Path(__file__).parents[1] / "out" / "hostile" / "attacks.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1))
    terminalreporter.section(ATTACKED)
    rows.sort(key=lambda row: (row["attack"], row["transport"]))
    if os.environ.get("NEARCALL_HOSTILE_SECONDS"):
        terminalreporter.line(
            f"{'attack':<58} {'over':<5} {'calls':>6} {'p50 ms':>8} {'p99 ms':>8} {'longest':>8} {'elsewhere':>9} "
            f"{'Python':>8} {'handlers':>8} {'grown':>9}"
        )
        for row in rows:
            names = ("calls", "p50", "p99", "longest", "bystander", "interpreter", "handlers")
            calls, p50, p99, longest, bystander, interpreter, handlers = (row.get(name, 0) for name in names)
            terminalreporter.line(
                f"{row['attack']:<58} {row['transport']:<5} {calls:>6} {1000 * p50:>8.2f} {1000 * p99:>8.2f} "
                f"{1000 * longest:>8.1f} {1000 * bystander:>9.2f} {1000 * interpreter:>8.2f} "
                f"{1000 * handlers:>8.2f} {row.get('grown', 0) >> 20:>5} MiB"
                f"{'  ' + row['complaints'][0][:160] if row['complaints'] else ''}"
            )
    well = [row for row in rows if not row["complaints"]]
    if well:
        worst = max(well, key=lambda row: row["p99"])
        most = max(well, key=lambda row: row["grown"])
        terminalreporter.line(
            f"{len(well)} of {len(rows)} attacks did nothing; the worst p99 of an honest client beside one was "
            f"{1000 * worst['p99']:.2f} ms ({worst['attack']} over {worst['transport']}), and the server grew by "
            f"{most['grown'] >> 20} MiB at most ({most['attack']} over {most['transport']})"
        )
    slow = [row for row in well if row["p99"] >= _GOAL and "interpreter" in row]
    if slow:
        # A call needs the interpreter twice and the sleeping thread once.
        why = ("bystander", "interpreter", "handlers")
        by = Counter(next((name for name in why if row[name] >= row["p99"] / 2), "own") for row in slow)
        own = sorted(
            f"{row['attack']} over {row['transport']}" for row in slow if max(map(row.get, why)) < row["p99"] / 2
        )
        terminalreporter.line(
            f"the p99 was {1000 * _GOAL:g} ms or more beside {len(slow)} attacks; in {by['bystander']} of them a call "
            "of a server that nobody attacked took half as long or more, so the machine was busy ('elsewhere'); in "
            f"{by['interpreter']} more a thread of the server that only sleeps was as late, so its interpreter was "
            f"('Python'); in {by['handlers']} more every worker of the server slept in a handler for as long "
            f"('handlers'); in {len(own)} none of these: {', '.join(own) or 'none'}"
        )
