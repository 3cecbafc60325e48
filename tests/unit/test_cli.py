"""The command line, with a client and a server that need no transport."""

from __future__ import annotations

import contextlib
import io
import json
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import nearcall
from nearcall.cli import main
from nearcall.cli.ping import duration
from nearcall.cli.values import from_json, to_json
from nearcall.client.channel import connect
from nearcall.errors import NotFound, Unavailable
from nearcall.service.service import oneway, plan_of, service

from .loopback import Loopback


class Point(msgspec.Struct):
    x: int
    label: bytes = b""


@service
class Calculator:
    """Adds.

    And more.
    """

    def add(self, a: int, b: int = 2) -> int:
        """Adds two numbers."""
        return a + b

    def upper(self, data: bytes, /, *, times: int = 1) -> bytes:
        return data.upper() * times

    def move(self, points: list[Point]) -> dict[int, Point]:
        return {point.x: Point(point.x + 1, point.label * 2) for point in points}

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def scale(self, by: int, xs: Iterator[int]) -> Iterator[int]:
        for x in xs:
            yield x * by

    def total(self, xs: Iterator[Point]) -> int:
        return sum(point.x for point in xs)

    def fail(self) -> None:
        raise NotFound("no user\n17", details={"id": 17})

    @oneway
    def log(self, line: str) -> None: ...


class FakeClient:
    def __init__(self) -> None:
        loopback = Loopback(Calculator())
        self.service = SimpleNamespace(Calculator=loopback)
        self.description = loopback.description
        self.open = False

    def __enter__(self) -> object:
        self.open = True
        return self.service

    def __exit__(self, *_: object) -> None:
        self.open = False


class FakeChannel(FakeClient):
    def __init__(self, url: str, **_: Any) -> None:
        super().__init__()
        assert url == "shm://calc"

    def __enter__(self) -> FakeChannel:
        super().__enter__()
        return self

    def ping(self) -> float:
        assert self.open
        return 4.2e-6


@pytest.fixture(autouse=True)
def _no_transport(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(url: str) -> FakeClient:
        if url != "shm://calc":
            raise Unavailable(f"nobody serves {url}")
        return FakeClient()

    @contextlib.contextmanager
    def timeout(seconds: float) -> Iterator[None]:
        assert seconds == 0.5
        yield

    monkeypatch.setattr(nearcall, "connect", connect, raising=False)
    monkeypatch.setattr(nearcall, "Channel", FakeChannel)
    monkeypatch.setattr(nearcall, "timeout", timeout, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs the command; gives its exit status, output and errors."""

    def call(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        out, err = capsys.readouterr()
        return status, out, err

    return call


@pytest.mark.parametrize(
    ("method", "arguments", "output"),
    [
        ("Calculator.add", '{"a": 1, "b": 3}', "4\n"),
        ("add", "[1]", "3\n"),
        ("add", '{"a": 1}', "3\n"),
        ("upper", '["héllo"]', '"H\\u00e9LLO"\n'),
        ("upper", '{"data": {"base64": "/w=="}, "times": 2}', '{"base64":"//8="}\n'),
        (
            "move",
            '[[{"x": 1, "label": "ab"}, {"x": 5}]]',
            '{"1":{"x":2,"label":"abab"},"5":{"x":6,"label":""}}\n',
        ),
        ("count", '{"n": 3}', "0\n1\n2\n"),
        ("scale", "[3, [1, 2]]", "3\n6\n"),
        ("scale", '{"by": 3, "xs": [1, 2]}', "3\n6\n"),
        ("total", '[[{"x": 1}, {"x": 2}]]', "3\n"),
        ("log", '["hello"]', ""),
    ],
)
def test_call(run: Any, method: str, arguments: str, output: str) -> None:
    status, out, err = run("call", "shm://calc", method, arguments, "--timeout", "0.5")
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in out.splitlines()] == [json.loads(line) for line in output.splitlines()]


@pytest.mark.parametrize("arguments", ['{"by": 10}', "[10]"])
def test_streams_are_read_from_standard_input(run: Any, monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\n\n2\n"))
    assert run("call", "shm://calc", "scale", arguments) == (0, "10\n20\n", "")
    monkeypatch.setattr(sys, "stdin", io.StringIO("1\nx\n"))
    status, out, err = run("call", "shm://calc", "scale", arguments)
    assert (status, out) == (2, "10\n")
    assert err.startswith("nearcall: standard input, line 2: JSON is malformed")


def test_raw_output(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert main(["call", "shm://calc", "upper", '[{"base64": "/2E="}]', "--raw"]) == 0
    assert capfdbinary.readouterr().out == b"\xffA"


@pytest.mark.parametrize(
    "argv",
    [
        ["--raw", "-t", "0.5", "shm://calc", "upper", '["a"]'],
        ["shm://calc", "--raw", "upper", "--timeout=0.5", '["a"]'],
        ["shm://calc", "upper", "--raw", "-t", "0.5", '["a"]'],
        ["shm://calc", "upper", '["a"]', "-t", "0.5", "--raw"],
        ["shm://calc", "upper", "--raw", "-t0.5", "--", '["a"]'],
    ],
)
def test_options_may_stand_anywhere(capfdbinary: pytest.CaptureFixture[bytes], argv: list[str]) -> None:
    assert main(["call", *argv]) == 0
    assert capfdbinary.readouterr().out == b"A"


@pytest.mark.parametrize(
    ("argv", "status", "message"),
    [
        (["call", "shm://x", "add"], 1, "UNAVAILABLE: nobody serves shm://x"),
        (
            ["call", "shm://calc", "add", '{"a": "x"}'],
            1,
            "INVALID_ARGUMENT: Calculator.add(): argument 'a': expected int, got str",
        ),
        (
            ["call", "shm://calc", "add"],
            1,
            "INVALID_ARGUMENT: Calculator.add(): argument 'a' is missing; it is add(a: int, b: int = ...) -> int",
        ),
        (
            ["call", "shm://calc", "Calculator.ad", "[1]"],
            2,
            "the server has no method 'Calculator.ad': did you mean Calculator.add?",
        ),
        (["call", "shm://calc", "totals"], 2, "the server has no method 'totals': did you mean Calculator.total?"),
        (
            ["call", "shm://calc", "zzz"],
            2,
            "the server has no method 'zzz': there are Calculator.add, Calculator.upper",
        ),
        (
            ["call", "shm://calc", "move", '[[{"x": 1, "y": 2}]]'],
            1,
            "INVALID_ARGUMENT: Calculator.move(): argument 'points' at [0]: Point has no field 'y', which",
        ),
        (["call", "shm://calc", "fail"], 1, "NOT_FOUND: no user 17 (details: {'id': 17})"),
        (["call", "shm://calc", "add", "3"], 2, "the arguments are neither an object nor an array: write [3] for a "),
        (["call", "shm://calc", "add", "{a: 1}"], 2, "the arguments are not JSON (JSON is malformed: "),
        (["call", "shm://calc", "add", "[1]", "-t", "0"], 2, "--timeout 0.0: it must be more than 0 seconds"),
        (["call", "shm://calc", "upper", '[{"base64": "!"}]'], 2, "argument 'data': malformed base64: "),
        (["call", "shm://calc", "total", '{"xs": 3}'], 2, "argument 'xs' is a stream: write a list, or leave it out"),
        (["ping", "shm://calc", "-n", "0"], 2, "-n 0: at least one ping is needed"),
        (["ping", "shm://calc", "-i", "-1"], 2, "-i -1.0: the interval cannot be negative"),
        (["serve", "shm://calc"], 2, "what is to be served? write MODULE:CLASS before the URLs"),
        (["serve", "calc:Calculator"], 2, "where is it to be served? write a URL such as shm://name or tcp://"),
        (["serve", "calc", "shm://c"], 2, "'calc' is not MODULE:CLASS: write for example calculator:Calculator"),
        (["serve", "calc.Calculator", "shm://c"], 2, "'calc.Calculator' is not MODULE:CLASS: write calc:Calculator"),
        (["serve", "calc.py", "shm://c"], 2, "'calc.py' is not MODULE:CLASS: write calc.py:CLASS"),
        (["proto", "shm://c"], 2, "'shm://c' is a URL: write for example calculator:Calculator"),
        (["serve", "no_such.module:A", "stdio:"], 2, "there is no module 'no_such' here: check the name and the "),
        (["serve", "no_such.module:A", "shm://c"], 2, "there is no module 'no_such' here: check the name and the "),
    ],
)
def test_mistakes_are_one_line(run: Any, argv: list[str], status: int, message: str) -> None:
    got, out, err = run(*argv)
    assert (got, out) == (status, "")
    assert err.startswith(f"nearcall: {message}")
    assert err.count("\n") == 1


def test_list(run: Any) -> None:
    status, out, err = run("list", "shm://calc")
    assert (status, err) == (0, "")
    assert out.splitlines()[:3] == [
        "Calculator  # Adds.",
        "  add(a: int, b: int = ...) -> int  # Adds two numbers.",
        "  upper(data: bytes, /, *, times: int = ...) -> bytes",
    ]
    assert "  log(line: str) -> None  [one-way]" in out
    assert "  type Point(x: int, label: bytes = ...)" in out
    _, out, _ = run("list", "shm://calc", "--json")
    assert json.loads(out) == FakeClient().description


def test_ping(run: Any) -> None:
    status, out, err = run("ping", "shm://calc", "-n", "2", "-i", "0")
    assert (status, err) == (0, "")
    assert out == "1: 4.2 us\n2: 4.2 us\nmin 4.2 us, median 4.2 us, max 4.2 us\n"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(3.2e-7, "320 ns"), (4.217e-6, "4.22 us"), (0.0123, "12.3 ms"), (9.997e-4, "1 ms"), (2.5, "2.5 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module of services in the current directory."""
    (tmp_path / "served_things.py").write_text(
        textwrap.dedent(
            """
            from nearcall.service.service import service

            @service
            class Good:
                def m(self) -> int: return 1

            @service
            class Needy:
                def __init__(self, size): self.size = size
                def m(self) -> int: return 1

            def make(): return Needy(3)
            def broken(): raise RuntimeError("no disk")
            good = Good()

            class Plain:
                def m(self) -> int: return 1
            """
        )
    )
    (tmp_path / "broken_things.py").write_text("import no_such_package")
    (tmp_path / "failing_things.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend("")
    yield "served_things"
    sys.modules.pop("served_things", None)


@pytest.mark.parametrize("suffix", ["", ".py"])
@pytest.mark.parametrize(("name", "size"), [("Good", None), ("good", None), ("make", 3)])
def test_serve(
    run: Any, monkeypatch: pytest.MonkeyPatch, module: str, name: str, size: int | None, suffix: str
) -> None:
    module += suffix
    served: list[Any] = []

    def serve(things: tuple[Any, ...], *, on_ready: Callable[[Any], object], on_stopping: object) -> None:
        served.extend(things)
        on_ready(SimpleNamespace(urls=things[1:]))

    monkeypatch.setattr("nearcall.cli.serve.serve_alone", serve)
    status, out, err = run("serve", f"{module}:{name}", "shm://a", "tcp://127.0.0.1:7000")
    assert (status, out) == (0, "")
    assert err == f"serving {module}:{name} at shm://a\nserving {module}:{name} at tcp://127.0.0.1:7000\n"
    assert served[1:] == ["shm://a", "tcp://127.0.0.1:7000"]
    assert plan_of(type(served[0])).methods[0].name == "m"
    assert getattr(served[0], "size", None) == size


def test_the_flags_of_serve(run: Any, monkeypatch: pytest.MonkeyPatch, module: str, tmp_path: Path) -> None:
    chosen: dict[str, Any] = {}

    def serve(things: tuple[Any, ...], **options: Any) -> None:
        chosen.update(options, things=things)
        del chosen["on_ready"], chosen["on_stopping"]

    monkeypatch.setattr("nearcall.cli.serve.serve_alone", serve)
    tokens = tmp_path / "tokens"
    tokens.write_text("new\n\nold\n")
    flags = "--allow-plaintext --allow-user ada --allow-user 1001 --allow-group staff --max-message-size 1000"
    flags += " --allow-origin https://a.example"
    flags += f" --grace 0.5 --tls-cert c.pem --tls-key k.pem --tls-client-ca a.pem --token-file {tokens}"
    assert run("serve", f"{module}:Good", *flags.split(), "unix:///x") == (0, "", "")
    (guard,) = chosen.pop("interceptors")
    assert callable(guard)
    assert [type(thing).__name__ for thing in chosen.pop("things")] == ["Good", "str"]
    assert chosen == {
        "allow_plaintext": True,
        "allow_users": ["ada", 1001],
        "allow_groups": ["staff"],
        "max_message_size": 1000,
        "allow_origins": ["https://a.example"],
        "grace": 0.5,
        "tls": nearcall.TLS(cert="c.pem", key="k.pem", client_ca="a.pem"),
    }


def test_with_workers_each_makes_its_objects(run: Any, monkeypatch: pytest.MonkeyPatch, module: str) -> None:
    served: list[Any] = []

    def serve(
        things: tuple[Any, ...],
        *,
        workers: int,
        on_ready: Callable[[Any], object],
        late_options: Callable[[], object],
        refresh: Callable[[], object],
        on_stopping: Callable[[], object],
        on_reloading: Callable[[bool], object],
    ) -> None:
        served.extend([workers, *things])
        assert late_options() == {}
        assert callable(refresh)
        on_ready(SimpleNamespace(urls=["shm://a"]))

    monkeypatch.setattr("nearcall.cli.serve.serve_with_workers", serve)
    status, _, err = run("serve", f"{module}:make", "shm://a", "--workers", "3")
    assert (status, err) == (0, f"serving {module}:make at shm://a with 3 workers\n")
    workers, make, url = served
    assert (workers, url) == (3, "shm://a")
    first, second = make(), make()
    assert first is not second
    assert first.size == 3


def test_the_flags_of_clients(run: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chosen: list[dict[str, Any]] = []

    def connect(url: str, **options: Any) -> FakeClient:
        chosen.append(options)
        return FakeClient()

    def channel(url: str, **options: Any) -> FakeChannel:
        chosen.append(options)
        return FakeChannel(url)

    monkeypatch.setattr(nearcall, "connect", connect)
    monkeypatch.setattr(nearcall, "Channel", channel)
    token = tmp_path / "token"
    token.write_text("secret\n")
    flags = "--allow-plaintext --allow-user ada --allow-group 5 --max-message-size 1000 --tls-ca a.pem"
    flags += f" --tls-cert c.pem --tls-key k.pem --tls-server-name calc --token-file {token}"
    for command in (["call", "shm://calc", "add", "[1]"], ["list", "shm://calc"], ["ping", "shm://calc", "-n", "1"]):
        status, _, err = run(*command, *flags.split())
        assert (status, err) == (0, "")
        assert callable(chosen[-1].pop("interceptors")[0])
        assert chosen[-1] == {
            "allow_plaintext": True,
            "allow_users": ["ada"],
            "allow_groups": [5],
            "max_message_size": 1000,
            "tls": nearcall.TLS(ca="a.pem", cert="c.pem", key="k.pem", server_name="calc"),
        }
        status, _, err = run(*command)
        assert (status, err, chosen[-1]) == (0, "", {})


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--tls-cert", "c.pem"], "--tls-cert and --tls-key belong together: give both or neither"),
        (["--token-file", "/no/such"], "--token-file /no/such cannot be read: No such file or directory; it is a file"),
        (["--token-file", "/dev/null"], "--token-file /dev/null is empty: write a token into it, one per line"),
    ],
)
def test_flags_that_make_no_sense(run: Any, argv: list[str], message: str) -> None:
    status, out, err = run("list", "shm://calc", *argv)
    assert (status, out) == (2, "")
    assert err.startswith(f"nearcall: {message}")


def test_an_error_that_names_an_option_names_the_flag(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(url: str, **options: Any) -> FakeClient:
        raise nearcall.InvalidArgument("say allow_plaintext=True, give TLS(ca=...) or TLS(client_ca=...)")

    monkeypatch.setattr(nearcall, "connect", connect)
    _, _, err = run("list", "shm://calc")
    assert err.endswith(" (as a flag: --allow-plaintext, --tls-ca)\n"), "--tls-client-ca is for servers"


@pytest.mark.parametrize(
    ("argv", "flag"),
    [
        (["--allow-user", "nobody-of-that-name"], "--allow-user"),
        (["--max-values", "0"], "--max-values"),
        (["--tls-ca", "/nobody/ca.pem"], "--tls-ca"),
    ],
)
def test_an_error_that_carries_its_option_names_that_flag(
    run: Any, monkeypatch: pytest.MonkeyPatch, argv: list[str], flag: str
) -> None:
    monkeypatch.setattr(nearcall, "connect", connect)
    url = "tls://127.0.0.1:1" if "--tls-ca" in argv else "unix:///nobody"
    _, _, err = run("list", url, *argv)
    assert err.endswith(f" (as a flag: {flag})\n")


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("served_things:Bad", "module 'served_things' has no 'Bad'"),
        ("served_things:Goood", "module 'served_things' has no 'Goood': did you mean Good?"),
        ("./inner/things.py:Good", "there is no file ./inner/things.py"),
        ("failing_things.py:A", "failing_things.py cannot be imported: ZeroDivisionError: division by zero"),
        ("served_things:Plain", "served_things:Plain is not a service: decorate its class with @nearcall.service"),
        ("served_things:Needy", "served_things:Needy cannot be called without arguments (missing a required argument"),
        ("served_things:broken", "served_things:broken() failed: RuntimeError: no disk"),
        ("broken_things:A", "module 'broken_things' imports 'no_such_package', which is not installed"),
        ("failing_things:A", "module 'failing_things' cannot be imported: ZeroDivisionError: division by zero"),
    ],
)
def test_what_cannot_be_served(run: Any, module: str, target: str, message: str) -> None:
    status, out, err = run("serve", target, "shm://a")
    assert (status, out) == (2, "")
    assert err.startswith(f"nearcall: {message}")
    assert err.count("\n") == 1


def test_debug_shows_the_traceback(run: Any) -> None:
    for argv in (["--debug", "list", "shm://x"], ["list", "--debug", "shm://x"], ["list", "shm://x", "--debug"]):
        status, out, err = run(*argv)
        assert (status, out) == (1, "")
        assert err.startswith("Traceback (most recent call last):\n")
        assert "nearcall.errors.Unavailable: " in err


def test_a_traceback_cannot_control_a_terminal(run: Any) -> None:
    status, out, err = run("--debug", "list", "shm://\x1b[2J\x9b31m\u202e\r\nforged")
    assert (status, out) == (1, "")
    assert "\\x1b[2J\\x9b31m\\u202e\\r\n    forged" in err
    assert all(line.isprintable() for line in err.splitlines())


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["lst"], "nearcall: there is no command 'lst': did you mean list? (see nearcall --help)"),
        (
            ["choose"],
            "nearcall: there is no command 'choose': did you mean nearcall-lab choose? (see nearcall --help)",
        ),
        (["plugin", "nw"], "nearcall plugin: there is no command 'nw': did you mean new? (see nearcall plugin --help)"),
        (
            ["call"],
            "nearcall call: the following arguments are required: URL, SERVICE.METHOD (see nearcall call --help)",
        ),
        (
            ["dev-certs"],
            "nearcall dev-certs: the following arguments are required: DIR (see nearcall dev-certs --help)",
        ),
        (
            ["call", "shm://calc", "add", "1", "2"],
            "nearcall call: '2' is one argument too many: write all in one, as '[1, 2]' or '{\"a\": 1, \"b\": 2}' "
            "(see nearcall call --help)",
        ),
        (
            ["serve", "a:A", "--wrkers=2", "shm://a"],
            "nearcall serve: there is no option --wrkers: did you mean --workers? (see nearcall serve --help)",
        ),
        (["list", "shm://calc", "--zzz"], "nearcall list: there is no option --zzz (see nearcall list --help)"),
    ],
)
def test_wrong_usage_is_one_line_and_exits_with_two(
    capsys: pytest.CaptureFixture[str], argv: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert capsys.readouterr() == ("", message + "\n")


def test_a_file_that_is_not_what_its_name_imports(run: Any, module: str) -> None:
    Path("json.py").write_text("")
    status, out, err = run("serve", "json.py:Good", "shm://a")
    assert (status, out) == (2, "")
    assert err.startswith("nearcall: json.py cannot be imported as 'json': that is /")


@pytest.mark.parametrize("argv", [[], ["plugin"]])
def test_a_command_that_only_has_commands_shows_them(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(argv)
    assert caught.value.code == 2
    assert capsys.readouterr().err.startswith(f"usage: {' '.join(['nearcall', *argv])} [-h]")


@pytest.mark.parametrize(
    ("value", "schema", "expected"),
    [
        ("a", "bytes", b"a"),
        (["a", "b"], {"list": "bytes"}, [b"a", b"b"]),
        ({"1": "a"}, {"dict": ["int", "bytes"]}, {1: b"a"}),
        ({"x": "a"}, {"dict": ["int", "bytes"]}, {"x": b"a"}),
        (["a", 1, 2], {"tuple": ["bytes", "int"]}, [b"a", 1, 2]),
        (None, {"union": ["none", "bytes"]}, None),
        ("a", {"union": ["none", "bytes"]}, b"a"),
        ("a", {"union": ["str", "int"]}, "a"),
        ({"b": "x"}, {"union": ["none", {"ref": "T"}]}, {"b": b"x"}),
        ({"b": "x", "a": 1}, {"ref": "Row"}, [1, b"x"]),
        ([1, "x"], {"ref": "Row"}, [1, b"x"]),
        (3, {"ref": "Row"}, 3),
    ],
)
def test_json_becomes_what_the_schema_wants(value: Any, schema: Any, expected: Any) -> None:
    types = {
        "T": {"layout": "map", "fields": [{"name": "b", "type": "bytes", "required": True}]},
        "Row": {
            "layout": "array",
            "fields": [
                {"name": "a", "type": "int", "required": True},
                {"name": "b", "type": "bytes", "required": True},
            ],
        },
    }
    assert from_json(value, schema, types) == expected


def test_arrays_are_nested_lists() -> None:
    np = pytest.importorskip("numpy")
    array = from_json([[1, 2], [3, 4]], {"array": "float32"}, {})
    assert (array.dtype, array.shape) == (np.float32, (2, 2))
    assert to_json({"a": array, "b": np.float32(0.5)}) == b'{"a":[[1.0,2.0],[3.0,4.0]],"b":0.5}'
    with pytest.raises(ValueError, match="not an array of float32"):
        from_json([[1], [2, 3]], {"array": "float32"}, {})
    for numbers in ([1.5], [300], [-129], [True, 0.5]):
        with pytest.raises(ValueError, match="not an array of int8"):
            from_json(numbers, {"array": "int8"}, {})


def test_results_that_json_lacks() -> None:
    value = {1: {2}, (1, "a"): memoryview(b"x"), "nan": float("nan"), b"k": bytearray(b"\xff")}
    assert json.loads(to_json(value)) == {"1": [2], '[1,"a"]': "x", "nan": "nan", "k": {"base64": "/w=="}}
