"""Programs in other languages: built here where their toolchain is, and every way in which one can fail."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from nearcall_lab.cli import main
from nearcall_lab.cli.runs import carry_out
from nearcall_lab.engine.launch import measure
from nearcall_lab.engine.run import Options, begin
from nearcall_lab.environments import manage
from nearcall_lab.environments.manage import InstallFailed
from nearcall_lab.programs import build as programs
from nearcall_lab.registry import PROGRAMS, Entrant, discover, named, paired, program_of
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.load import ScenarioError, parse
from nearcall_lab.workers import worker
from nearcall_lab.workers.worker import LaunchFailed, Unsupported

QUOTES = Work("quote")
WAITS = Work("wait", delay_s=0.02)
LOCKS = {
    "go": ("go.mod", r"google\.golang\.org/grpc v(\S+)"),
    "node": ("package-lock.json", r'"node_modules/@grpc/grpc-js": \{\s+"version": "([^"]+)"'),
    "rust": ("Cargo.lock", r'name = "tonic"\nversion = "([^"]+)"'),
    "java": ("pom.xml", r"<grpc\.version>([^<]+)<"),
}


def entrant(name: str) -> Entrant:
    found = named(name, discover())
    assert found is not None
    return found


MECHANISMS = {"go": "grpc-go", "node": "grpc-node", "rust": "tonic", "java": "grpc-java"}
BUILT_HERE = ("go", "node")
"""Those that are built in less than a minute."""


@pytest.fixture(params=MECHANISMS)
def built(request: pytest.FixtureRequest) -> Entrant:
    """The mechanism of a program, which is built once for this environment and stays, as `install` makes it."""
    language: str = request.param
    if why := programs.missing(language):
        if language not in BUILT_HERE:
            pytest.skip(f"{MECHANISMS[language]}: {why}")
        try:
            programs.build(language)
        except InstallFailed as reason:  # no toolchain, or no registry
            pytest.skip(f"{language} cannot be built here: {reason}")
    return entrant(MECHANISMS[language])


@pytest.mark.parametrize("work", [QUOTES, WAITS], ids=["quote", "wait"])
def test_a_program_is_measured(built: Entrant, work: Work) -> None:
    mode = Mode(connections=2, outstanding=4, seconds=0.2, warmup_s=0.05)
    launch = measure(Cell(built.mechanism.name, work, mode), built, 0, 0)
    assert launch.calls > 8
    assert launch.warmup_calls > 8
    assert not launch.errors
    assert launch.server_opened == 2
    assert launch.response is not None
    assert launch.response.min >= work.delay_s * 1e9 * 0.98
    assert launch.client.cpu_s > 0
    assert launch.server.cpu_s > 0


def test_a_program_makes_bursts(built: Entrant) -> None:
    mode = Mode("burst", calls=50, outstanding=50, seconds=0.1, warmup_s=0.0)
    launch = measure(Cell(built.mechanism.name, WAITS, mode), built, 0, 0)
    assert launch.calls == launch.due
    assert launch.calls % 50 == 0
    assert launch.phases["burst"].min >= 0.02 * 1e9 * 0.98
    assert launch.phases["burst"].mean < 25 * 0.02 * 1e9, "the calls of a burst overlap"


def test_a_program_says_what_it_cannot_do(built: Entrant) -> None:
    with pytest.raises(Unsupported, match="has no mode open"):
        measure(Cell(built.mechanism.name, QUOTES, Mode("open", rate=10)), built, 0, 0)


@pytest.mark.parametrize("other", ["grpc-aio-tcp", "nearcall-aio-grpc"])
def test_any_client_calls_any_server(built: Entrant, other: str) -> None:
    peer = entrant(other)
    if peer.problem:
        pytest.skip(peer.problem)
    for client, server in ((built, peer), (peer, built)):
        pair = paired(client, server)
        for work in (QUOTES, WAITS):
            launch = measure(Cell(pair.mechanism.name, work, Mode(outstanding=3, calls=12, warmup_s=0.0)), pair, 0, 0)
            assert launch.calls == 12


def test_a_pair_is_found_by_its_name() -> None:
    pair = entrant("grpc-go@nearcall-grpc")
    assert pair.mechanism.label == "grpc-go → nearcall grpc"
    assert pair.mechanism.operations == ("quote", "wait")
    assert pair.sides is not None
    assert [side.mechanism.name for side in pair.sides] == ["grpc-go", "nearcall-grpc"]
    assert named("grpc-go@nobody", discover()) is None


def test_a_scenario_pairs_clients_with_servers() -> None:
    text = """
        title = "pairs"
        [[cells]]
        mechanisms = ["grpc-go", "nearcall-grpc"]
        servers = {servers}
        operation = "quote"
    """
    planned = parse("pairs", text.format(servers='["nearcall-grpc", "grpc-node"]'), discover()).planned
    assert {each.cell.mechanism for each in planned} == {
        "grpc-go@nearcall-grpc", "grpc-go@grpc-node", "nearcall-grpc", "nearcall-grpc@grpc-node",
    }  # fmt: skip
    with pytest.raises(ScenarioError, match=r'"pynng" matches no mechanism that others can call'):
        parse("pairs", text.format(servers='["pynng"]'), discover())
    with pytest.raises(ScenarioError, match="raw-unix does not speak the protocol of grpc-go"):
        parse("pairs", text.replace('"nearcall-grpc"]', '"raw-unix"]').format(servers='["grpc-go"]'), discover())


@pytest.mark.parametrize("language", programs.LANGUAGES)
def test_the_version_that_is_shown_is_the_one_that_is_locked(language: str) -> None:
    file, pattern = LOCKS[language]
    locked = re.search(pattern, (programs.source(language) / file).read_text())
    assert locked is not None
    assert program_of(programs.source(language) / "adapter.toml").version == locked[1]


def test_without_a_toolchain_there_are_rows_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(manage, "home", lambda name: tmp_path / name)
    reasons = {name: entrant(name).problem for name in ("grpc-go", "grpc-node", "tonic", "grpc-java")}
    assert reasons == {
        "grpc-go": "there is no go on the PATH",
        "grpc-node": "there is no node and no npm on the PATH",
        "tonic": "there is no cargo on the PATH",
        "grpc-java": "there is no java and no mvn on the PATH",
    }
    assert main(["install", "go"]) == 1
    assert "go: not installed: there is no go on the PATH" in capsys.readouterr().out
    monkeypatch.setattr(manage, "definitions", dict)
    assert main(["install"]) == 0, "a toolchain that is not here is no failure of what was not asked for"
    assert "node: left out: there is no node and no npm on the PATH" in capsys.readouterr().out


def test_what_was_built_from_other_source_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(programs, "lacks", lambda name: "")
    monkeypatch.setattr(manage, "home", lambda name: tmp_path / name)
    assert programs.missing("go") == "a program that is to be built first: nearcall-lab install go"
    monkeypatch.setitem(programs.LANGUAGES, "go", programs.Language("for a test", (), lambda folder: None))
    programs.build("go")
    assert (tmp_path / "go" / "lab.proto").is_file()
    assert programs.missing("go") == ""
    monkeypatch.setattr(programs, "_digest", lambda name: "another")
    assert "source has changed since it was built" in programs.missing("go")


def test_a_build_that_fails_says_why_and_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def steps(folder: Path) -> None:
        programs.run(["sh", "-c", "echo the registry is away >&2; exit 3"], folder)

    monkeypatch.setattr(manage, "home", lambda name: tmp_path / name)
    monkeypatch.setitem(programs.LANGUAGES, "node", programs.Language("for a test", (), steps))
    with pytest.raises(InstallFailed, match="the registry is away"):
        programs.build("node")
    assert "nearcall-lab install node" in programs.missing("node")


FAULTY = """
import json, os, sys, time
role, config = sys.argv[1], json.loads(sys.argv[2])
requests = os.fdopen(config["read_fd"], "rb")
fault = {fault!r}


def say(text):
    os.write(config["write_fd"], text.encode() + b"\\n")


def answer(do):
    if fault.get(do) == "die":
        sys.exit("it has died of something")
    if fault.get(do) == "silence":
        time.sleep(60)
    say(fault.get(do) or {right!r}.get(do) or json.dumps({{"unsupported": do}}))


answer("ready" if role == "server" else "loaded")
for line in requests:
    answer(json.loads(line)["do"])
"""
RIGHT = {
    "ready": '{"ready": "here"}',
    "loaded": '{"loaded": true}',
    "secret": '{"secret": true}',
    "prepare": '{"first_call_ns": 1, "warmup_calls": 1, "warmed_up": true, "slots": 1}',
    "go": '{"ran": true}',
    "served": '{"served": 1}',
}


def faulty(folder: Path, **fault: str) -> Entrant:
    """A program that answers this to such a request; it may also ``die``, or keep ``silence``."""
    folder.mkdir(exist_ok=True)
    (folder / "program.py").write_text(FAULTY.format(fault=fault, right=RIGHT))
    program = 'program = ["python3", "-S", "program.py"]'
    (folder / "adapter.toml").write_text(f'name = "faulty"\nlabel = "faulty"\nfamily = "rpc"\n{program}')
    return program_of(folder / "adapter.toml")


@pytest.mark.parametrize(
    ("do", "says", "reason"),
    [
        ("ready", "[1, 2]", r"server sent something that is not a message \(a line is no JSON object\)"),
        ("ready", "[" * 100_000, "server sent something that is not a message"),
        ("ready", '{"ready": 5}', "its first answer must be where it is ready"),
        ("ready", "silence", "server did not answer within 1 s"),
        ("loaded", '{"blob": -1}', r"client sent something that is not a message \(blob is -1"),
        ("loaded", '{"blob": 9999999999999}', "blob is 9999999999999, not a number of bytes up to"),
        ("loaded", '{"blob": "many"}', "blob is 'many', not a number of bytes"),
        ("prepare", "{}", "a worker's answer cannot be used: KeyError: 'first_call_ns'"),
        ("prepare", "die", r"client ended unexpectedly \(exit status 1\): it has died of something"),
        ("go", "die", r"client ended unexpectedly \(exit status 1\): it has died of something"),
        ("go", '{"error": "the other side is gone"}', "client: the other side is gone"),
        ("results", '{"columns": ["started"], "rows": 7}', "a worker's answer cannot be used: ValueError"),
        ("results", '{"columns": 1, "rows": 1}', "a worker's answer cannot be used: TypeError"),
        ("results", "die", "client ended unexpectedly"),
    ],
)
def test_a_faulty_program_fails_with_its_reason(
    do: str, says: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "START_TIMEOUT_S", 1.0)
    with pytest.raises(LaunchFailed, match=reason) as caught:
        measure(Cell("faulty", Work(size=10), Mode(seconds=0.1)), faulty(tmp_path / "it", **{do: says}), 0, 0)
    assert "\n" not in str(caught.value)
    assert caught.value.logs is not None
    shutil.rmtree(caught.value.logs)


def test_a_line_without_an_end_is_not_read_for_ever(tmp_path: Path) -> None:
    with pytest.raises(LaunchFailed, match="a line is longer than") as caught:
        measure(Cell("faulty", Work(size=10), Mode()), faulty(tmp_path, ready="x" * (17 << 20)), 0, 0)
    assert caught.value.logs is not None
    shutil.rmtree(caught.value.logs)


def test_a_faulty_program_is_a_row_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty(tmp_path / "it", go="die")
    monkeypatch.setenv(PROGRAMS, str(tmp_path / "it"))
    text = 'title = "two"\n[run]\nlaunches = 1\nseconds = 0.05\nwarmup_s = 0.0\n[[cells]]\nsize = 15\n'
    scenario = parse("two", f'{text}mechanisms = ["faulty", "raw-unix"]', discover())
    run = begin(tmp_path / "run", scenario, Options(1))
    recorded = carry_out(run, list(scenario.planned), Console(quiet=True))
    found = {cell.cell.mechanism: cell for cell in recorded.cells}
    assert found["faulty"].status == "failed"
    assert "it has died of something" in found["faulty"].problem
    assert found["raw-unix"].status == "ok"
