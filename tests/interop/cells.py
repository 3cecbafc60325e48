"""The table of what is tried: a case, by whose client, at whose server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from .peers import ALL, PEERS


class Column(NamedTuple):
    peer: str
    calls_us: bool
    """The peer's client and our server, or the other way round."""
    encrypted: bool

    def __str__(self) -> str:
        who = (self.peer, "nearcall") if self.calls_us else ("nearcall", self.peer)
        return f"{' calls '.join(who)}{', TLS' if self.encrypted else ''}"


class Cell(NamedTuple):
    case: str
    column: Column

    def __str__(self) -> str:
        return f"{self.column}: {self.case}".replace(" ", "-")


def columns() -> Iterator[Column]:
    for peer in PEERS.values():
        for calls_us in (True, False):
            for encrypted in (False, True)[: 1 + peer.speaks_tls]:
                yield Column(peer.name, calls_us, encrypted)


def cells(calls_us: bool) -> list[Cell]:
    """All that can be tried in one direction."""
    found = []
    for column in columns():
        if column.calls_us == calls_us:
            peer = PEERS[column.peer]
            can = peer.client_cases if calls_us else peer.server_cases
            found += [Cell(case, column) for case in ALL if case in can]
    return found


def table(found: dict[Cell, str]) -> Iterator[str]:
    """Lines that show it."""
    shown = [column for column in columns() if any(cell.column == column for cell in found)]
    for number, column in enumerate(shown, 1):
        yield f"  {number:>2}  {column}"
    yield ""
    yield " " * 29 + "".join(f"{number:>9}" for number in range(1, len(shown) + 1))
    for case in ALL:
        states = [found.get(Cell(case, column), "–") for column in shown]
        yield f"{case:<29}" + "".join(f"{state:>9}" for state in states)
    yield ""
    yield "–: the peer does not have this case."
