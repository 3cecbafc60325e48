"""``nearcall serve`` with a file, the environment and functions of the user's, with and without workers."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import nearcall
from nearcall.cli import main

APP = """
import nearcall

class Sold(Exception): pass

@nearcall.service
class Shop:
    def __init__(self):
        self.lines = []
    def order(self, item: str) -> str:
        if item == "gone":
            raise Sold(item)
        return f"{item} of {stock['of']}"

stock = {}

def lifespan(server):
    stock["of"] = "the cellar"
    print("up", flush=True)
    yield
    print("down", flush=True)

def only_tools(call, proceed):
    if call.kwargs.get("item") == "cake" or "cake" in call.args:
        raise nearcall.PermissionDenied("no cake")
    return proceed(call)

error_handlers = {Sold: lambda error: nearcall.NotFound(f"no {error} left")}
not_a_service = 5
"""
CONFIG = """
[serve]
services = ["app:Shop"]
urls = ["shm://not-this-one"]
lifespan = "app:lifespan"
interceptors = ["app:only_tools"]
error_handlers = "app:error_handlers"
max_pending = 100
"""


@nearcall.service
class Shop:
    def order(self, item: str) -> str: ...


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "nearcall.toml").write_text(CONFIG)
    return tmp_path


def serve(directory: Path, *arguments: str, **variables: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "nearcall", "serve", *arguments],
        cwd=directory,
        env=os.environ | variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("workers", [(), ("--workers", "2")])
def test_everything_from_a_file(directory: Path, key: str, workers: tuple[str, ...]) -> None:
    url = f"shm://settings{key}"
    with serve(directory, *workers, NEARCALL_SERVE_URLS=url) as process:
        try:
            assert process.stderr is not None
            assert process.stdout is not None
            said = process.stderr.readline()
            assert re.fullmatch(rf"serving app:Shop at {url}( with 2 workers)?\n", said), said
            with nearcall.connect(url, Shop) as shop:
                assert shop.order("pen") == "pen of the cellar"
                with pytest.raises(nearcall.PermissionDenied, match="no cake"):
                    shop.order("cake")
                with pytest.raises(nearcall.NotFound, match="no gone left"):
                    shop.order("gone")
            process.send_signal(signal.SIGTERM)
            times = 2 if workers else 1
            # Two workers may print in the middle of each other's line.
            assert sorted(re.findall("up|down", process.stdout.read())) == ["down"] * times + ["up"] * times
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_a_line_for_each_call(directory: Path, key: str) -> None:
    """From a file's name, too: what it imports stands beside it."""
    url = f"shm://access{key}"
    (directory / "elsewhere").mkdir()
    with serve(directory / "elsewhere", "../app.py:Shop", url, "--access-log") as process:
        try:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert line.endswith(f"INFO nearcall: serving at {url}\n"), line
            with nearcall.connect(url, Shop) as shop, pytest.raises(nearcall.Unknown):
                shop.order("gone")  # nobody makes a status of it here
            process.send_signal(signal.SIGTERM)
            log = process.stderr.read()
            assert f"serving ../app.py:Shop at {url}" not in log  # the log has said so
            assert re.search(r"WARNING nearcall\.access: server Shop\.order UNKNOWN [\d.]+ ms pid=", log), log
            assert process.wait(20) == 0
        finally:
            process.kill()


@pytest.mark.parametrize("abstract", [False, True])
def test_the_service_manager_is_told(directory: Path, key: str, abstract: bool) -> None:
    path = f"@nearcall-{key}" if abstract else str(directory / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(path.replace("@", "\0"))
        manager.settimeout(20)
        with serve(directory, f"shm://told{key}", NOTIFY_SOCKET=path) as process:
            try:
                assert manager.recv(100) == b"READY=1"
                nearcall.connect(f"shm://told{key}", Shop).close()
                process.send_signal(signal.SIGTERM)
                assert process.wait(20) == 0
            finally:
                process.kill()


def test_the_command_as_a_child(directory: Path) -> None:
    (directory / "nearcall.toml").unlink()
    command = [sys.executable, "-m", "nearcall", "serve", "app:Shop", "stdio:"]
    with nearcall.spawn(command, Shop, cwd=directory) as shop, pytest.raises(nearcall.Unknown):
        shop.order("gone")


@pytest.mark.parametrize(
    ("arguments", "variables", "line"),
    [
        (
            (),
            {"MAX_PENDING": "0"},
            "max_pending must be a whole number from 1, not 0 (set in NEARCALL_SERVE_MAX_PENDING)",
        ),
        ((), {"LIFESPAN": "app:nothing"}, "module 'app' has no 'nothing' (set in NEARCALL_SERVE_LIFESPAN)"),
        (
            ("--interceptor", "app:nothing"),
            {"ON_CONNECT": "no.such:name"},
            "there is no module 'no' here: check the name and the directory (set in NEARCALL_SERVE_ON_CONNECT); "
            "module 'app' has no 'nothing' (as a flag: --interceptor)",
        ),
        ((), {"LIFESPAN": "app:not_a_service"}, "lifespan must be a function that takes the server, not 5 (set in"),
        (("--interceptor", "app:stock"), {}, "interceptors must be a list of functions, and {} is none"),
        (("--max-pending", "0"), {}, "max_pending must be a whole number from 1, not 0 (as a flag: --max-pending)"),
        (("--config", "app.py"), {}, "app.py is no TOML: "),
        (("--config", ""), {"SERVICES": ""}, "what is to be served? write MODULE:CLASS before the URLs"),
        (("--config", "", "app:Shop"), {}, "where is it to be served? write a URL"),
        ((), {"COMPRESSION": "gzip"}, "compression is for"),
        (("--log-level", "loud"), {}, "--log-level must be debug, info, warning or error, not 'loud'"),
    ],
)
def test_one_line_for_a_mistake(
    directory: Path,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(directory)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    for name, value in variables.items():
        monkeypatch.setenv(f"NEARCALL_SERVE_{name}", value)
    try:
        assert main(["serve", *arguments]) in (1, 2)
    finally:
        sys.modules.pop("app", None)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    assert line in err
