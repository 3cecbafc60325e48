"""Text of a peer or a file is escaped and cut before anybody sees it: in errors, on the command line, in the log."""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import cli
from nearcall.service.describing import describe
from nearcall.service.service import plan_of

from .services import PATIENCE
from .test_introspection import until

EVIL = "\x1b]0;owned\x07\x1b[2J\u202e\x9b31m"
WELCOME, REJECT = 2, 3


@nearcall.service
class Plain:
    """Adds."""

    def add(self, a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b


@contextmanager
def answering(kind: int, body: bytes) -> Iterator[str]:
    """A server that answers every hello in the same way."""
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    connection.settimeout(PATIENCE)
                    connection.sendall(struct.pack("<4sBBHI", b"NCAL", 1, kind, 0, len(body)) + body)
                    while connection.recv(65_536):
                        pass

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            thread.join(PATIENCE)


def welcome(description: Any) -> bytes:
    body = {"version": EVIL, "limits": {"max_message": 1 << 26}, "description": json.dumps(description)}
    return json.dumps(body).encode()


def fit(text: str) -> str:
    assert text.replace("\n", "").isprintable(), ascii(text[:3000])
    assert len(text) < 5000
    return text


def failure(url: str, cls: type | None = None) -> str:
    """What connecting says; the same in an event loop and on the command line."""
    with pytest.raises(nearcall.RpcError) as caught:
        nearcall.connect(url, cls)

    async def main() -> None:
        async with nearcall.aio.connect(url, cls):
            pass

    with pytest.raises(nearcall.RpcError) as in_loop:
        asyncio.run(main())
    assert fit(in_loop.value.message).partition(":")[0] == fit(caught.value.message).partition(":")[0]
    return caught.value.message


@pytest.mark.parametrize("text", [EVIL, EVIL * 100_000, "\udc80".encode("utf-8", "surrogatepass").decode("latin-1")])
def test_a_sentence_of_refusal(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    with answering(REJECT, text.encode()) as url:
        assert "refused" in failure(url)
        assert cli.main(["ping", url]) == 1
    assert "refused" in fit(capsys.readouterr().err)


def test_a_welcome_that_cannot_be_read() -> None:
    for body in (json.dumps({"version": "1", "limits": EVIL * 10_000}), json.dumps({EVIL: 1}), EVIL):
        with answering(WELCOME, body.encode()) as url:
            assert "welcome cannot be read" in failure(url)


def test_a_description_that_is_malformed_or_of_another_service() -> None:
    good: Any = describe([plan_of(Plain)])
    for path, value in (
        (("name",), EVIL),
        (("methods", 0, "name"), EVIL * 10_000),
        (("methods", 0, "parameters", 0, "name"), EVIL),
        (("methods", 0, "parameters", 0, "schema"), {EVIL: 1}),
        (("methods", 0, "kind"), EVIL),
    ):
        described = json.loads(json.dumps(good))
        at = described["services"][0]
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] = value
        with answering(WELCOME, welcome(described)) as url:
            failure(url, Plain)


def test_what_differs_is_shown_as_it_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    described: Any = json.loads(json.dumps(describe([plan_of(Plain)])))
    method = described["services"][0]["methods"][0]
    method["parameters"][0] |= {"type": EVIL * 1000, "schema": "str"}
    method["signature"] = method["doc"] = described["services"][0]["doc"] = EVIL
    with answering(WELCOME, welcome(described)) as url:
        assert "client's Plain.add(a: int) but the server's has a: " in failure(url, Plain)
        assert cli.main(["list", url]) == 0
        assert r"\x1b]0;owned" in fit(capsys.readouterr().out)
        assert cli.main(["list", "--json", url]) == 0
        out = capsys.readouterr().out
        assert out.replace("\n", "").isprintable()
        assert json.loads(out)["services"][0]["doc"] == EVIL
        with (
            nearcall.connect(url) as client,
            pytest.raises(nearcall.InvalidArgument) as caught,
        ):
            client.add(1, 2, 3)
        fit(str(caught.value))


@nearcall.service
class Answers:
    def fail(self) -> None:
        raise nearcall.NotFound(EVIL, details=[EVIL])

    def text(self) -> str:
        return EVIL


def test_what_a_method_returns_on_the_command_line(new_url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with nearcall.Server(Answers(), new_url) as server:
        url = server.urls[0]
        assert cli.main(["call", url, "Answers.text"]) == 0
        assert json.loads(fit(capsys.readouterr().out)) == EVIL
        assert cli.main(["call", url, "Answers.fail"]) == 1
        assert r"NOT_FOUND: \x1b]0;owned" in fit(capsys.readouterr().err)


@pytest.mark.parametrize("text", [b"\x1b[2J\x1b]0;owned\x07", b"4711\x1b[2J", b"4711", b""])
def test_a_lock_file_that_somebody_else_wrote(runtime_dir: Path, key: str, text: bytes) -> None:
    url = f"unix://{runtime_dir}/locked{key}"
    path = Path(f"{runtime_dir}/locked{key}.lock")
    path.write_bytes(text)
    lock = os.open(path, os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    try:
        with pytest.raises(nearcall.AlreadyExists) as caught:
            nearcall.Server(Plain(), url).start()
    finally:
        os.close(lock)
        path.unlink()
    who = "process 4711" if text == b"4711" else "another process"
    assert f"{who} already does" in fit(caught.value.message)


def test_a_hello_that_cannot_be_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nearcall")
    hello = json.dumps({"version": "1", "limits": EVIL}).encode()
    with nearcall.Server(Plain(), "tcp://127.0.0.1:0") as server:
        port = int(server.urls[0].rpartition(":")[2])
        with closing(socket.create_connection(("127.0.0.1", port))) as connection:
            connection.settimeout(PATIENCE)
            connection.sendall(struct.pack("<4sBBHI", b"NCAL", 1, 1, 0, len(hello)) + hello)
            while connection.recv(4096):
                pass
        until(lambda: "hello cannot be read" in caplog.text)
    for record in caplog.records:
        fit(record.getMessage())
