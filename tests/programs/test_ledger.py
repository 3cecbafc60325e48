"""The ledger is called by grpcio's clients, whose code protoc has made of the same .proto, and by nearcall's."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import nearcall
from nearcall import cli

from .ledger_api import BalanceRequest, EntryKind, HistoryRequest, Ledger, TransferRequest

grpc: Any = pytest.importorskip("grpc")
pytest.importorskip("grpc_tools")

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
PROTO = HERE / "ledger.proto"
PATIENCE = 60.0


class Server:
    """The program as a process of its own, and the addresses that it has said."""

    def __init__(self, folder: Path) -> None:
        self.certs = folder / "certs"
        self.tokens = folder / "tokens.json"
        assert cli.main(["dev-certs", str(self.certs), "127.0.0.1"]) == 0
        self.tokens.write_text(json.dumps({"ada-secret": "ada", "bob-secret": "bob", "eve-secret": "eve"}))
        command = [sys.executable, "-m", "tests.programs.ledger", "serve", "grpcs://127.0.0.1:0"]
        command += [str(self.certs), str(self.tokens), f"unix://{folder}/ledger.sock"]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.url, self.unix = self.line().split()

    def line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")

    def end(self) -> tuple[int, str]:
        """The exit status, and what it has complained of."""
        self.process.terminate()
        _, complaints = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, complaints


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    try:
        yield server
        assert server.end() == (0, "")
    finally:
        server.process.kill()
        server.process.wait(PATIENCE)


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """What protoc makes for grpcio: messages and stubs."""
    folder = tmp_path_factory.mktemp("generated")
    words = [f"-I{HERE}", f"--python_out={folder}", f"--grpc_python_out={folder}", str(PROTO)]
    subprocess.run([sys.executable, "-m", "grpc_tools.protoc", *words], check=True)
    sys.path.insert(0, str(folder))
    try:
        yield importlib.import_module("ledger_pb2"), importlib.import_module("ledger_pb2_grpc")
    finally:
        sys.path.remove(str(folder))


def channel_of(server: Server, token: str) -> Any:
    """What a program for grpcio makes: TLS and a token."""
    credentials = grpc.composite_channel_credentials(
        grpc.ssl_channel_credentials((server.certs / "ca.pem").read_bytes()), grpc.access_token_call_credentials(token)
    )
    return grpc.secure_channel(server.url.removeprefix("grpcs://"), credentials)


def test_the_interface_is_that_of_the_proto() -> None:
    assert cli.main(["stub", "--check", str(HERE / "ledger_api.py"), str(PROTO)]) == 0


def test_grpcio_calls_it(server: Server, generated: tuple[Any, Any]) -> None:
    messages, stubs = generated
    with channel_of(server, "ada-secret") as adas, channel_of(server, "bob-secret") as bobs:
        ada, bob = stubs.LedgerStub(adas), stubs.LedgerStub(bobs)
        lunch = messages.TransferRequest(id="1", to="bob", cents=250, note="lunch")
        metadata = [("request-id", "7")]
        entry = ada.Transfer(lunch, timeout=PATIENCE, metadata=metadata)
        assert server.line() == "ledger.v1.Ledger.transfer 7 OK"
        assert (getattr(entry, "from"), entry.to, entry.cents, entry.note) == ("ada", "bob", 250, "lunch")
        assert entry.kind == messages.Entry.KIND_OUT
        assert entry.at.seconds > 0
        assert ada.Transfer(lunch, timeout=PATIENCE) == entry  # sent twice, it is one
        assert ada.Balance(messages.BalanceRequest(), timeout=PATIENCE).cents == 750

        following = bob.History(messages.HistoryRequest(follow=True), timeout=PATIENCE)
        assert next(following).kind == messages.Entry.KIND_IN
        many = [messages.TransferRequest(id=str(n), to="bob", cents=400) for n in (2, 3)]
        response = ada.TransferMany(iter([*many, messages.TransferRequest(id="4", to="bob")]), timeout=PATIENCE)
        assert response.done == 1
        assert dict(response.refused) == {
            "3": "ada has 350 cents",
            "4": "a transfer needs cents and an account to go to",
        }
        assert next(following).id == "2"
        following.cancel()
        while (line := server.line()) != "ledger.v1.Ledger.history - CANCELLED":
            assert line.startswith("ledger.v1.Ledger."), line
        assert [entry.id for entry in ada.History(messages.HistoryRequest(), timeout=PATIENCE)] == ["1", "2"]


def test_grpcio_is_refused_as_it_was(server: Server, generated: tuple[Any, Any]) -> None:
    messages, stubs = generated
    with channel_of(server, "ada-secret") as channel:
        ada = stubs.LedgerStub(channel)
        with pytest.raises(grpc.RpcError) as poor:
            ada.Transfer(messages.TransferRequest(id="1", to="bob", cents=1001), timeout=PATIENCE)
        assert poor.value.code() == grpc.StatusCode.FAILED_PRECONDITION
        assert poor.value.details() == "ada has 1000 cents"
        with pytest.raises(grpc.RpcError) as late:
            list(ada.History(messages.HistoryRequest(follow=True), timeout=0.1))
        assert late.value.code() == grpc.StatusCode.DEADLINE_EXCEEDED
    with channel_of(server, "no-secret") as channel:
        with pytest.raises(grpc.RpcError) as unknown:
            stubs.LedgerStub(channel).Balance(messages.BalanceRequest(), timeout=PATIENCE)
        assert unknown.value.code() == grpc.StatusCode.UNAUTHENTICATED
        health: Any = pytest.importorskip("grpc_health.v1.health_pb2")
        health_stubs: Any = importlib.import_module("grpc_health.v1.health_pb2_grpc")
        answer = health_stubs.HealthStub(channel).Check(
            health.HealthCheckRequest(service="ledger.v1.Ledger"), timeout=PATIENCE
        )
        assert answer.status == health.HealthCheckResponse.SERVING


def test_the_programs_own_client(server: Server) -> None:
    def pay(token: str, cents: str) -> list[str]:
        words = ["pay", server.url, str(server.certs), token, "bob", cents, "lunch"]
        command = [sys.executable, "-m", "tests.programs.ledger", *words]
        return subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE, check=True
        ).stdout.splitlines()

    assert pay("ada-secret", "250") == ["ada has given 250 cents to bob for lunch", "750 cents are left"]
    assert pay("ada-secret", "751") == ["refused: ada has 750 cents {'left': 750}", "750 cents are left"]
    assert [server.line() for _ in range(4)] == [
        "ledger.v1.Ledger.transfer transfer OK",
        "ledger.v1.Ledger.balance balance OK",
        "ledger.v1.Ledger.transfer transfer FAILED_PRECONDITION",
        "ledger.v1.Ledger.balance balance OK",
    ]


def test_beside_it_without_a_network(server: Server) -> None:
    """Over a Unix socket, with a token that is new."""
    with nearcall.connect(server.unix, Ledger, interceptors=[nearcall.auth.token("new")]) as ledger_of_zoe:
        with pytest.raises(nearcall.Unauthenticated, match="come with a token"):
            ledger_of_zoe.balance(BalanceRequest())
        server.tokens.write_text(json.dumps({"new": "zoe"}))
        assert ledger_of_zoe.balance(BalanceRequest()).cents == 1000
        requests = (TransferRequest(id=str(n), to="ada", cents=1) for n in range(100))
        assert ledger_of_zoe.transfer_many(requests).done == 100
        entries = list(ledger_of_zoe.history(HistoryRequest()))
        assert [entry.id for entry in entries] == [str(n) for n in range(100)]
        assert {entry.kind for entry in entries} == {EntryKind.OUT}
