"""What a server keeps and runs at most, and how its options say so."""

from __future__ import annotations

from ..errors import InvalidArgument
from ..options.checked import check_seconds, check_whole, with_option

__all__ = ["DEFAULT_MAX_CONCURRENCY", "DEFAULT_MAX_PENDING", "DEFAULT_MAX_STREAMS", "check_age", "check_memory"]

DEFAULT_MAX_CONCURRENCY = 256
"""Handlers that may run at once in threads, unless the user says otherwise."""
DEFAULT_MAX_PENDING = 65_536
"""Calls that may be under way or waiting at once, unless the user says otherwise."""
DEFAULT_MAX_STREAMS = 1_000
"""Calls with a stream that one connection may have under way at once, unless the user says otherwise."""

_DEFAULT_MAX_MEMORY = 1 << 30
"""Bytes that a server keeps for its clients, unless the user says otherwise, or four messages of the greatest size need
more.
"""
_BESIDE = 1 << 20
"""Bytes that a message may have besides its payload."""
_LARGEST = 2**63 - 1
_YOUNGEST = 0.1
"""Seconds that a connection lasts at least: clients must get to call over it."""


def check_age(age: float | None) -> float | None:
    """The option ``max_connection_age``, seconds.

    Raises:
        InvalidArgument: it is malformed, or too short to call anything.
    """
    if age is None:
        return None
    seconds = check_seconds("max_connection_age", age, otherwise="None")
    if seconds < _YOUNGEST:
        raise with_option(
            InvalidArgument(f"max_connection_age must be at least {_YOUNGEST} seconds, not {age!r}"),
            "max_connection_age",
        )
    return seconds


def check_memory(max_memory: int | None, max_message_size: int) -> int:
    """The option ``max_memory``, bytes.

    Raises:
        InvalidArgument: it has no room for the longest message in and the longest one out.
    """
    if max_memory is None:
        return min(max(_DEFAULT_MAX_MEMORY, 4 * max_message_size), _LARGEST)
    # As `Options::of_one_call` in crates/transport/src/options/mod.rs, which lets one client have as much.
    least = 2 * (max_message_size + _BESIDE)
    if check_whole("max_memory", max_memory, "bytes") < least:
        raise with_option(
            InvalidArgument(
                f"max_memory={max_memory} has no room for the longest message in and the longest out: with "
                f"max_message_size={max_message_size} they take {least} bytes; raise max_memory, or lower "
                "max_message_size"
            ),
            "max_memory",
        )
    return max_memory
