"""msgspec's decoders, made one at a time."""

from __future__ import annotations

import threading
from typing import Any

import msgspec

__all__ = ["make_decoder"]

_turn = threading.RLock()


def make_decoder(annotation: Any, **hooks: Any) -> msgspec.msgpack.Decoder[Any]:
    """A decoder for a type.

    msgspec notes at a class what it has found out about it, and reads the notes of another thread before they are
    finished: the process ends by SIGSEGV (0.22.0). Whoever uses a decoder, or converts to a type that has one, only
    reads finished notes.

    Args:
        annotation: The type.
        hooks: As for ``msgspec.msgpack.Decoder``.

    Raises:
        TypeError: msgspec does not support the type.
        NameError: the type refers to a name that does not exist.
    """
    with _turn:
        return msgspec.msgpack.Decoder(annotation, **hooks)
