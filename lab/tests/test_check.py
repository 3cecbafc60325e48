"""What `check` says of adapters that keep their promises, and of those that do not."""

from __future__ import annotations

import functools
import shutil
import time
from pathlib import Path

import pytest

from nearcall_lab.check import promises
from nearcall_lab.check.promises import PROMISES, Broken, NotPromised, Subject
from nearcall_lab.cli import main
from nearcall_lab.registry import Entrant, discover, entrants_of, program_of
from nearcall_lab.scenario.cell import Mode, Work


@functools.cache
def _entrants() -> dict[str, Entrant]:
    found = {**{e.mechanism.name: e for e in discover()}, **{e.mechanism.name: e for e in entrants_of("liars")}}
    return found | {e.mechanism.name: e for module in ("able", "cheats") for e in entrants_of(module)}


@pytest.fixture
def subjects() -> dict[str, Subject]:
    return {name: Subject(entrant, True, []) for name, entrant in _entrants().items()}


PROMISE = dict(PROMISES)


@pytest.mark.parametrize("title", PROMISE)
def test_an_able_adapter_keeps_every_promise(subjects: dict[str, Subject], title: str) -> None:
    # The asynchronous one claims concurrent calls; only the other one's client notices a death.
    name = "able" if title == "a killed server" else "able-async"
    assert PROMISE[title](subjects[name])


@pytest.mark.parametrize(
    ("name", "title", "seen"),
    [
        ("wrong-content", "echo integrity", "byte"),
        ("wrong-length", "echo integrity", "bytes instead of"),
        ("never-asks", "echo integrity", r"the server handled 0"),
        ("raises", "echo integrity", "ValueError"),
        ("able-loses", "one-way messages", "lost"),
        ("able-invents-streams", "stream", "stream"),
        ("able-async", "a killed server", "did not answer within"),
        ("answers-itself", "a server that stands still", r"answered \d+ calls while its server stood still"),
        ("answers-itself", "typed call", "do not have the server's secret"),
        ("answers-typed-itself", "typed call", "do not have the server's secret"),
        ("hides-its-errors", "a killed server", r"answered \d+ calls after its server was dead"),
        ("answers-itself", "a killed server", r"answered \d+ calls after its server was dead"),
        ("slows-the-labs-clock", "the clock", "a call that waits 0.05 s at the server took 0.01"),
        ("hurries-the-labs-clock", "the clock", "it has another clock than the lab"),
        ("shortens-its-calls", "the clock", "a call that waits 0.05 s at the server took 0.01"),
        ("shortens-its-calls", "a server that stands still", "its times are not those of the machine's clock"),
        ("calls-its-work-waiting", "CPU of both sides", "s of CPU time were waiting, and nothing was due"),
    ],
)
def test_a_broken_promise_is_found(
    subjects: dict[str, Subject], name: str, title: str, seen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(promises, "_DEATH_NOTICED_S", 2.0)  # it is in vain that this one is waited for
    with pytest.raises(Broken, match=seen):
        PROMISE[title](subjects[name])


def test_python_s_clocks_are_read_before_an_adapter_can_slow_them(subjects: dict[str, Subject]) -> None:
    subject = subjects["runs-slow-clocks"]
    begin = time.monotonic()
    launch = subject.launch(Work("wait", delay_s=0.05), Mode(calls=10, warmup_s=0.0))
    assert 0.49 < launch.wall_s <= launch.seen_s < time.monotonic() - begin
    assert launch.service is not None
    assert launch.service.min > 49_000_000
    for title in ("the clock", "CPU of both sides", "a server that stands still"):
        assert PROMISE[title](subject)


def test_a_server_in_a_daemon_is_counted_stopped_and_ended(subjects: dict[str, Subject]) -> None:
    subject = subjects["hides-its-server"]
    launch = subject.launch(Work("echo", size=1_000), Mode(seconds=0.2))
    assert launch.server.processes == 2
    # For each call it reads, decodes, encodes and writes: two system calls and the interpreter. Its parent only waits.
    assert launch.server.cpu_s > 3e-6 * launch.calls, "what the daemon used is not counted"
    for title in ("a server that stands still", "a killed server"):
        assert PROMISE[title](subject)
    with pytest.raises(Broken, match="process"):
        PROMISE["nothing left behind"](subject)


def test_a_client_that_ends_without_a_word_when_its_server_dies(tmp_path: Path) -> None:
    program = Path(shutil.copytree(Path(__file__).parent / "foreign_echo", tmp_path / "quiet"))
    source = (program / "echo.py").read_text()
    assert "return {type(error).__name__: 1}" in source
    (program / "echo.py").write_text(source.replace("return {type(error).__name__: 1}", "return {}"))
    with pytest.raises(Broken, match="no call failed"):
        PROMISE["a killed server"](Subject(program_of(program / "adapter.toml"), True, []))


def test_what_is_not_claimed_is_not_a_fault(subjects: dict[str, Subject]) -> None:
    with pytest.raises(NotPromised, match="one call at a time"):
        PROMISE["calls that overlap"](subjects["multiprocessing"])
    with pytest.raises(NotPromised, match="has no count"):
        PROMISE["stream"](subjects["multiprocessing"])


def test_left_overs_are_named(subjects: dict[str, Subject]) -> None:
    subject = subjects["able"]
    subject.left_behind.append("/dev/shm/nclab-something")
    with pytest.raises(Broken, match="/dev/shm/nclab-something"):
        PROMISE["nothing left behind"](subject)


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "raw-pipe", "--quick"]) == 0
    shown = capsys.readouterr().out
    assert "kept   echo integrity: 0 B to 1 MB" in shown
    assert "several connections: has no wait" in shown


def test_the_command_knows_no_such_adapter(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "raw-pip"]) == 2
    said = capsys.readouterr()
    assert "no mechanism 'raw-pip'" in said.out + said.err
    assert 'did you mean "raw-pipe"' in said.out + said.err
