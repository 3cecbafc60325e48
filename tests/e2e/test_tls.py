"""tls://: certificates as options, who is let in, and what is said to the others."""

from __future__ import annotations

import asyncio
import re
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import TLS, cli

from .services import Basics

URL = "tls://127.0.0.1:0"


@nearcall.service
class Who:
    def calls(self) -> list[str]:
        peer = nearcall.context().peer
        return [peer["subject"], *peer["names"]] if "subject" in peer else []


@pytest.fixture
def server_tls(certificates: Path) -> TLS:
    return TLS(cert=certificates / "server.pem", key=certificates / "server.key")


@pytest.fixture
def url(server_tls: TLS) -> Iterator[str]:
    with nearcall.Server(Basics(), Who(), URL, tls=server_tls) as server:
        yield server.urls[0]


def test_given_authorities_as_files_and_as_bytes(url: str, certificates: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SSL_CERT_FILE")
    ca = certificates / "ca.pem"
    for given in (ca, str(ca), ca.read_bytes()):
        with nearcall.connect(url, Basics, tls=TLS(ca=given)) as basics:
            assert basics.add(1) == 6
    with pytest.raises(nearcall.Unauthenticated, match=r"signed by nobody trusted here; give .* TLS\(ca=\.\.\.\)"):
        nearcall.connect(url, Basics, tls=TLS())


def test_an_event_loop_over_tls(url: str, certificates: Path) -> None:
    async def main() -> int:
        async with nearcall.aio.connect(url, Basics, tls=TLS(ca=certificates / "ca.pem")) as basics:
            return sum(await asyncio.gather(*(basics.add(n, 0) for n in range(100))))

    assert asyncio.run(main()) == 4950


def test_clients_show_who_they_are(certificates: Path) -> None:
    at = certificates
    tls = TLS(cert=at / "server.pem", key=at / "server.key", client_ca=at / "ca.pem")
    with nearcall.Server(Who(), URL, tls=tls) as server:
        url = server.urls[0]
        with nearcall.connect(url, Who, tls=TLS(cert=at / "client.pem", key=at / "client.key")) as who:
            assert who.calls() == ["CN=nearcall development client", "client"]
        with pytest.raises(nearcall.Unauthenticated, match=r"wants to see a certificate; give one with TLS\(cert="):
            nearcall.connect(url, Who)


def test_clients_need_no_certificate_unless_asked(url: str) -> None:
    with nearcall.connect(url, Who) as who:
        assert who.calls() == []


def test_names_must_fit(url: str, certificates: Path) -> None:
    elsewhere = url.replace("127.0.0.1", "localhost")
    with pytest.raises(nearcall.Unauthenticated, match=r"is not for localhost but for .*server_name"):
        nearcall.connect(elsewhere)
    nearcall.connect(elsewhere, tls=TLS(ca=certificates / "ca.pem", server_name="127.0.0.1")).close()


def test_a_certificate_of_the_wrong_kind(certificates: Path) -> None:
    tls = TLS(cert=certificates / "client.pem", key=certificates / "client.key")
    with (
        nearcall.Server(Basics(), URL, tls=tls) as server,
        pytest.raises(
            nearcall.Unauthenticated, match=r"certificate is not (for 127.0.0.1|meant for a server)"
        ) as caught,
    ):
        nearcall.connect(server.urls[0], Basics)
    assert "InvalidPurpose" not in caught.value.message


@pytest.mark.parametrize(
    "answer",
    [
        bytes.fromhex("15 0303 0002 0228"),  # the alert handshake_failure
        bytes.fromhex("15 0303 0002 0246"),  # the alert protocol_version
        bytes.fromhex("15 0303 0002 02c8"),  # an alert that nobody knows
        bytes.fromhex("16 0303 0004 02000000"),  # an empty server hello
        bytes.fromhex("17 0303 0004 00000000"),  # data before the handshake
        bytes.fromhex("16 0303 ffff 00000000"),  # a record that is too long
    ],
)
def test_failures_are_sentences(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(4096)
                connection.sendall(answer)
                while connection.recv(4096):
                    pass

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(nearcall.RpcError) as caught:
            nearcall.connect(f"tls://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    sentence = caught.value.message.partition(": ")[2]
    assert sentence.startswith("the server")
    # No name as libraries write them, such as HandshakeFailure.
    assert not re.search(r"[a-z][A-Z]|[{\[\"]", sentence), sentence


def test_plaintext_meets_encryption(url: str) -> None:
    with pytest.raises(nearcall.PermissionDenied, match="this port is encrypted; connect with tls://"):
        nearcall.connect(url.replace("tls:", "tcp:"))
    with (
        nearcall.Server(Basics(), "tcp://127.0.0.1:0") as server,
        pytest.raises(nearcall.Unauthenticated, match="does not encrypt; connect with tcp://"),
    ):
        nearcall.connect(server.urls[0].replace("tcp:", "tls:"))


def test_a_client_that_stalls_is_dropped_and_holds_nobody_up(server_tls: TLS) -> None:
    with nearcall.Server(Basics(), URL, tls=server_tls, handshake_timeout=0.5) as server:
        host, port = server.urls[0].removeprefix("tls://").split(":")
        with socket.create_connection((host, int(port))) as stalled:
            stalled.sendall(b"\x16\x03\x01\x02\x00\x01")
            with nearcall.connect(server.urls[0], Basics) as basics:
                assert basics.add(1) == 6
            stalled.settimeout(20)
            assert stalled.recv(1) == b""


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: TLS(cert=at / "none.pem", key=at / "server.key"), r"none\.pem'\) cannot be read: No such file"),
        (lambda at: TLS(cert=at / "server.pem"), r"needs TLS\(cert=\.\.\., key=\.\.\.\), both"),
        (
            lambda at: TLS(cert=at / "server.pem", key=at / "client.key"),
            r"client\.key does not belong to .*server\.pem",
        ),
        (lambda at: TLS(cert=at / "server.key", key=at / "server.key"), r"server\.key has no certificate in it"),
        (lambda at: TLS(cert=at / "server.pem", key=at / "server.pem"), r"server\.pem has no private key in it"),
        (lambda at: TLS(cert=b"x", key=b"y"), r"in cert= has no certificate in it"),
        (lambda at: TLS(ca=at / "ca.pem"), r"ca=\.\.\.\) is for clients"),
        (lambda at: TLS(server_name="x"), r"server_name=\.\.\.\) is for clients"),
    ],
)
def test_a_server_says_what_is_wrong_with_its_files(certificates: Path, make: Any, message: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=message) as caught:
        nearcall.Server(Basics(), URL, tls=make(certificates))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda at: TLS(client_ca=at / "ca.pem"), r"client_ca=\.\.\.\) is for servers"),
        (lambda at: TLS(key=at / "client.key"), "belong together"),
        (lambda at: TLS(ca=at / "client.key"), r"client\.key has no certificate in it"),
        (lambda at: TLS(server_name="not a name"), "is no name of a server"),
    ],
)
def test_a_client_says_what_is_wrong_with_its_files(url: str, certificates: Path, make: Any, message: str) -> None:
    with pytest.raises(nearcall.InvalidArgument, match=message):
        nearcall.connect(url, tls=make(certificates))


def test_serving_without_a_certificate() -> None:
    with pytest.raises(nearcall.InvalidArgument, match=r"without a certificate.*dev-certs"):
        nearcall.Server(Basics(), URL, tls=None).start()


def test_a_key_is_not_shown() -> None:
    assert "secret" not in repr(TLS(key=b"secret"))


def test_dev_certs_overwrites_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "certs"
    assert cli.main(["dev-certs", str(directory), "localhost"]) == 0
    assert "nearcall.TLS(cert=" in capsys.readouterr().out
    assert (directory / "server.key").stat().st_mode & 0o777 == 0o600
    before = {path: path.read_bytes() for path in directory.iterdir()}
    assert len(before) == 5
    (directory / "ca.pem").unlink()
    assert cli.main(["dev-certs", str(directory)]) == 2
    assert "nothing is overwritten" in capsys.readouterr().err
    assert not (directory / "ca.pem").exists()
    assert cli.main(["dev-certs", str(tmp_path / "other"), "two words"]) == 1
    assert not (tmp_path / "other").exists()
