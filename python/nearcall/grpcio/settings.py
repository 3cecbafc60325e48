"""Options as grpcio's users write them: pairs of a name and a value."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..call.compression import compression as compressed_with
from ..log import WARNING, log
from .peer import grpc

__all__ = ["channel_options", "compressing", "compression_of", "insecure_options", "options_of"]

_HARMLESS = (
    "grpc.primary_user_agent",
    "grpc.secondary_user_agent",
    "grpc.max_send_message_length",
    "grpc.ssl_target_name_override",
)
_ENDLESS = (1 << 32) - 1
"""The longest message that gRPC's framing can carry, bytes."""
_NEEDLESS = ("grpc.so_reuseport", "grpc.keepalive", "grpc.http2", "grpc.enable_retries", "grpc.lb_policy_name")
_LENGTH = "grpc.max_receive_message_length"
_SIMILAR = 0.9
"""How like another name one is that was misspelt: many names of gRPC's begin and end alike."""
_told: set[str] = set()
"""The names that the log has had: grpcio says nothing of unknown names, and programs make many channels."""


def options_of(pairs: Iterable[tuple[str, Any]] | None) -> dict[str, Any]:
    """Options of nearcall that mean the same. Options without a counterpart are left out, with a line in the log
    the first time.
    """
    found: dict[str, Any] = {}
    unknown: list[str] = []
    for name, value in pairs or ():
        if name == _LENGTH:
            found["max_message_size"] = value if value >= 0 else _ENDLESS
        elif name not in _HARMLESS and not name.startswith(_NEEDLESS):
            unknown.append(name)
    if new := [name for name in unknown if name not in _told]:
        _told.update(new)
        log(
            WARNING,
            "nearcall.grpcio has nothing that corresponds to %s, and leaves it out",
            ", ".join(map(_meant, new)),
        )
    return found


def _meant(name: str) -> str:
    """The name, with the one that was meant if it is misspelt."""
    import difflib  # only if there is something to say

    close = difflib.get_close_matches(name, (_LENGTH, *_HARMLESS), n=1, cutoff=_SIMILAR)
    return f"{name} (did you mean '{close[0]}'?)" if close else name


def compression_of(compression: Any) -> str | None:
    """The name of a compression; ``None`` for none.

    Raises:
        ValueError: nearcall does not write this compression.
    """
    if compression is None or compression == grpc.Compression.NoCompression:
        return None
    if compression == grpc.Compression.Gzip:
        return "gzip"
    raise ValueError(f"{compression!r} is not written: give grpc.Compression.Gzip")


def compressing(compression: Any) -> AbstractContextManager[object]:
    """A block whose calls compress as ``compression`` says; ``None``: as their channel says.

    Raises:
        ValueError: nearcall does not write this compression.
    """
    if compression is None:
        return nullcontext()
    return compressed_with("gzip" if compression_of(compression) else None)


def channel_options(pairs: Iterable[tuple[str, Any]] | None, compression: Any) -> dict[str, Any]:
    """The options of a channel.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
    """
    found = options_of(pairs)
    if (written := compression_of(compression)) is not None:
        found["compression"] = written
    return found


def insecure_options(pairs: Iterable[tuple[str, Any]] | None, compression: Any) -> Any:
    """The options of a channel without encryption.

    Raises:
        ValueError: an argument has no counterpart; the message says which.
    """
    return {"allow_plaintext": True, **channel_options(pairs, compression)}
