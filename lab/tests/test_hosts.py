"""Servers on another machine: by a real ssh server, which is on this one, and all that can go wrong on the way."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import sshd
from nearcall_lab.hosts import connection as connections
from nearcall_lab.hosts import server as servers
from nearcall_lab.hosts.clock import Reading
from nearcall_lab.hosts.hosts import Hosts
from nearcall_lab.hosts.problem import HostFailed
from nearcall_lab.registry import Entrant, at, entrants_of
from nearcall_lab.results.model import HostInfo, Launch
from nearcall_lab.results.store import read
from nearcall_lab.scenario.cell import Cell, Mode, Work
from nearcall_lab.scenario.load import Planned
from nearcall_lab.workers.worker import LaunchFailed, Unsupported
from sshd import Sshd

RAW = {entrant.mechanism.name: entrant for entrant in entrants_of("nearcall_lab.adapters.raw_socket")}
ECHO = Work("echo", size=100)
SHORT = Mode(seconds=0.1, warmup_s=0.02)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sshd]:
    server = sshd.start(tmp_path_factory.mktemp("sshd"))
    yield server
    server.end()
    assert not sshd.nothing_stays(server.mark)


@pytest.fixture
def ssh(far: Sshd, monkeypatch: pytest.MonkeyPatch) -> Sshd:
    monkeypatch.setenv(connections.COMMAND, far.command())
    return far


def _url(far: Sshd, python: str = sys.executable, directory: str = "") -> str:
    return f"ssh://{far.address}:{far.port}?python={python}&directory={directory or far.directory / 'kept'}"


def _measure(cell: Cell, entrant: Entrant, told: list[HostInfo] | None = None) -> Launch:
    with Hosts([Planned(cell, entrant)], (told if told is not None else []).append) as hosts:
        return _in(hosts, cell, entrant)


def _in(hosts: Hosts, cell: Cell, entrant: Entrant) -> Launch:
    try:
        with hosts.fresh_processes([cell], entrant) as measure:
            return measure(cell, 3, 7)
    except LaunchFailed as failure:
        if failure.logs is not None:
            shutil.rmtree(failure.logs, ignore_errors=True)
        raise


def _why(far: Sshd, url: str) -> str:
    """The line that a user sees, which must be one and name the machine."""
    with pytest.raises(LaunchFailed) as failed:
        _measure(Cell("raw-tcp", ECHO, SHORT, host=url), RAW["raw-tcp"])
    line = str(failed.value)
    assert "\n" not in line
    assert line.startswith(url.partition("?")[0])
    return line


def _script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_launch_has_its_server_there(ssh: Sshd) -> None:
    url = _url(ssh)
    told: list[HostInfo] = []
    cell = Cell("raw-tcp", ECHO, SHORT, host=url)
    with Hosts([Planned(cell, RAW["raw-tcp"])], told.append) as hosts:
        for _ in range(2):  # over one connection
            launch = _in(hosts, cell, RAW["raw-tcp"])
            assert launch.calls > 0
            assert not launch.errors
            assert launch.left_behind == []
            assert launch.server_opened == 1
            for side in (launch.client, launch.server):
                assert side.cpu_s > 0
                assert side.processes == 1
                assert side.voluntary_switches + side.involuntary_switches > 0
            # Both clocks are one here.
            assert launch.clock is not None
            assert abs(launch.clock.offset_ns) <= launch.clock.uncertainty_ns
            assert launch.clock.round_trip_ns > 0
    assert (ssh.directory / "log").read_text().count("Accepted publickey") == 1
    assert told[0].url == url
    assert told[0].address == "127.0.0.1"
    assert told[0].placement.startswith("server pinned to CPU")
    assert told[0].remark == ""


def test_an_adapter_in_a_file_is_copied_there(ssh: Sshd) -> None:
    able = {e.mechanism.name: e for e in at(str(Path(__file__).parent / "able.py"))}["able-leaves-a-process"]
    cell = Cell(able.mechanism.name, Work("quote"), SHORT, host=_url(ssh))
    launch = _measure(cell, able)
    assert launch.calls > 0
    assert [left for left in launch.left_behind if left.endswith(f"at ssh://127.0.0.1:{ssh.port}")]
    assert not sshd.nothing_stays(ssh.mark)


def test_one_way_times_are_corrected_or_refused(ssh: Sshd) -> None:
    cell = Cell(
        "raw-tcp", Work("send", size=64), Mode("one-way", rate=500.0, seconds=0.2, warmup_s=0.02), host=_url(ssh)
    )
    try:
        launch = _measure(cell, RAW["raw-tcp"])
    except LaunchFailed as failed:
        assert "compare clocks: its median would be" in str(failed)  # noqa: PT017
        return
    assert launch.delivered == launch.sent > 0
    assert launch.response is not None
    assert launch.clock is not None
    assert launch.response.min > -launch.clock.uncertainty_ns


def test_a_clock_that_jumps_voids_the_launch(ssh: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    real, jumps = servers.ask, iter((0, 1_000_000_000))

    def jumped(*arguments: object) -> Reading:
        found = real(*arguments)  # type: ignore[arg-type]
        return Reading(found.at_ns, found.offset_ns + next(jumps), found.round_trip_ns)

    monkeypatch.setattr(servers, "ask", jumped)
    told = re.search(r"compare clocks: its clock moved by \+([\d.]+) ms against this one", _why(ssh, _url(ssh)))
    assert told
    # Both clocks are one here; what is not the jump is the error of two readings over the network.
    assert float(told[1]) == pytest.approx(1000, abs=100)


def test_what_does_not_reach_another_machine_is_unsupported(ssh: Sshd) -> None:
    with pytest.raises(Unsupported, match="goes by UDS, which does not reach another machine"):
        _measure(Cell("raw-unix", ECHO, SHORT, host=_url(ssh)), RAW["raw-unix"])


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("port", "connect: .*Connection refused; is an ssh server running there"),
        ("name", "connect: .*Could not resolve hostname"),
        ("key", r"sign in: .*Permission denied \(publickey\).*; `ssh ssh://127.0.0.1:\d+ true` must work without"),
        ("known", "connect: Host key verification failed.; `ssh ssh://"),
        ("ssh", "connect: /nowhere/ssh: No such file or directory; install OpenSSH's client"),
    ],
)
def test_no_connection(ssh: Sshd, monkeypatch: pytest.MonkeyPatch, change: str, expected: str) -> None:
    url = _url(ssh)
    if change == "port":
        url = url.replace(f":{ssh.port}", ":1")
    elif change == "name":
        url = url.replace("127.0.0.1", "nowhere.invalid")
    elif change == "key":
        monkeypatch.setenv(connections.COMMAND, ssh.command(key="wrong"))
    elif change == "known":
        monkeypatch.setenv(connections.COMMAND, ssh.command(known="nobody-known"))
    else:
        monkeypatch.setenv(connections.COMMAND, "/nowhere/ssh")
    assert re.search(expected, _why(ssh, url))


def test_no_python_there(ssh: Sshd, tmp_path: Path) -> None:
    line = _why(ssh, _url(ssh, python="/nowhere/python3"))
    assert "find Python: there is no /nowhere/python3; install one there, or name one by ?python=" in line
    broken = _script(tmp_path / "broken", 'echo "libpython is missing" >&2; exit 3')
    assert "find Python: libpython is missing; name another" in _why(ssh, _url(ssh, python=broken))


def _other_version(path: Path, version: tuple[int, ...]) -> str:
    told = f"import sys;sys.version_info={(*version, 'final', 0)}"
    return _script(path, f'exec {shlex.quote(sys.executable)} -c "{told}\n$2"')


def test_another_python_there(ssh: Sshd, tmp_path: Path) -> None:
    old = _other_version(tmp_path / "old", (3, 8, 10))
    line = _why(ssh, _url(ssh, python=old))
    assert line.endswith("the lab needs CPython 3.10 or newer there: name one by ?python=/path/to/python")
    assert "is CPython 3.8.10" in line
    told: list[HostInfo] = []
    newer = _url(ssh, python=_other_version(tmp_path / "newer", (3, 99, 1)))
    _measure(Cell("raw-tcp", ECHO, SHORT, host=newer), RAW["raw-tcp"], told)
    assert told[0].remark == f"its Python is 3.99.1, here it is {'.'.join(map(str, sys.version_info[:3]))}"


def test_a_shell_that_greets(ssh: Sshd, tmp_path: Path) -> None:
    greets = _script(tmp_path / "greets", f'echo "welcome!"; exec {shlex.quote(sys.executable)} "$@"')
    assert _measure(Cell("raw-tcp", ECHO, SHORT, host=_url(ssh, python=greets)), RAW["raw-tcp"]).calls > 0


def test_a_place_that_cannot_be_written(ssh: Sshd) -> None:
    line = _why(ssh, _url(ssh, directory="/proc/nothing"))
    assert "copy: /proc/nothing: No such file or directory; is it writable? or name another place, ?directory=" in line


def test_a_full_disk(ssh: Sshd, tmp_path: Path) -> None:
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", tmp_path], capture_output=True).returncode:
        pytest.skip("this user may not mount a small file system here")
    try:
        line = _why(ssh, _url(ssh, directory=str(tmp_path / "kept")))
        assert "copy: " in line
        assert "No space left on device; make room there or name another place, ?directory=" in line
        assert not [path for path in (tmp_path / "kept").iterdir() if path.suffix != ".lock"]
    finally:
        subprocess.run(["umount", tmp_path], check=True)


def _without_packages(path: Path, index: str) -> str:
    """This Python without what is installed in its environment."""
    base = Path(sys.base_prefix) / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"
    settings = f"PIP_CONFIG_FILE=/dev/null PIP_INDEX_URL={index} PIP_RETRIES=0 PIP_TIMEOUT=100"
    return _script(path, f'exec env {settings} {shlex.quote(str(base))} "$@"')


def test_packages_that_cannot_be_installed(ssh: Sshd, tmp_path: Path) -> None:
    alone = _without_packages(tmp_path / "alone", "http://127.0.0.1:1/")
    line = _why(ssh, _url(ssh, python=alone, directory=str(tmp_path / "kept")))
    assert "install: ERROR: No matching distribution found" in line
    assert line.endswith("can pip reach an index there? Otherwise name a Python that has what it needs, ?python=…")
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == [".lock"]


def test_a_machine_that_fails_is_tried_once(ssh: Sshd) -> None:
    url = _url(ssh, python="/nowhere/python3")
    cell = Cell("raw-tcp", ECHO, SHORT, host=url)
    before = (ssh.directory / "log").read_text().count("Accepted")
    with Hosts([Planned(cell, RAW["raw-tcp"])]) as hosts:
        for _ in range(3):
            with pytest.raises(HostFailed, match="find Python"):
                _in(hosts, cell, RAW["raw-tcp"])
    assert (ssh.directory / "log").read_text().count("Accepted") == before + 1


def test_a_connection_that_broke_is_made_again(ssh: Sshd) -> None:
    cell = Cell("raw-tcp", ECHO, SHORT, host=_url(ssh))
    with Hosts([Planned(cell, RAW["raw-tcp"])]) as hosts:
        _in(hosts, cell, RAW["raw-tcp"])
        for child in psutil.Process().children():
            if child.name() == "ssh":
                child.kill()
                child.wait(10)
        assert not sshd.nothing_stays(ssh.mark)
        assert _in(hosts, cell, RAW["raw-tcp"]).calls > 0


def test_silence_ends_what_runs_there(ssh: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LEASE_S", 1.0)
    monkeypatch.setattr(servers, "LEASE_S", 1.0)
    monkeypatch.setattr(connections, "BEAT_S", 1000.0)
    cell = Cell("raw-tcp", ECHO, SHORT, host=_url(ssh))
    with Hosts([Planned(cell, RAW["raw-tcp"])]) as hosts, hosts.fresh_processes([cell], RAW["raw-tcp"]) as measure:
        assert not sshd.nothing_stays(ssh.mark)
        with pytest.raises(LaunchFailed, match="the connection broke"):
            measure(cell, 0, 0)


STEPS = ("connected", "kept", "started", "measuring", "measured", "ending")


def _lab(far: Sshd, step: str) -> subprocess.Popen[str]:
    """A lab that has come to that step."""
    program = [sys.executable, str(Path(__file__).parent / "far_lab.py"), _url(far), step]
    pipe = subprocess.PIPE
    lab = subprocess.Popen(program, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
    assert lab.stdout is not None
    assert lab.stdout.readline() == "here\n", lab.communicate()
    assert far.started()
    return lab


def _family(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.parametrize("step", STEPS)
def test_nothing_stays_when_the_lab_is_killed(ssh: Sshd, step: str) -> None:
    lab = _lab(ssh, step)
    family = _family(lab)
    lab.kill()
    lab.communicate()
    assert not sshd.nothing_stays(ssh.mark)
    assert not psutil.wait_procs(family, timeout=30)[1]


@pytest.mark.parametrize("step", STEPS)
def test_nothing_stays_when_the_connection_breaks(ssh: Sshd, step: str) -> None:
    lab = _lab(ssh, step)
    family = _family(lab)
    for process in family:
        if process.name() == "ssh":
            process.send_signal(signal.SIGKILL)
    said, errors = lab.communicate("\n", timeout=120)
    assert not sshd.nothing_stays(ssh.mark)
    assert not psutil.wait_procs(family, timeout=30)[1]
    assert lab.returncode == 0, errors
    if step != "ending":  # there all was measured
        assert said.startswith(f"ssh://127.0.0.1:{ssh.port}, ")
        assert ": the connection broke" in said


def test_nothing_stays_when_the_lab_is_killed_while_it_installs(ssh: Sshd, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as index:  # which never answers
        alone = _without_packages(tmp_path / "alone", f"http://127.0.0.1:{index.getsockname()[1]}/")
        url = _url(ssh, python=alone, directory=str(tmp_path / "kept"))
        program = [sys.executable, str(Path(__file__).parent / "far_lab.py"), url, "installing"]
        lab = subprocess.Popen(program)
        index.settimeout(60)
        asking, _ = index.accept()
        with asking:
            lab.kill()
            lab.wait()
            assert not sshd.nothing_stays(ssh.mark)
    assert [path.suffix for path in (tmp_path / "kept").iterdir()] == [".lock"]


NETWORK = "10.231.77"


def _ip(*arguments: str) -> bool:
    return subprocess.run(["ip", *arguments], capture_output=True).returncode == 0


@pytest.fixture
def namespaces() -> Iterator[tuple[str, str]]:
    """Two networks with a cable between them: of the lab, and of the other machine."""
    names = f"nclab{uuid.uuid4().hex[:6]}", f"nclab{uuid.uuid4().hex[:6]}"
    if shutil.which("ip") is None or not all(_ip("netns", "add", name) for name in names):
        _ip("netns", "del", names[0])
        pytest.skip("this user may not make network namespaces here (ip netns add)")
    try:
        assert _ip("link", "add", names[0], "netns", names[0], "type", "veth", "peer", names[1], "netns", names[1])
        for number, name in enumerate(names, 1):
            assert _ip("-n", name, "addr", "add", f"{NETWORK}.{number}/24", "dev", name)
            assert _ip("-n", name, "link", "set", name, "up")
            assert _ip("-n", name, "link", "set", "lo", "up")
        yield names
    finally:
        for name in names:
            _ip("netns", "del", name)


def test_a_run_across_two_networks(namespaces: tuple[str, str], tmp_path: Path) -> None:
    here, there = namespaces
    (tmp_path / "sshd").mkdir()
    far = sshd.start(tmp_path / "sshd", ("ip", "netns", "exec", there), f"{NETWORK}.2")
    try:
        (tmp_path / "two.toml").write_text(f"""
title = "two networks"
[run]
launches = 1
seconds = 0.2
[[cells]]
mechanisms = ["raw-tcp", "nearcall-tcp", "grpcio-tcp", "raw-unix*"]
hosts = ["{_url(far)}"]
size = 100
""")
        command = ["ip", "netns", "exec", here, sys.executable, "-m", "nearcall_lab", "run", "two.toml", "--out", "run"]
        environment = os.environ | {connections.COMMAND: far.command()}
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not sshd.nothing_stays(far.mark)
    finally:
        far.end()
    recorded = read(tmp_path / "run")
    assert recorded.info.hosts[0].address == f"{NETWORK}.2"
    assert f"at {NETWORK}.2: " in done.stdout
    status = {cell.cell.mechanism: cell.status for cell in recorded.cells}
    assert status.pop("raw-unix") == status.pop("raw-unix-polling") == "unsupported"
    assert set(status.values()) == {"ok"}, [cell.problem for cell in recorded.cells]


FAILS = """
import sys
from nearcall_lab.contract import Mechanism, SimpleSession

MECHANISMS = tuple(Mechanism(name, name, "rpc", name) for name in ("fails-at-once", "fails-later"))


def serve(spec, ready, stop):
    print("the server's own words", file=sys.stderr, flush=True)
    if spec.mechanism.variant == "fails-at-once":
        raise RuntimeError("no luck")
    ready("nowhere")
    stop.wait()


def connect(spec):
    return SimpleSession({"echo": lambda data: b"wrong"})
"""


@pytest.mark.parametrize(
    ("name", "said"), [("fails-at-once", "server: RuntimeError: no luck"), ("fails-later", "client: ")]
)
def test_what_a_server_there_wrote_is_kept(ssh: Sshd, tmp_path: Path, name: str, said: str) -> None:
    (tmp_path / "fails.py").write_text(FAILS)
    entrant = next(e for e in at(str(tmp_path / "fails.py")) if e.mechanism.name == name)
    cell = Cell(name, ECHO, SHORT, host=_url(ssh))
    with Hosts([Planned(cell, entrant)]) as hosts:
        with pytest.raises(LaunchFailed, match=said) as failed, hosts.fresh_processes([cell], entrant) as measure:
            measure(cell, 0, 0)
        assert failed.value.logs is not None
        assert "the server's own words" in (failed.value.logs / "server.log").read_text()
        shutil.rmtree(failed.value.logs)
