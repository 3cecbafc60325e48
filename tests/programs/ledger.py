"""A ledger of accounts that was a servicer of grpcio: its .proto, its clients, TLS and tokens stay as they are.

Written from the pages of docs/ alone: grpc, guide/interceptors, guide/applications, security, guide/streams. The
interface is what `nearcall stub ledger.proto > ledger_api.py` has written. Run by test_ledger.py, which calls it
with grpcio's clients as well, and by hand:

    nearcall dev-certs certs 127.0.0.1
    echo '{"ada-secret": "ada", "bob-secret": "bob"}' > tokens.json
    python -m tests.programs.ledger serve grpcs://127.0.0.1:7400 certs tokens.json
    python -m tests.programs.ledger pay grpcs://127.0.0.1:7400 certs ada-secret bob 250 lunch
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import uuid
from collections.abc import Iterator
from contextvars import ContextVar
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

import nearcall

from .ledger_api import (
    BalanceRequest,
    BalanceResponse,
    Entry,
    EntryKind,
    HistoryRequest,
    Ledger,
    TransferManyResponse,
    TransferRequest,
)


class TooLittle(nearcall.FailedPrecondition):
    """There is not enough on the account. Clients of grpcio see the code that it derives from."""


class Tokens:
    """Whose each token is: a file, read for each call, so that tokens come and go without a restart."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)

    def user_of(self, token: str) -> str | None:
        owners: dict[str, str] = json.loads(self._path.read_text())
        return owners.get(token)

    def authenticate(self, call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
        """Was a `grpc.ServerInterceptor`."""
        scheme, _, token = str(call.context.metadata.get("authorization", "")).partition(" ")
        user = self.user_of(token)
        if scheme != "Bearer" or user is None:
            raise nearcall.Unauthenticated("come with a token")
        who.set(user)
        return proceed(call)


who: ContextVar[str] = ContextVar("who")


def caller() -> str:
    return who.get()


class Accounts(Ledger):
    """What was the servicer."""

    def __init__(self, opening: int) -> None:
        self._opening = opening
        self._lock = threading.Lock()
        self._entries: dict[str, Entry] = {}
        self._followers: list[tuple[str, queue.SimpleQueue[Entry | None]]] = []

    def transfer(self, request: TransferRequest, *, owner: str = nearcall.depends(caller)) -> Entry:
        if request.cents <= 0 or not request.to:
            raise nearcall.InvalidArgument("a transfer needs cents and an account to go to")
        with self._lock:
            before = self._entries.get(request.id)
            if before is not None:
                return before
            left = self._balance(owner)
            if request.cents > left:
                raise TooLittle(f"{owner} has {left} cents", details={"left": left})
            entry = Entry(
                id=request.id,
                kind=EntryKind.OUT,
                from_=owner,
                to=request.to,
                cents=request.cents,
                at=datetime.now(timezone.utc),
                note=request.note,
            )
            self._entries[request.id] = entry
            for account, entries in self._followers:
                if account in (owner, request.to):
                    entries.put(seen_by(account, entry))
        return entry

    def balance(self, request: BalanceRequest, *, owner: str = nearcall.depends(caller)) -> BalanceResponse:
        with self._lock:
            return BalanceResponse(cents=self._balance(owner))

    def history(self, request: HistoryRequest, *, owner: str = nearcall.depends(caller)) -> Iterator[Entry]:
        new: queue.SimpleQueue[Entry | None] = queue.SimpleQueue()
        with self._lock:
            old = [entry for entry in self._entries.values() if owner in (entry.from_, entry.to)]
            self._followers.append((owner, new))
        try:
            yield from (seen_by(owner, entry) for entry in old)
            if request.follow:
                nearcall.context().on_cancel(lambda: new.put(None))
                while (entry := new.get()) is not None:
                    yield entry
        finally:
            with self._lock:
                self._followers.remove((owner, new))

    def transfer_many(
        self, requests: Iterator[TransferRequest], *, owner: str = nearcall.depends(caller)
    ) -> TransferManyResponse:
        response = TransferManyResponse()
        for request in requests:
            try:
                self.transfer(request, owner=owner)
                response.done += 1
            except nearcall.RpcError as error:
                response.refused[request.id] = error.message
        return response

    def _balance(self, owner: str) -> int:
        gains = sum(entry.cents for entry in self._entries.values() if entry.to == owner)
        return self._opening + gains - sum(entry.cents for entry in self._entries.values() if entry.from_ == owner)


def seen_by(account: str, entry: Entry) -> Entry:
    kind = EntryKind.OUT if entry.from_ == account else EntryKind.IN
    return msgspec.structs.replace(entry, kind=kind)


def log(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Any:
    """A line for each call that has ended, with the number that the client has given it."""
    if call.kind in ("server_stream", "bidi_stream"):
        return log_stream(call, proceed)
    try:
        result = proceed(call)
    except nearcall.RpcError as error:
        say(call, error.code.name)
        raise
    say(call, "OK")
    return result


def log_stream(call: nearcall.ServerCall, proceed: nearcall.Proceed) -> Iterator[object]:
    how = "CANCELLED"
    try:
        yield from proceed(call)
        how = "OK"
    except nearcall.RpcError as error:
        how = error.code.name
        raise
    finally:
        say(call, "CANCELLED" if call.context.cancelled else how)


def say(call: nearcall.ServerCall, how: str) -> None:
    print(call.method, call.context.metadata.get("request-id", "-"), how, flush=True)


def serve(url: str, certs: str, tokens: str, *more: str) -> None:
    folder = Path(certs)
    nearcall.serve(
        Accounts(opening=1000),
        url,
        *more,
        tls=nearcall.TLS(cert=folder / "server.pem", key=folder / "server.key"),
        interceptors=[log, Tokens(tokens).authenticate],
        on_ready=lambda server: print(*server.urls, flush=True),
    )


def number(call: nearcall.ClientCall, proceed: nearcall.Proceed) -> Any:
    """Was a `grpc.UnaryUnaryClientInterceptor`, and three others for the other shapes."""
    call.metadata["request-id"] = call.method.rpartition(".")[2]
    return proceed(call)


def pay(url: str, certs: str, token: str, to: str, cents: str, note: str) -> None:
    with nearcall.connect(
        url,
        Ledger,
        tls=nearcall.TLS(ca=Path(certs) / "ca.pem"),
        interceptors=[number, nearcall.auth.token(token)],
        timeout=10,
    ) as ledger:
        request = TransferRequest(id=uuid.uuid4().hex, to=to, cents=int(cents), note=note)
        try:
            entry = ledger.transfer(request)
        except nearcall.FailedPrecondition as error:
            print("refused:", error, error.details)
        else:
            print(f"{entry.from_} has given {entry.cents} cents to {entry.to} for {entry.note}")
        print(ledger.balance(BalanceRequest()).cents, "cents are left")


if __name__ == "__main__":
    command, *words = sys.argv[1:]
    if command == "serve":
        serve(*words)
    else:
        pay(*words)
