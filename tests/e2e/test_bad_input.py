"""What is wrong is said in one line: what, where, and what to do."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall

from .conftest import SHARED
from .process import ServerProcess
from .services import Basics


def one_line(error: BaseException, *words: str) -> None:
    text = str(error)
    assert "\n" not in text
    for word in words:
        assert word in text, text


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("calc", ["scheme", "shm://name"]),
        ("", ["scheme"]),
        ("ftp://x", ["ftp://", "shm://"]),
        ("shm://", ["name", "letters"]),
        ("shm://a/b", ["name", "letters"]),
        ("shm://../../etc", ["name"]),
        ("shm://" + "x" * 200, ["64"]),
        ("unix://relative.sock", ["unix:///path"]),
        ("unix://", ["unix:///path"]),
        ("unix:///" + "x" * 200, ["107"]),
        ("tcp://localhost", ["port", "tcp://127.0.0.1:7000"]),
        ("tcp://127.0.0.1:notaport", ["notaport", "65535"]),
        ("tcp://127.0.0.1:99999", ["99999", "65535"]),
        ("tcp://:80", ["host"]),
        ("inproc://", ["name"]),
    ],
)
def test_malformed_urls(url: str, words: list[str]) -> None:
    for attempt in (lambda: nearcall.connect(url, Basics), lambda: nearcall.Server(Basics(), url).start()):
        with pytest.raises(nearcall.InvalidArgument) as caught:
            attempt()
        one_line(caught.value, url, *words)


def test_a_name_that_was_never_served(new_url: str, transport: str) -> None:
    with pytest.raises(nearcall.Unavailable) as caught:
        nearcall.connect(new_url, Basics)
    one_line(caught.value, new_url, "start")
    if transport in ("shm", "unix"):
        one_line(caught.value, "nobody has served it")


@pytest.mark.crash
def test_a_name_whose_server_died(outside_url: str, outside: str) -> None:
    with ServerProcess(outside_url) as server:
        server.kill()
    with pytest.raises(nearcall.Unavailable) as caught:
        nearcall.connect(server.url, Basics)
    one_line(caught.value, server.url, "start")
    if outside not in ("tcp", "tls", "nats"):
        one_line(caught.value, "died")
    with nearcall.Server(Basics(), server.url):
        pass


def test_a_url_that_is_served_already(outside_url: str, outside: str) -> None:
    if outside in SHARED:
        pytest.skip("several servers may be there")
    with ServerProcess(outside_url) as server:
        with pytest.raises(nearcall.AlreadyExists) as caught:
            nearcall.Server(Basics(), server.url).start()
        one_line(caught.value, server.url)
        if server.url.startswith(("shm", "unix")):
            one_line(caught.value, str(server.pid), "stop it or serve another name")


def test_a_file_that_is_no_socket_is_not_touched(runtime_dir: Path, tmp_path: Path) -> None:
    path = tmp_path / "precious"
    path.write_text("keep me")
    with pytest.raises(OSError, match="not a socket") as caught:
        nearcall.Server(Basics(), f"unix://{path}").start()
    one_line(caught.value, str(path))
    assert path.read_text() == "keep me"


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="missing") as caught:
        nearcall.Server(Basics(), f"unix://{tmp_path}/missing/socket").start()
    one_line(caught.value)


@nearcall.service(name="Basics")
class Newer:
    """A client's idea of Basics that the server does not share."""

    def add(self, a: int, b: str) -> int: ...


@nearcall.service(name="Basics")
class OtherResult:
    def add(self, a: int, b: int = 5) -> str: ...


@nearcall.service(name="Basics")
class MoreParameters:
    def add(self, a: int, b: int, c: int) -> int: ...


@nearcall.service(name="Basics")
class FewerParameters:
    def add(self) -> int: ...


@nearcall.service(name="Basics")
class MoreMethods:
    def multiply(self, a: int, b: int) -> int: ...


@nearcall.service(name="Basics")
class OtherKind:
    def add(self, a: int, b: int = 5) -> Iterator[int]: ...


@nearcall.service
class Unknown:
    def method(self) -> None: ...


@nearcall.service(name="Basics")
class Part:
    """What the server serves more than that is no difference."""

    def add(self, b: int, a: int) -> int: ...


@pytest.mark.parametrize(
    ("service", "words"),
    [
        (Newer, ["Basics.add", "b: int", "b: str"]),
        (OtherResult, ["Basics.add", "returns int", "returns str"]),
        (MoreParameters, ["Basics.add", "'c'"]),
        (FewerParameters, ["Basics.add", "'a'"]),
        (OtherKind, ["Basics.add", "stream"]),
        (Unknown, ["Unknown", "Basics"]),
    ],
)
def test_a_service_that_differs(served: Any, service: type[Any], words: list[str]) -> None:
    url = served("shm")
    with pytest.raises(nearcall.FailedPrecondition) as caught:
        nearcall.connect(url, service)
    one_line(caught.value, *words)


def test_a_method_that_the_server_does_not_have(served: Any) -> None:
    with nearcall.connect(served("shm"), MoreMethods) as client:
        with pytest.raises(nearcall.Unimplemented) as caught:
            client.multiply(1, 2)
        one_line(caught.value, "Basics", "'multiply'", "update the server")


def test_a_service_that_differs_only_in_order(url: str) -> None:
    with nearcall.connect(url, Part) as part:
        assert part.add(1, 2) == 3
        assert part.add(b=1, a=2) == 3


def test_what_is_no_service(url: str) -> None:
    class Plain:
        def add(self) -> int: ...

    with pytest.raises(TypeError, match=r"Plain.*@nearcall\.service"):
        nearcall.connect(url, Plain)
    with pytest.raises(TypeError, match=r"Plain.*@nearcall\.service"):
        nearcall.Server(Plain(), "shm://x")


def test_what_cannot_be_served() -> None:
    with pytest.raises(TypeError, match="nothing to serve"):
        nearcall.Server("shm://x")
    with pytest.raises(ValueError, match="nowhere to serve"):
        nearcall.Server(Basics()).start()
    with pytest.raises(TypeError, match=r"Basics\(\)"):
        nearcall.Server(Basics, "shm://x")
    with pytest.raises(TypeError, match=r"two.*Basics.*name="):
        nearcall.Server(Basics(), Basics(), "shm://x")


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda basics: basics.add(), ["Basics.add()", "'a' is missing", "add(a: int"]),
        (lambda basics: basics.add(1, 2, 3), ["Basics.add()", "takes 2", "got 3"]),
        (lambda basics: basics.add(1, c=3), ["Basics.add()", "unexpected", "'c'"]),
        (lambda basics: basics.add(1, a=3), ["Basics.add()", "'a'", "twice"]),
        (lambda basics: basics.call_forms(a=1, b=2, d=3), ["'a'", "by position"]),
        (lambda basics: basics.call_forms(1, 2, 3, 4), ["Basics.call_forms()"]),
        (lambda basics: basics.add("1"), ["Basics.add()", "'a' must be int, got str"]),
        (lambda basics: basics.add(1, None), ["Basics.add()", "'b' must be int, got None"]),
        (lambda basics: basics.add(True), ["'a' must be int, got bool"]),
        (lambda basics: basics.add(1.0), ["'a' must be int, got float"]),
        (lambda basics: basics.add(2**16383), ["Basics.add()", "'a'", "2049 bytes", "send bytes"]),
        (lambda basics: basics.echo("text"), ["Basics.echo()", "'data' must be bytes, got str"]),
        (lambda basics: basics.echo(None), ["'data' must be bytes, got None"]),
        (lambda basics: basics.echo_text(b"x"), ["'text' must be str, got bytes"]),
        (lambda basics: basics.echo_text("\ud800"), ["Basics.echo_text()", "'text'", "surrogate"]),
        (lambda basics: basics.echo_point({"x": 1}), ["'point' must be Point, got dict"]),
        (lambda basics: basics.anything(object()), ["Basics.anything()", "'value'", "object"]),
        (lambda basics: basics.scale([1.0], 2.0), ["'values'", "list"]),
    ],
)
def test_wrong_arguments(url: str, call: Any, words: list[str]) -> None:
    with nearcall.connect(url, Basics) as basics:
        with pytest.raises(nearcall.InvalidArgument) as caught:
            call(basics)
        one_line(caught.value, *words)
        assert basics.add(1) == 6


def test_ints_beyond_64_bits_arrive(url: str) -> None:
    with nearcall.connect(url, Basics) as basics:
        assert basics.add(2**70) == 2**70 + 5
        assert basics.add(b=-(2**80), a=1) == 1 - 2**80
        assert basics.add(2**64 - 1, 1) == 2**64
        assert basics.anything({2**64: [-(2**16382)]}) == {2**64: [-(2**16382)]}


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda basics: basics.add("1"), ["Basics.add()", "'a'", "int", "str"]),
        (lambda basics: basics.add(), ["Basics.add()", "'a' is missing"]),
        (lambda basics: basics.add(1, c=3), ["Basics.add()", "'c'"]),
        (lambda basics: basics.echo_point({"x": "1"}), ["Basics.echo_point()", "'point'", "x", "int", "str"]),
        (lambda basics: basics.echo_point({}), ["Basics.echo_point()", "'point'", "x"]),
        (lambda basics: basics.echo_point(3), ["Basics.echo_point()", "'point'"]),
        (lambda basics: basics.arrays({"a": 3}), ["Basics.arrays()", "'by_name'"]),
    ],
)
def test_wrong_arguments_that_only_the_server_can_see(url: str, call: Any, words: list[str]) -> None:
    with nearcall.connect(url) as anything:
        with pytest.raises(nearcall.InvalidArgument) as caught:
            call(anything.Basics)
        one_line(caught.value, *words)
        assert anything.Basics.add(1) == 6


def test_annotations_that_cannot_be_encoded_fail_at_the_class() -> None:
    with pytest.raises(TypeError, match=r"Bad\.method\(\).*'value: .*cannot be sent"):

        @nearcall.service
        class Bad:
            def method(self, value: threading.Lock) -> None: ...  # type: ignore[valid-type]

    with pytest.raises(TypeError, match=r"Bad2\.method\(\).*'value'.*annotation"):

        @nearcall.service
        class Bad2:
            def method(self, value) -> None: ...  # type: ignore[no-untyped-def]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ring_size": 1000}, ["ring_size", "power of two", "1000"]),
        ({"spin": "never"}, ["spin", "auto", "never"]),
        ({"spin": -1}, ["spin", "-1"]),
        ({"timeout": -1}, ["timeout", "-1"]),
        ({"timeout": float("nan")}, ["timeout"]),
        ({"handshake_timeout": -1}, ["handshake_timeout", "-1"]),
    ],
)
def test_wrong_options(served: Any, options: dict[str, Any], words: list[str]) -> None:
    with pytest.raises((nearcall.InvalidArgument, ValueError)) as caught:
        nearcall.connect(served("shm"), Basics, **options)
    one_line(caught.value, *words)


class Impostor:
    """A listener that answers the handshake as it likes."""

    def __init__(self, answer: bytes) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"tcp://127.0.0.1:{self._listener.getsockname()[1]}"
        self._answer = answer
        self._thread = threading.Thread(target=self._serve)

    def _serve(self) -> None:
        connection, _ = self._listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(self._answer)
            with contextlib.suppress(ConnectionError):
                while connection.recv(65536):
                    pass

    def __enter__(self) -> Impostor:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join(20)
        self._listener.close()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", ["does not speak nearcall", "HTTP/1.1 400"]),
        (b"NCAL\x07\x02\x00\x00" + struct.pack("<I", 2) + b"{}", ["version 7", "version 1"]),
        (b"NCAL\x01\x02\x00\x00\xff\xff\xff\xff", ["handshake"]),
        (b"NCAL\x01\x02\x00\x00" + struct.pack("<I", 4) + b"nope", []),
        (b"NCAL\x01\x03\x00\x00" + struct.pack("<I", 4) + b"nope", ["refused", "nope"]),
    ],
)
def test_a_server_that_is_none_of_ours(answer: bytes, words: list[str]) -> None:
    with Impostor(answer) as impostor:
        with pytest.raises(nearcall.RpcError) as caught:
            nearcall.connect(impostor.url, Basics, handshake_timeout=20)
        one_line(caught.value, impostor.url, *words)


def test_a_server_that_says_nothing() -> None:
    with Impostor(b"") as impostor:
        with pytest.raises(nearcall.DeadlineExceeded) as caught:
            nearcall.connect(impostor.url, Basics, handshake_timeout=0.1)
        one_line(caught.value, impostor.url, "handshake", "handshake_timeout: 0.1 s")


@pytest.mark.parametrize(
    ("hello", "words"),
    [
        (b"NCAL\x09\x01\x00\x00" + struct.pack("<I", 2) + b"{}", [b"version 9", b"version 1"]),
        (b"SSH-2.0-OpenSSH_9.6\r\n", [b"does not speak nearcall"]),
        (b"NCAL\x01\x01\x00\x00" + struct.pack("<I", 2) + b"{}", []),
    ],
)
def test_a_client_that_is_none_of_ours_is_told_so(served: Any, hello: bytes, words: list[bytes]) -> None:
    host, _, port = served("tcp").removeprefix("tcp://").rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as stranger:
        stranger.sendall(hello)
        answer = b""
        while more := stranger.recv(65536):
            answer += more
    assert answer[:6] == b"NCAL\x01\x03"
    for word in words:
        assert word in answer


def test_the_users_own_directory_must_be_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path / "nearcall"
    directory.mkdir()
    directory.chmod(0o755)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    with pytest.raises((nearcall.RpcError, OSError)) as caught:
        nearcall.Server(Basics(), "shm://x").start()
    one_line(caught.value, str(directory), "0700", "NEARCALL_RUNTIME_DIR")
    assert os.listdir(directory) == []


def test_a_name_too_long_for_the_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(deep))
    with pytest.raises((nearcall.RpcError, OSError)) as caught:
        nearcall.Server(Basics(), "shm://" + "x" * 60).start()
    one_line(caught.value, "107", "NEARCALL_RUNTIME_DIR")
