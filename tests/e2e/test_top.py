"""``nearcall top``: between real processes, beside clients that know what they did."""

from __future__ import annotations

import io
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import nearcall
from nearcall import cli
from nearcall.cli.top_table import rich_table
from nearcall.cli.top_view import ClientRow, compare
from nearcall.introspection import ConnectionStatistics, Introspection, Statistics

from .process import ROOT, ServerProcess
from .services import PATIENCE, Basics, Errors, Lines, Streams
from .test_introspection import counted, until

TOP = [sys.executable, "-W", "error", "-m", "nearcall", "top"]


@pytest.fixture
def server(outside_url: str) -> Iterator[ServerProcess]:
    with ServerProcess(outside_url) as server:
        yield server


def methods(line: str) -> dict[str, dict[str, Any]]:
    return {method["method"]: method for method in json.loads(line)["methods"]}


def work(url: str, rounds: int) -> None:
    with (
        nearcall.connect(url, Basics) as basics,
        nearcall.connect(url, Streams) as streams,
        nearcall.connect(url, Errors) as errors,
        nearcall.connect(url, Lines) as lines,
    ):
        for number in range(rounds):
            basics.add(number)
            basics.echo(b"12345")
            lines.log("top", number)
            if number % 10 == 0:
                assert sum(streams.count(5)) == 10
                with pytest.raises(nearcall.NotFound):
                    errors.status(5, "no", None)


@pytest.mark.slow
def test_counts_under_load_are_exact(server: ServerProcess) -> None:
    """Somebody watches already, so that every call is measured, and top shows what was counted in all."""
    with nearcall.connect(server.url, Introspection) as watcher:
        watcher.read()
        threads = [threading.Thread(target=work, args=(server.url, 100)) for _ in range(4)]
        for thread in threads:
            thread.start()
        command = [*TOP, server.url, "--once", "--json", "-i", "0.1"]
        during = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=True)
        for thread in threads:
            thread.join(PATIENCE)
        until(lambda: counted(watcher.read(), "Lines.log").calls == 400)
        until(lambda: watcher.read().in_flight == 0)
        until(lambda: watcher.read().connections == 1)
        after = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=True)
    assert (during.stderr, after.stderr) == ("", "")
    assert len(after.stdout.splitlines()) == 1
    now = methods(after.stdout)
    expected = {"Basics.add": 400, "Basics.echo": 400, "Lines.log": 400, "Streams.count": 40}
    for name, calls in expected.items():
        assert (now[name]["ended"], now[name]["started"], now[name]["in_flight"]) == ({"OK": calls}, calls, 0), name
        assert methods(during.stdout)[name]["started"] <= calls
        assert (now[name]["calls_per_second"], now[name]["p50_seconds"]) == (0, None)
    assert now["Errors.status"]["ended"] == {"NOT_FOUND": 40}
    assert (now["Basics.echo"]["bytes_in"], now["Basics.echo"]["bytes_out"]) == (2000, 2000)
    assert now["Streams.count"]["items_out"] == 200
    untouched = [method for name, method in now.items() if name not in (*expected, "Errors.status")]
    assert untouched
    assert all(method["started"] == 0 for method in untouched)
    seen = json.loads(after.stdout)
    assert (seen["pid"], seen["watchers"], seen["connections"]) == (server.pid, 2, 2)
    assert seen["in_flight"] == 0


@pytest.mark.slow
def test_a_line_for_each_look(server: ServerProcess) -> None:
    """Top alone switches measuring on: calls after its first look are all in its lines, none twice."""
    top = subprocess.Popen(
        [*TOP, server.url, "--json", "-i", "0.05"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    with top:
        assert top.stdout is not None
        assert methods(top.stdout.readline())["Basics.add"]["started"] == 0
        work(server.url, 50)
        added = 0.0
        while True:
            line = top.stdout.readline()
            add = methods(line)["Basics.add"]
            added += add["calls_per_second"] * json.loads(line)["seconds"]
            if add["started"] == add["ended"].get("OK") == 50:
                break
        assert round(added) == 50
        top.send_signal(signal.SIGINT)
        assert top.wait(20) == 130
        assert top.stderr is not None
        assert top.stderr.read() == ""


@pytest.mark.slow
def test_plain_lines(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Introspection) as watcher:
        watcher.read()
        work(server.url, 10)
        until(lambda: counted(watcher.read(), "Lines.log").calls == 10)
        command = [*TOP, server.url, "--once", "-i", "0.05"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=True)
    first, head, *rows = done.stdout.splitlines()
    assert first.startswith(f"{server.url}, process {server.pid}, nearcall {nearcall.__version__} · 0 calls/s")
    assert head.split() == ["method", "calls/s", "in", "flight", "p50", "p99", "in/s", "out/s", "calls", "errors"]
    by_name = {row.split()[0]: row.split() for row in rows}
    assert by_name["Basics.add"][-2:] == ["10", "-"]
    assert by_name["Errors.status"][-2:] == ["1", "NOT_FOUND:1"]
    assert rows.index(next(row for row in rows if "Basics.add" in row)) < len(by_name) / 2, "used methods come first"


@pytest.mark.slow
def test_connections(server: ServerProcess) -> None:
    with nearcall.connect(server.url, Basics) as basics:
        for number in range(25):
            basics.add(number)
        with nearcall.connect(server.url, Introspection) as watcher:
            until(lambda: any(row.ended == 25 for row in watcher.read_connections()))
        command = [*TOP, server.url, "--once", "--connections", "-i", "0.05"]
        plain = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=True).stdout
        told = subprocess.run([*command, "--json"], cwd=ROOT, capture_output=True, text=True, timeout=50, check=True)
        peer = next(row["peer"] for row in json.loads(told.stdout)["clients"] if row["ended"] == 25)
    _, head, *rows = plain.splitlines()
    assert head.split() == ["client", "over", "connected", "calls/s", "in", "flight", "calls", "unread", "kept"]
    assert rows[2] == "", "two connections, and then the methods"
    transport = server.url.partition(":")[0]
    (line,) = [row for row in rows[:2] if f" {transport} " in row and " 25 " in row]
    if "broker" in peer:
        assert line.startswith(f"somebody at {peer['broker']}")
    elif "address" in peer:
        assert line.startswith(peer["address"])
    else:
        pid, uid = peer.get("pid"), os.getuid()
        assert line.startswith(f"process {pid} of user {uid}" if pid else f"a process of user {uid}")
    assert rows[3].startswith("method")
    (row,) = [row for row in json.loads(told.stdout)["clients"] if row["ended"] == 25]
    assert (row["started"], row["url"]) == (25, server.url)
    assert (row["pid"], row["calls_per_second"]) == (server.pid, 0)


def test_many_connections_are_counted_and_not_all_shown() -> None:
    pytest.importorskip("rich")
    from rich.console import Console

    url, written = "tcp://a:1", io.StringIO()

    def row(number: int) -> ClientRow:
        peer = {"address": f"\x1b[31m{number}"}
        told = ConnectionStatistics(number, url, peer, 5.0, 9, 9, 0, 10, False, 1)
        return ClientRow(**msgspec.structs.asdict(told), calls_per_second=float(number))

    now = Statistics(1, "1", 0.5, 2.0, 1, 10_000, 2, 1, 0, 1, [], 3, 4)
    view = msgspec.structs.replace(compare(url, [now], [now], 1), clients=[row(number) for number in range(1000)])
    Console(width=120, file=written).print(rich_table(view, height=40))
    lines = written.getvalue().splitlines()
    busiest = [f"\\x1b[31m{number}" for number in range(999, 989, -1)]
    assert [line.split()[0] for line in lines if " tcp " in line] == busiest
    assert any(line.startswith("and 9,990 more connections") for line in lines)


@pytest.mark.slow
def test_in_a_terminal(server: ServerProcess) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "30"}
    top = subprocess.Popen(
        [*TOP, server.url, "-i", "0.05"], cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    seen = b""
    try:
        with top:
            while seen.count(b"Basics.add") < 3:
                seen += os.read(ours, 65536)
            top.send_signal(signal.SIGINT)
            while True:
                try:
                    more = os.read(ours, 65536)
                except OSError:
                    break  # nobody holds the other end any more
                seen += more
            assert top.wait(20) == 130
    finally:
        os.close(ours)
    text = seen.decode()
    assert "calls/s" in text
    # The screen is given back, and the last table stays.
    assert text.index("\x1b[?1049h") < text.index("\x1b[?1049l") < text.rindex("Basics.add")
    assert "Traceback" not in text


@pytest.mark.crash
def test_the_server_is_gone_and_comes_back(key: str) -> None:
    url = f"shm://top{key}"
    with ServerProcess(url) as first:
        top = subprocess.Popen(
            [*TOP, url, "--json", "-i", "0.05"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with top:
            assert top.stdout is not None
            assert top.stderr is not None
            assert json.loads(top.stdout.readline())["pid"] == first.pid
            first.kill()
            assert "trying again" in top.stderr.readline()
            with ServerProcess(url) as second:
                assert until(lambda: json.loads(top.stdout.readline())["pid"] == second.pid)
                top.send_signal(signal.SIGINT)
                top.communicate(timeout=20)


def test_the_same_admission_as_for_everything_else(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("secret\n")
    with nearcall.Server(Basics(), f"shm://top{key}", interceptors=[nearcall.auth.token("secret")]) as server:
        url = server.urls[0]
        assert cli.main(["top", url, "--once", "-i", "0.05"]) == 1
        assert "UNAUTHENTICATED: nearcall.Introspection.read needs a token" in capsys.readouterr().err
        with nearcall.connect(url, Introspection, interceptors=[nearcall.auth.token("secret")]) as watcher:
            assert watcher.read().watchers == 1, "one that was not admitted does not watch"
        assert cli.main(["top", url, "--once", "-i", "0.05", "--token-file", str(token)]) == 0
        assert "Basics.add" in capsys.readouterr().out


def test_asynchronous_interceptors_are_around_it(key: str) -> None:
    seen: list[str] = []

    async def note(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        seen.append(call.method)
        return await proceed(call)

    @nearcall.service
    class Loop:
        async def one(self) -> int:
            return 1

    with (
        nearcall.Server(Loop(), f"shm://top{key}", interceptors=[note]) as server,
        nearcall.connect(server.urls[0], Introspection) as watcher,
    ):
        assert [method.method for method in watcher.read().methods] == ["Loop.one"]
        watcher.stop()
    assert seen == ["nearcall.Introspection.read", "nearcall.Introspection.stop"]


def test_a_server_that_is_not_to_be_watched(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nearcall.Server(Basics(), f"shm://top{key}", introspection=False) as server:
        assert cli.main(["top", server.urls[0], "--once"]) == 1
        assert "cannot be watched: it is made with introspection=False" in capsys.readouterr().err


def test_it_is_not_among_the_users_services(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nearcall.Server(Basics(), f"shm://top{key}") as server:
        assert cli.main(["list", server.urls[0]]) == 0
        assert "Introspection" not in capsys.readouterr().out
        with nearcall.connect(server.urls[0]) as untyped:
            assert not hasattr(untyped, "read")

    @nearcall.service(name="nearcall.Introspection")
    class Mine:
        def read(self) -> int:
            return 1

    with pytest.raises(TypeError, match="the server's own service"):
        nearcall.Server(Mine(), f"shm://top{key}")


def test_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["top", "shm://nobody", "-i", "0"]) == 2
    assert "from 0.05" in capsys.readouterr().err
    assert cli.main(["top", "shm://nobody", "--once"]) == 1
    assert "UNAVAILABLE" in capsys.readouterr().err
