"""``nearcall-lab profile``: what a script does by each library is seen, and the script notices nothing."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import msgspec
import pytest
from nearcall.profile import Line, Profile

HERE = Path(__file__).parent
Run = Callable[..., tuple[str, dict[tuple[int, str, str], Line], Profile]]


@pytest.fixture
def served() -> Iterator[Callable[[str], str]]:
    """Addresses of servers by the name of their library; each is started when it is first asked for."""
    addresses: dict[str, str] = {}
    with ExitStack() as stack:

        def start(kind: str) -> str:
            if kind not in addresses:
                process = stack.enter_context(
                    subprocess.Popen(
                        [sys.executable, str(HERE / "profiled_servers.py"), kind],
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        text=True,
                    )
                )
                stack.callback(process.kill)
                assert process.stdout is not None
                addresses[kind] = process.stdout.readline().strip()
            return addresses[kind]

        yield start


@pytest.fixture
def profile(tmp_path: Path, served: Callable[[str], str]) -> Run:
    """Runs a script that uses a library; gives its output, and its lines by number, kind and name."""

    def profile(kind: str, library: str, code: str) -> tuple[str, dict[tuple[int, str, str], Line], Profile]:
        if importlib.util.find_spec(library.partition(".")[0]) is None:
            pytest.skip(f"{library} is not installed")
        script = tmp_path / "script.py"
        address = served(kind)
        script.write_text(f"ADDRESS = {address!r}\n{textwrap.dedent(code).lstrip()}", encoding="utf-8")
        plain = subprocess.run(
            [sys.executable, script.name], cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True
        )
        command = [sys.executable, "-m", "nearcall_lab", "profile", "-o", "page.html", script.name]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stderr
        assert done.stdout == plain.stdout
        found = msgspec.json.decode((tmp_path / "page.json").read_bytes(), type=Profile, strict=True)
        assert not found.processes[0].notes
        assert all(line.file == str(script) for line in found.lines), found.lines
        lines = {(line.line, line.kind, line.name.replace(address, "ADDRESS")): line for line in found.lines}
        return done.stdout, lines, found

    return profile


def count(lines: dict[tuple[int, str, str], Line]) -> dict[tuple[int, str, str], int]:
    return {key: line.calls for key, line in lines.items()}


def test_rpyc(profile: Run) -> None:
    said, lines, found = profile(
        "rpyc",
        "rpyc",
        """
        import rpyc
        conn = rpyc.connect("127.0.0.1", int(ADDRESS))
        for number in range(300):
            conn.root.add(number, 1)
        for _ in range(200):
            conn.root.shop.items[0].price()
        print(conn.root.twice(lambda value: conn.root.add(value, 1), 5))
        later = [rpyc.async_(conn.root.add)(number, 2) for number in range(10)]
        print([each.value for each in later])
        try:
            conn.root.fail()
        except ValueError:
            print("failed")
        conn.close()
        """,
    )
    assert said.splitlines() == ["7", "[2, 3, 4, 5, 6, 7, 8, 9, 10, 11]", "failed"]
    counts = count(lines)
    assert counts[3, "connect", "connect 127.0.0.1:ADDRESS"] == 1
    assert counts[5, "attribute", "root.add"] == counts[5, "call", "root.add()"] == 300
    assert counts[7, "attribute", "root.shop"] == counts[7, "attribute", "root.shop.items"] == 200
    assert counts[7, "call", "root.shop.items[…]"] == 200
    assert counts[9, "started", "root.add()"] == 10
    # The server calls back while it is called, and is called again then.
    inner = lines[8, "call", "root.add()"]
    assert (inner.calls, inner.inside) == (2, 2)
    call = lines[5, "call", "root.add()"]
    assert call.sent is not None
    assert call.received is not None
    assert call.sent > call.received > 300
    assert [failure.error for failure in lines[12, "call", "root.fail()"].failures] == ["ValueError"]
    chains = {finding.line: finding for finding in found.findings if finding.rule == "chain"}
    assert chains[5].calls == 300
    assert chains[7].calls == 600
    assert {"loop", "identical"} <= {finding.rule for finding in found.findings}


def test_pyro5(profile: Run) -> None:
    said, lines, found = profile(
        "pyro5",
        "Pyro5",
        """
        import Pyro5.api
        with Pyro5.api.Proxy(ADDRESS) as calc:
            for number in range(300):
                calc.add(number, 1)
            print(list(calc.items(300))[-1])
            try:
                calc.fail()
            except ValueError:
                print("failed")
        for _ in range(20):
            with Pyro5.api.Proxy(ADDRESS) as calc:
                calc.add(1, 1)
        """,
    )
    assert said.splitlines() == ["299", "failed"]
    counts = count(lines)
    assert counts[5, "call", "calc.add"] == 300
    assert counts[6, "item", "next item"] == 301
    assert counts[13, "connect", "connect ADDRESS"] == 20
    assert lines[5, "call", "calc.add"].sent
    assert lines[8, "call", "calc.fail"].failures[0].error == "ValueError"
    assert not lines[6, "item", "next item"].failures
    rules = {(finding.rule, finding.line) for finding in found.findings}
    assert {("loop", 5), ("loop", 6), ("connections", 13)} <= rules


def test_xmlrpc(profile: Run) -> None:
    said, lines, found = profile(
        "xmlrpc",
        "xmlrpc",
        """
        import xmlrpc.client
        calc = xmlrpc.client.ServerProxy(ADDRESS)
        for number in range(100):
            calc.add(number, 1)
        several = xmlrpc.client.MultiCall(calc)
        for number in range(10):
            several.add(number, number)
        print(sum(several()))
        """,
    )
    assert said == "90\n"
    line = lines[5, "call", "add"]
    assert line.calls == 100
    assert line.sent is not None
    assert line.sent > 10_000
    assert line.received is not None
    assert line.received > 10_000
    assert lines[9, "call", "system.multicall"].calls == 1
    (connects,) = [each for (number, kind, _), each in lines.items() if kind == "connect" and number == 5]
    # The server speaks HTTP/1.0, which ends each connection.
    assert (connects.calls, connects.inside) == (100, 100)
    assert "loop" in {finding.rule for finding in found.findings}


def test_requests(profile: Run) -> None:
    said, lines, found = profile(
        "http",
        "requests",
        """
        import requests
        for number in range(30):
            requests.get(f"{ADDRESS}/items/{number}?token=secret")
        with requests.Session() as session:
            for number in range(30):
                session.post(f"{ADDRESS}/items", data=b"x" * 100)
            for _ in range(30):
                session.get(f"{ADDRESS}/same")
            print(session.get(f"{ADDRESS}/moved").text)
            try:
                session.get("http://127.0.0.1:1/")
            except requests.ConnectionError:
                print("failed")
        """,
    )
    assert said.splitlines() == ["hello", "failed"]
    got = lines[4, "call", "GET ADDRESS/items/*"]
    assert (got.calls, got.received) == (30, 150)
    posted = lines[7, "call", "POST ADDRESS/items"]
    assert (posted.calls, posted.sent, posted.received) == (30, 3000, 150)
    assert lines[10, "call", "GET ADDRESS/items/*"].inside == 1
    assert lines[12, "call", "GET http://127.0.0.1:1/"].failures[0].error == "ConnectionError"
    connects = {number: each.calls for (number, kind, _), each in lines.items() if kind == "connect"}
    assert connects[4] == 30
    assert connects[7] == 1
    assert {("identical", 9), ("loop", 7)} <= {(finding.rule, finding.line) for finding in found.findings}
    assert "secret" not in msgspec.json.encode(found).decode()


def test_httpx(profile: Run) -> None:
    said, lines, _ = profile(
        "http",
        "httpx",
        """
        import asyncio, httpx
        with httpx.Client() as client:
            for number in range(20):
                client.get(f"{ADDRESS}/items/{number}")
        async def one(client, number):
            return await client.post(f"{ADDRESS}/a", content=b"12345")
        async def main():
            async with httpx.AsyncClient() as client:
                found = await asyncio.gather(*(client.get(f"{ADDRESS}/b/{number}") for number in range(10)))
                print({each.text for each in found})
                print((await asyncio.create_task(one(client, 1))).status_code)
        asyncio.run(main())
        """,
    )
    assert said.splitlines() == ["{'hello'}", "200"]
    assert lines[5, "call", "GET ADDRESS/items/*"].calls == 20
    assert lines[10, "call", "GET ADDRESS/b/*"].calls == 10
    assert lines[10, "call", "GET ADDRESS/b/*"].received == 50
    assert lines[7, "call", "POST ADDRESS/a"].sent == 5
    assert [each.calls for (number, kind, _), each in lines.items() if kind == "connect" and number == 5] == [1]


def test_grpcio(profile: Run) -> None:
    said, lines, found = profile(
        "grpc",
        "grpc",
        """
        import grpc
        with grpc.insecure_channel(ADDRESS) as channel:
            echo = channel.unary_unary("/calc.Calc/Echo")
            for number in range(300):
                echo(b"%d" % number)
            print(echo.with_call(b"y")[0])
            futures = [echo.future(b"y") for _ in range(10)]
            print(len([each.result() for each in futures]))
            print(len(list(channel.unary_stream("/calc.Calc/Count")(b"50"))))
            left = channel.unary_stream("/calc.Calc/Count")(b"50")
            next(left)
            left.cancel()
            del left
            print(channel.stream_unary("/calc.Calc/Join")(iter([b"a", b"b"])))
            print(list(channel.stream_stream("/calc.Calc/Same")(iter([b"a", b"b"]))))
            try:
                channel.unary_unary("/calc.Calc/Fail", str.encode, bytes.decode)("x")
            except grpc.RpcError as error:
                print(error.code(), isinstance(error, grpc.Call))
        """,
    )
    assert said.splitlines() == ["b'y'", "10", "50", "b'ab'", "[b'a', b'b']", "StatusCode.NOT_FOUND True"]
    assert lines[3, "connect", "channel to ADDRESS"].calls == 1
    line = lines[6, "call", "calc.Calc/Echo"]
    assert (line.calls, line.sent, line.received) == (300, 790, 790)
    assert lines[7, "call", "calc.Calc/Echo"].calls == 1
    assert lines[8, "started", "calc.Calc/Echo"].calls == 10
    assert lines[10, "stream", "calc.Calc/Count"].calls == 1
    assert not lines[11, "stream", "calc.Calc/Count"].failures
    assert lines[15, "call", "calc.Calc/Join"].calls == 1
    assert lines[16, "stream", "calc.Calc/Same"].calls == 1
    assert lines[18, "call", "calc.Calc/Fail"].failures
    assert ("loop", 6) in {(finding.rule, finding.line) for finding in found.findings}


def test_grpcio_in_an_event_loop(profile: Run) -> None:
    said, lines, _ = profile(
        "grpc",
        "grpc",
        """
        import asyncio, grpc
        async def main():
            async with grpc.aio.insecure_channel(ADDRESS) as channel:
                echo = channel.unary_unary("/calc.Calc/Echo")
                print(len(await asyncio.gather(*(echo(b"z") for _ in range(20)))))
                print(len([item async for item in channel.unary_stream("/calc.Calc/Count")(b"20")]))
                try:
                    await channel.unary_unary("/calc.Calc/Fail")(b"")
                except grpc.aio.AioRpcError as error:
                    print(error.code())
        asyncio.run(main())
        """,
    )
    assert said.splitlines() == ["20", "20", "StatusCode.NOT_FOUND"]
    assert lines[6, "call", "calc.Calc/Echo"].calls == 20
    assert lines[7, "stream", "calc.Calc/Count"].calls == 1
    assert lines[9, "call", "calc.Calc/Fail"].failures[0].error == "AioRpcError"


def test_a_library_that_an_adapter_does_not_know(tmp_path: Path) -> None:
    """Another version may lack what is patched: the script runs all the same, and the profile says so."""
    (tmp_path / "requests").mkdir()
    (tmp_path / "requests/__init__.py").write_text("from . import sessions\n", encoding="utf-8")
    (tmp_path / "requests/sessions.py").write_text("class Other:\n    pass\n", encoding="utf-8")
    script = tmp_path / "script.py"
    script.write_text(
        "import requests, xmlrpc.client\nprint(requests.sessions.Other.__name__)\n"
        "try:\n    xmlrpc.client.ServerProxy('http://127.0.0.1:1').add()\nexcept OSError:\n    pass\n",
        encoding="utf-8",
    )
    command: list[Any] = [sys.executable, "-m", "nearcall_lab", "profile", script.name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=True)
    assert done.stdout == "Other\n"
    assert "note: calls of requests.sessions are not seen: AttributeError" in done.stderr
