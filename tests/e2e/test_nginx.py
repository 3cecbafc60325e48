"""A real nginx in front of two servers: `examples/behind_nginx`, as its page says."""

from __future__ import annotations

import importlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import nearcall

from .ports import own_port

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/behind_nginx"
NGINX = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
PATIENCE = 30.0

pytestmark = pytest.mark.skipif(NGINX is None, reason="no nginx here (Debian: nginx-light)")


def until_listens(process: subprocess.Popen[str], what: Path | int) -> None:
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        assert process.poll() is None, process.communicate()[0]
        with socket.socket(socket.AF_UNIX if isinstance(what, Path) else socket.AF_INET) as probe:
            if probe.connect_ex(str(what) if isinstance(what, Path) else ("127.0.0.1", what)) == 0:
                return
        time.sleep(0.02)
    raise TimeoutError(f"nobody listens at {what}")


def start(folder: Path, *command: str) -> subprocess.Popen[str]:
    return subprocess.Popen(command, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def serve(folder: Path, name: str) -> subprocess.Popen[str]:
    """One of the two servers, at its socket."""
    url = f"http+unix://{folder}/{name}.sock"
    return start(folder, sys.executable, "-m", "nearcall", "serve", "sums:Calculator", url)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SimpleNamespace]:
    """The example's folder, its port, and its servers by name."""
    folder = tmp_path_factory.mktemp("n") / "x"  # short: it is in the path of a socket
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    port = own_port()
    conf = (folder / "nginx.conf").read_text()
    assert conf.count("8443") == 1
    (folder / "nginx.conf").write_text(conf.replace("8443", str(port)))
    (folder / "temporary").mkdir()
    subprocess.run([sys.executable, "-m", "nearcall", "dev-certs", "certs", "127.0.0.1"], cwd=folder, check=True)
    processes: dict[str, subprocess.Popen[str]] = {}
    try:
        for name in ("one", "two"):
            processes[name] = serve(folder, name)
        # Its workers would be another user, without access to the sockets.
        user = ["-g", "user root;"] if os.geteuid() == 0 else []
        processes["nginx"] = start(folder, NGINX or "", "-p", str(folder), "-c", "nginx.conf", *user)
        for name in ("one", "two"):
            until_listens(processes[name], folder / f"{name}.sock")
        until_listens(processes["nginx"], port)
        yield SimpleNamespace(folder=folder, port=port, processes=processes)
    finally:
        for process in processes.values():
            process.terminate()
        for process in processes.values():
            process.communicate(timeout=PATIENCE)


@pytest.fixture
def service(running: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The example's class, read from its file for each test process."""
    monkeypatch.syspath_prepend(str(running.folder))
    service = importlib.import_module("sums").Calculator
    monkeypatch.delitem(sys.modules, "sums")
    return service


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_the_page_says_what_comes_out(running: SimpleNamespace, scheme: str) -> None:
    page = (EXAMPLE / "README.md").read_text()
    found = re.search(rf"^\$ python call_it\.py {scheme}://127\.0\.0\.1:8443\n(.*)$", page, re.MULTILINE)
    assert found is not None
    command = [sys.executable, "call_it.py", f"{scheme}://127.0.0.1:{running.port}"]
    done = subprocess.run(command, cwd=running.folder, capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout.strip() == found[1]


def test_json_is_posted(running: SimpleNamespace) -> None:
    import ssl

    context = ssl.create_default_context(cafile=str(running.folder / "certs/ca.pem"))
    body, headers = json.dumps({"a": 1, "b": 2}).encode(), {"content-type": "application/json"}
    request = urllib.request.Request(f"https://127.0.0.1:{running.port}/Calculator/Add", body, headers)
    with urllib.request.urlopen(request, context=context, timeout=PATIENCE) as reply:
        assert reply.read() == b'{"value":3}'


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_errors_and_deadlines_go_through(running: SimpleNamespace, service: Any, scheme: str) -> None:
    tls = nearcall.TLS(ca=str(running.folder / "certs/ca.pem"))
    with nearcall.connect(f"{scheme}://127.0.0.1:{running.port}", service, tls=tls) as calc:
        with pytest.raises(nearcall.InvalidArgument, match="cannot divide by zero"):
            calc.divide(1.0, 0.0)
        with pytest.raises(nearcall.DeadlineExceeded), nearcall.timeout(0.2):
            list(calc.countdown(2**31 - 1))
        assert calc.add(1, 2) == 3


@pytest.mark.parametrize("scheme", ["grpcs", "https"])
def test_a_server_is_replaced_and_no_call_fails(running: SimpleNamespace, service: Any, scheme: str) -> None:
    tls = nearcall.TLS(ca=str(running.folder / "certs/ca.pem"))
    stopped, problems, made = threading.Event(), list[str](), threading.Semaphore(0)

    def call() -> None:
        with nearcall.connect(f"{scheme}://127.0.0.1:{running.port}", service, tls=tls) as calc:
            while not stopped.is_set():
                try:
                    assert calc.add(1, 2) == 3
                    made.release()
                except Exception as problem:
                    problems.append(str(problem))
                    return

    callers = [threading.Thread(target=call) for _ in range(2)]
    for caller in callers:
        caller.start()
    try:
        for _ in range(100):
            assert made.acquire(timeout=PATIENCE)
        old = running.processes["one"]
        old.send_signal(signal.SIGTERM)
        old.communicate(timeout=PATIENCE)
        for _ in range(200):
            assert made.acquire(timeout=PATIENCE), problems
        running.processes["one"] = again = serve(running.folder, "one")
        until_listens(again, running.folder / "one.sock")
        for _ in range(100):
            assert made.acquire(timeout=PATIENCE), problems
    finally:
        stopped.set()
        for caller in callers:
            caller.join(PATIENCE)
    assert problems == []
