"""The command line, between real processes."""

from __future__ import annotations

import contextlib
import datetime
import enum
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import cli

from .conftest import TRANSPORTS
from .process import ROOT

CALCULATOR = '''
from collections.abc import Iterator
import nearcall

@nearcall.service
class Calculator:
    """Adds."""

    def add(self, a: int, b: int = 2) -> int:
        """The sum."""
        return a + b

    async def count(self, n: int) -> "AsyncIterator[int]":
        for number in range(n):
            yield number

    def total(self, numbers: Iterator[int]) -> int:
        return sum(numbers)

    def fail(self) -> None:
        raise nearcall.NotFound("no such thing", details={"id": 1})

    def echo(self, data: bytes) -> bytes:
        return data

    def told(self) -> list[str]:
        """The metadata that came."""
        return [f"{key}: {value!r}" for key, value in nearcall.context().metadata.pairs()]

from collections.abc import AsyncIterator
'''


@nearcall.service
class Squares:
    def square(self, x: int) -> int:
        return x * x


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("cli")
    (path / "calculator.py").write_text(CALCULATOR)
    return path


@pytest.fixture(scope="module")
def command(directory: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nearcall", *arguments],
            cwd=directory,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )

    return run


@pytest.fixture(scope="module")
def urls(directory: Path, runtime_dir: Path) -> Iterator[list[str]]:
    """``nearcall serve`` at every URL that other processes reach."""
    asked = [*(TRANSPORTS[name](f"cli{os.getpid()}", runtime_dir) for name in ("shm", "unix")), "tcp://127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "nearcall", "serve", "calculator:Calculator", *asked],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr is not None
            said = [process.stderr.readline() for _ in asked]
            found = [re.fullmatch(r"serving calculator:Calculator at (\S+)\n", line) for line in said]
            assert all(found), said
            yield [match[1] for match in found if match]
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_serve_says_where_it_listens(urls: list[str]) -> None:
    assert [url.partition("://")[0] for url in urls] == ["shm", "unix", "tcp"]
    assert not urls[2].endswith(":0")


def test_list(command: Any, urls: list[str]) -> None:
    for url in urls:
        done = command("list", url)
        assert done.returncode == 0, done.stderr
        assert "Calculator  # Adds." in done.stdout
        assert "add(a: int, b: int = ...) -> int  # The sum." in done.stdout
    description = json.loads(command("list", "--json", urls[0]).stdout)
    assert description["services"][0]["name"] == "Calculator"


def test_list_without_a_url_names_the_servers_that_live(
    command: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = command("list")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"no server of yours is at shm:// (its sockets would be in {tmp_path}/nearcall)\n"
    with socket.socket(socket.AF_UNIX) as dead:  # as one that was killed leaves it
        dead.bind(str(tmp_path / "nearcall" / "dead.sock"))
    with nearcall.Server(Squares(), "shm://alive", "shm://other"):
        done = command("list")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == "".join(f"shm://{name}  process {os.getpid()}  Squares\n" for name in ("alive", "other"))
        alive, _ = json.loads(command("list", "--json").stdout)
        assert alive == {"url": "shm://alive", "pid": os.getpid(), "services": ["Squares"]}


@pytest.mark.parametrize(
    ("arguments", "stdin", "output"),
    [
        (["Calculator.add", '{"a": 1, "b": 2}'], "", "3\n"),
        (["add", "[40]"], "", "42\n"),
        (["Calculator.count", "[3]"], "", "0\n1\n2\n"),
        (["Calculator.total"], "1\n2\n3\n", "6\n"),
        (["Calculator.total", "[[4, 5]]"], "", "9\n"),
        (["Calculator.echo", '["text"]'], "", '"text"\n'),
        (["--raw", "Calculator.echo", '["text"]'], "", "text"),
    ],
)
def test_call(command: Any, urls: list[str], arguments: list[str], stdin: str, output: str) -> None:
    options = [word for word in arguments if word.startswith("--")]
    rest = [word for word in arguments if not word.startswith("--")]
    done = command("call", *options, urls[0], *rest, stdin=stdin)
    assert (done.returncode, done.stdout, done.stderr) == (0, output, "")


def test_call_sends_metadata(command: Any, urls: list[str]) -> None:
    done = command("call", "-m", "user=ada", "--metadata", "user=a=b", "-m", "raw-bin=AAE=", urls[0], "told")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == ["user: 'ada'", "user: 'a=b'", r"raw-bin: b'\x00\x01'"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["call", "URL", "told", "--metadata", "user"], 2, ["--metadata user: write KEY=VALUE"]),
        (["call", "URL", "told", "--metadata", "User=ada"], 2, ["'User' is no metadata key"]),
        (["call", "URL", "told", "--metadata", "a-bin=ä"], 2, ["--metadata a-bin=ä", "base64"]),
        (["call", "URL", "Calculator.fail"], 1, ["NOT_FOUND: no such thing", "'id': 1"]),
        (["call", "URL", "Calculator.add", '["x"]'], 1, ["INVALID_ARGUMENT", "Calculator.add()", "'a'"]),
        (["call", "URL", "Calculator.ad", "[1]"], 2, ["did you mean Calculator.add?"]),
        (["call", "URL", "Calculator.add", "{a}"], 2, ["not JSON"]),
        (["call", "shm://nobody-here", "Calculator.add", "[1]"], 1, ["UNAVAILABLE", "shm://nobody-here"]),
        (["list", "shm://nobody-here"], 1, ["UNAVAILABLE", "nobody has served it"]),
        (["ping", "nonsense"], 2, ["cannot use the URL", "shm://name"]),
        (["serve", "calculator:Missing", "shm://x"], 2, ["no 'Missing'"]),
        (["serve", "missing:Calculator", "shm://x"], 2, ["no module 'missing'"]),
        (["serve", "calculator:Calculator"], 2, ["where is it to be served?"]),
        (["serve", "calculator:Calculator", "URL"], 1, ["ALREADY_EXISTS", "stop it or serve another name"]),
        (["serve", "calculator:Calculator", "ftp://x"], 2, ["cannot use the URL", "ftp://"]),
    ],
)
def test_mistakes_are_one_line(
    command: Any, urls: list[str], arguments: list[str], status: int, words: list[str]
) -> None:
    done = command(*[urls[0] if word == "URL" else word for word in arguments])
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr


@contextlib.contextmanager
def serving(directory: Path, *arguments: str) -> Iterator[str]:
    """``nearcall serve`` with these arguments; where it serves. It must end in good order."""
    process = subprocess.Popen(
        [sys.executable, "-m", "nearcall", "serve", "calculator:Calculator", *arguments],
        cwd=directory,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        try:
            assert process.stderr is not None
            said = process.stderr.readline()
            found = re.match(r"serving calculator:Calculator at (\S+)", said)
            assert found, said
            yield found[1]
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 0
            assert process.stderr.read() == ""
        finally:
            process.kill()


def test_serve_with_workers(directory: Path, command: Any) -> None:
    with serving(directory, f"shm://cliw{os.getpid()}", "--workers", "2", "--grace", "10") as url:
        for _ in range(3):
            done = command("call", url, "add", "[1]")
            assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")


def test_workers_that_cannot_begin_are_one_line(command: Any) -> None:
    done = command("serve", "missing:Calculator", f"shm://clim{os.getpid()}", "--workers", "2")
    assert (done.returncode, done.stdout) == (1, "")
    assert re.fullmatch(
        r"nearcall: worker \d could not begin to serve: there is no module 'missing' here: .*\n", done.stderr
    )


def test_tls_and_tokens(directory: Path, command: Any, certificates: Path, tmp_path: Path) -> None:
    tokens, wrong = tmp_path / "tokens", tmp_path / "wrong"
    tokens.write_text("good\nolder\n")
    wrong.write_text("bad\n")
    server = ["--tls-cert", f"{certificates}/server.pem", "--tls-key", f"{certificates}/server.key"]
    server += ["--tls-client-ca", f"{certificates}/ca.pem", "--token-file", str(tokens)]
    trust = ["--tls-ca", f"{certificates}/ca.pem"]
    own = ["--tls-cert", f"{certificates}/client.pem", "--tls-key", f"{certificates}/client.key"]
    with serving(directory, "tls://127.0.0.1:0", *server) as url:
        done = command("call", url, "add", "[1]", *trust, *own, "--token-file", str(tokens))
        assert (done.returncode, done.stdout, done.stderr) == (0, "3\n", "")
        assert command("ping", url, "-n", "1", *trust, *own).returncode == 0
        assert command("list", url, *trust, *own).returncode == 0
        for flags, words in [
            ([*trust, *own, "--token-file", str(wrong)], ["UNAUTHENTICATED", "the token is not valid"]),
            ([*trust, *own], ["UNAUTHENTICATED", "needs a token", "(as a flag: --token-file)"]),
            ([*trust], ["UNAUTHENTICATED", "certificate", "(as a flag: --tls-cert, --tls-key)"]),
        ]:
            done = command("call", url, "add", "[1]", *flags)
            assert done.returncode == 1
            assert done.stderr.count("\n") == 1
            for word in words:
                assert word in done.stderr


def test_flags_for_limits_and_permissions(directory: Path, command: Any, runtime_dir: Path) -> None:
    done = command("serve", "calculator:Calculator", "tcp://0.0.0.0:0")
    assert (done.returncode, done.stdout) == (2, "")
    assert "(as a flag: --allow-plaintext)" in done.stderr
    with serving(directory, "tcp://0.0.0.0:0", "--allow-plaintext"):
        pass
    path = f"unix://{runtime_dir}/clil{os.getpid()}"
    with serving(directory, path, "--max-message-size", "100", "--allow-group", "0") as url:
        assert Path(url.removeprefix("unix://")).stat().st_mode & 0o777 == 0o666
        done = command("call", url, "echo", json.dumps(["x" * 200]), "--allow-user", "0")
        assert (done.returncode, done.stdout) == (1, "")
        assert "RESOURCE_EXHAUSTED" in done.stderr
        done = command("call", url, "add", "[1]", "--allow-user", "nobody-of-that-name")
        assert "there is no user 'nobody-of-that-name'" in done.stderr


def test_ping(command: Any, urls: list[str]) -> None:
    for url in urls:
        done = command("ping", url, "-n", "3", "-i", "0")
        assert done.returncode == 0, done.stderr
        assert re.fullmatch(r"1: .*\n2: .*\n3: .*\nmin .*, median .*, max .*\n", done.stdout)


def test_ping_that_is_interrupted_sums_up(directory: Path, urls: list[str]) -> None:
    command = [sys.executable, "-m", "nearcall", "ping", urls[0], "-n", "1000", "-i", "60"]
    with subprocess.Popen(command, cwd=directory, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("1: ")
        process.send_signal(signal.SIGINT)
        assert process.stdout.read().startswith("min ")
        assert process.wait(20) == 130


class Kind(enum.Enum):
    NEW = "new"


@dataclass
class Size:
    width: float
    parts: list[Size] = field(default_factory=list)


@dataclass
class Item:
    name: str
    count: int
    kind: Kind
    size: Size | None = None
    made: datetime.date | None = None
    notes: dict[str, bytes] = field(default_factory=dict)


@dataclass
class Drawing:
    shapes: list[Size | Item]
    source: Path | bytes


@nearcall.service
class Stock:
    def put(self, item: Item) -> int:
        if item.count < 0:
            raise nearcall.InvalidArgument("less than nothing")
        return item.count

    def put_first(self, item: Item, /) -> int:
        return item.count

    def put_two(self, item: Item, place: int) -> int:
        return item.count

    def draw(self, drawing: Drawing) -> int:
        return len(drawing.shapes)


def test_the_fields_of_the_only_argument_are_shown(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    """An object with its fields, without the argument's name around it, is easily given in its place."""
    with nearcall.Server(Stock(), f"inproc://{key}") as server:

        def call(method: str, text: str) -> tuple[int, str]:
            status = cli.main(["call", server.urls[0], method, text])
            out, err = capsys.readouterr()
            return status, out + err

        item = (
            '{"name":"...","count":0,"kind":"new","size":{"width":0.0,"parts":[]},"made":"2026-01-31",'
            '"notes":{"...":"..."}}'
        )
        for method, shape in (("put", f'{{"item":{item}}}'), ("put_first", f"[{item}]")):
            advice = f"; write for example '{shape}'\n"
            for wrong in ('{"name": "pen", "count": 3, "kind": "new"}', "{}", "[]", '[{"name": "pen", "count": "3"}]'):
                status, told = call(method, wrong)
                assert status == 1
                assert told.startswith(f"nearcall: INVALID_ARGUMENT: Stock.{method}(): "), told
                assert told.endswith(advice), told
            assert call(method, shape) == (0, "0\n")
        assert call("put", '[{"name": "pen", "count": -1, "kind": "new"}]') == (
            1,
            "nearcall: INVALID_ARGUMENT: less than nothing\n",
        )
        assert "write for example" not in call("put_two", "{}")[1]
        shape = '{"drawing":{"shapes":[{"Size":{"width":0.0,"parts":[]}}],"source":{"Path":"..."}}}'
        assert call("draw", "{}")[1].endswith(f"; write for example '{shape}'\n")
        assert call("draw", shape) == (0, "1\n")


@nearcall.service
class Ear:
    def hear(self) -> int:
        return 1


@nearcall.service
class Head:
    def ears(self) -> dict[str, Ear]:
        return {"left": Ear(), "right": Ear()}


def test_an_object_that_a_method_returns_is_named(key: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nearcall.Server(Head(), f"inproc://{key}") as server:
        assert cli.main(["call", server.urls[0], "ears"]) == 0
    assert capsys.readouterr() == ('{"left":{"reference":"Ear"},"right":{"reference":"Ear"}}\n', "")


INTERRUPTED = """
import os, signal, sys

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)

from nearcall.cli import main
sys.meta_path.insert(0, Interrupts())
sys.exit(main(["list", "shm://never"]))
"""


@pytest.mark.parametrize(
    "module", ["argparse", "nearcall.errors", "nearcall.cli.parsing", "nearcall.cli.call", "msgspec"]
)
def test_ctrl_c_while_the_command_starts(module: str) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("serve", "calculator:Calculator", "shm://never", "--workers", "0"), "workers must be a whole number from 1"),
        (("serve", "calculator:Calculator", "ftp://never"), 'cannot use the URL "ftp://never"'),
        (("list", "ftp://never"), 'cannot use the URL "ftp://never"'),
        (("ping", "shm://never", "--allow-user", "0"), "allow_users is for unix:// URLs"),
        (("top", "shm://never", "--tls-ca", "ca.pem"), "tls is for tls:// URLs, and shm://never would not be"),
    ],
)
def test_what_makes_no_sense_has_a_status_of_its_own(command: Any, arguments: tuple[str, ...], said: str) -> None:
    done = command(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(f"nearcall: {said}"), done.stderr
    assert done.stderr.count("\n") == 1


def test_the_installed_command(directory: Path) -> None:
    script = Path(sys.executable).with_name("nearcall")
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("nearcall ")
    assert ROOT.is_dir()
