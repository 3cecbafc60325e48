"""Made by ``nearcall stub`` of ledger.proto; do not edit."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime
import enum
import typing

import msgspec
import nearcall

__all__ = [
    "BalanceRequest",
    "BalanceResponse",
    "Entry",
    "EntryKind",
    "HistoryRequest",
    "Ledger",
    "TransferManyResponse",
    "TransferRequest",
]


class EntryKind(enum.IntEnum):
    __protobuf_names__ = {0: "KIND_UNSPECIFIED", 1: "KIND_OUT", 2: "KIND_IN"}
    UNSPECIFIED = 0
    OUT = 1
    IN = 2


@dataclasses.dataclass(kw_only=True)
class TransferRequest:
    id: typing.Annotated[str, nearcall.field(1, implicit=True)] = ""
    to: typing.Annotated[str, nearcall.field(2, implicit=True)] = ""
    cents: typing.Annotated[int, nearcall.field(3, implicit=True)] = 0
    note: typing.Annotated[str | None, nearcall.field(4)] = None


class Entry(msgspec.Struct, kw_only=True):
    id: typing.Annotated[str, nearcall.field(1, implicit=True)] = ""
    kind: typing.Annotated[EntryKind, nearcall.field(2, implicit=True)] = EntryKind.UNSPECIFIED
    from_: typing.Annotated[str, nearcall.field(3, implicit=True)] = msgspec.field(default="", name="from")
    to: typing.Annotated[str, nearcall.field(4, implicit=True)] = ""
    cents: typing.Annotated[int, nearcall.field(5, implicit=True)] = 0
    at: typing.Annotated[datetime.datetime | None, nearcall.field(6)] = None
    note: typing.Annotated[str | None, nearcall.field(7)] = None


@dataclasses.dataclass(kw_only=True)
class BalanceRequest:
    pass


@dataclasses.dataclass(kw_only=True)
class BalanceResponse:
    cents: typing.Annotated[int, nearcall.field(1, implicit=True)] = 0


@dataclasses.dataclass(kw_only=True)
class HistoryRequest:
    follow: typing.Annotated[bool, nearcall.field(1, implicit=True)] = False


@dataclasses.dataclass(kw_only=True)
class TransferManyResponse:
    done: typing.Annotated[int, nearcall.field(1, type="int32", implicit=True)] = 0
    refused: typing.Annotated[dict[str, str], nearcall.field(2)] = dataclasses.field(default_factory=dict[str, str])
    """The reason for each id that was refused."""


@nearcall.service(name="ledger.v1.Ledger")
class Ledger(typing.Protocol):
    """Keeps accounts. Callers are whom their tokens say."""

    @nearcall.idempotent
    def transfer(self, request: TransferRequest) -> Entry:
        """Moves money of the caller's. Sent twice under one id, it is one transfer."""
        ...

    @nearcall.no_side_effects
    def balance(self, request: BalanceRequest) -> BalanceResponse: ...

    def history(self, request: HistoryRequest) -> collections.abc.Iterator[Entry]:
        """What the caller's account has seen; with `follow` also what it sees from now on."""
        ...

    def transfer_many(self, requests: collections.abc.Iterator[TransferRequest]) -> TransferManyResponse:
        """Many transfers, of which some may be refused."""
        ...
