"""What several workers say as one: statistics and metrics, over one connection to any of them."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from contextlib import ExitStack
from pathlib import Path

import pytest

import nearcall
from nearcall.introspection import Introspection, Statistics

from .ports import own_port
from .test_workers import until
from .workers_program import WorkersProcess

WORKERS = 3


@nearcall.service
class Counted:
    def pid(self) -> int:
        return os.getpid()


def recipe(address: str) -> str:
    """The module of the recipe for metrics in ``docs/deployment.md``, at another address."""
    page = (Path(__file__).parents[2] / "docs" / "deployment.md").read_text()
    found = re.search(r"^```python metered.py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert found is not None
    return re.sub(r'^METRICS = ".*"$', f'METRICS = "{address}"', found[1], flags=re.MULTILINE)


def run(*arguments: str) -> str:
    told = subprocess.run([sys.executable, "-m", "nearcall", *arguments], capture_output=True, text=True, check=False)
    assert told.returncode == 0, told.stderr
    return told.stdout


def one_each(url: str, served: WorkersProcess, stack: ExitStack) -> list[Counted]:
    """A client at each worker: they are handed out in turn."""
    found = [stack.enter_context(nearcall.connect(url, Counted)) for _ in served.pids]
    assert {each.pid() for each in found} == set(served.pids)
    return found


def calls(seen: list[Statistics]) -> list[int]:
    return [sum(method.calls for method in each.methods if method.method == "Counted.pid") for each in seen]


@pytest.mark.slow
def test_one_connection_tells_of_all_connections(outside_url: str) -> None:
    with (
        WorkersProcess(outside_url, workers=WORKERS, maker="tests.e2e.test_workers_together:Counted") as served,
        ExitStack() as stack,
    ):
        clients = one_each(served.url, served, stack)
        with nearcall.connect(served.url, Introspection) as watcher:

            def all_connected() -> bool:
                return len(watcher.read_all_connections()) == len(clients) + 1

            until(all_connected, "the connections")
            rows = watcher.read_all_connections()
            numbers = [row.number for row in rows]
            assert numbers == sorted(set(numbers))
            assert {row.pid for row in rows} == set(served.pids)
            assert all(row.pid == served.pids[row.worker or 0] for row in rows)
            pages: list[int] = []
            while page := watcher.read_all_connections(pages[-1] if pages else 0, 2):
                pages += [row.number for row in page]
            assert pages == numbers
            own = watcher.read_connections()
            assert {row.pid for row in own} == {watcher.read().pid}


@pytest.mark.slow
def test_one_connection_reads_the_statistics_of_all(outside_url: str) -> None:
    with (
        WorkersProcess(outside_url, workers=WORKERS, maker="tests.e2e.test_workers_together:Counted") as served,
        ExitStack() as stack,
    ):
        clients = one_each(served.url, served, stack)
        with nearcall.connect(served.url, Introspection) as watcher:
            first = watcher.read_all()
            assert [each.pid for each in first] == served.pids
            assert [each.worker for each in first] == [0, 1, 2]
            assert {each.workers for each in first} == {WORKERS}
            for number, client in enumerate(clients):
                for _ in range(number + 1):
                    client.pid()
            seen: list[Statistics] = []

            def all_counted() -> bool:
                seen[:] = watcher.read_all()
                return sum(calls(seen)) == 6

            until(all_counted, "the counts")
            assert sorted(calls(seen)) == [1, 2, 3]
            assert [each.measurement for each in seen] == [each.measurement for each in first]
            # A worker that is stopped is left out, and comes back.
            own = watcher.read().pid
            stopped = next(pid for pid in served.pids if pid != own)
            os.kill(stopped, signal.SIGSTOP)
            try:
                assert {each.pid for each in watcher.read_all()} == set(served.pids) - {stopped}
            finally:
                os.kill(stopped, signal.SIGCONT)
            until(lambda: len(watcher.read_all()) == WORKERS, "its return")
            with pytest.raises(nearcall.InvalidArgument, match="lease"):
                watcher.read_all(-1)


def test_a_measurement_of_the_others_ends_with_the_lease(key: str) -> None:
    with (
        WorkersProcess(f"shm://{key}", workers=2, maker="tests.e2e.test_workers_together:Counted") as served,
        nearcall.connect(served.url, Introspection) as watcher,
    ):
        own = watcher.read().pid

        def others() -> list[float]:
            return [each.measurement for each in watcher.read_all(0.0) if each.pid != own]

        begun = others()
        until(lambda: others() != begun, "another measurement")


def test_without_workers_all_is_one(new_url: str) -> None:
    with nearcall.Server(Counted(), new_url) as server, nearcall.connect(server.urls[0], Introspection) as watcher:
        (only,) = watcher.read_all()
        assert (only.pid, only.worker, only.workers) == (os.getpid(), None, 1)


def test_top_shows_sums_and_a_row_for_each_worker(key: str) -> None:
    with (
        WorkersProcess(f"shm://{key}", workers=WORKERS, maker="tests.e2e.test_workers_together:Counted") as served,
        ExitStack() as stack,
    ):
        one_each(served.url, served, stack)
        view = json.loads(run("top", "--once", "--json", "-i", "0.1", served.url))
        assert view["connections"] == WORKERS + 1
        assert [(each["worker"], each["pid"]) for each in view["workers"]] == list(enumerate(served.pids))
        assert view["missing"] == 0
        told = run("top", "--once", "--workers", "-i", "0.1", served.url)
        assert f"{WORKERS} workers" in told
        for number, pid in enumerate(served.pids):
            assert any(line.split()[:2] == [str(number), str(pid)] for line in told.splitlines()), told


def test_with_the_recipe_any_worker_shows_the_metrics_of_all(key: str, tmp_path: Path) -> None:
    address = f"127.0.0.1:{own_port()}"
    (tmp_path / "metered.py").write_text(recipe(address))
    command = [
        sys.executable,
        "-m",
        "nearcall",
        "serve",
        "metered:Calculator",
        f"shm://{key}",
        "--workers",
        str(WORKERS),
    ]
    command += ["--interceptor", "metered:metrics", "--lifespan", "metered:lifespan"]
    env = os.environ | {"PYTHONPATH": str(tmp_path)}
    with subprocess.Popen(command, env=env, stderr=subprocess.PIPE, text=True) as process, ExitStack() as stack:
        try:
            assert process.stderr is not None
            assert "serving" in process.stderr.readline()
            clients = [stack.enter_context(nearcall.connect(f"shm://{key}")) for _ in range(WORKERS)]
            for number, client in enumerate(clients):
                for _ in range(number + 1):
                    client.add(1, 2)

            def counts() -> list[float]:
                with urllib.request.urlopen(f"http://{address}/metrics") as page:
                    lines = page.read().decode().splitlines()
                name = 'nearcall_server_handled_total{code="OK",method="add",service="Calculator",worker="'
                return sorted(float(line.split()[-1]) for line in lines if line.startswith(name))

            for _ in range(10):  # whichever answers
                until(lambda: counts() == [1.0, 2.0, 3.0], "the counts")
        finally:
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
