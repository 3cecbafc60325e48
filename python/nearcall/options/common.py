"""Options that mean the same to clients and servers: limits, spinning, and the users that may connect."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, TypeAlias, cast, get_args

from .. import _core
from ..errors import InvalidArgument
from .checked import check_seconds, with_option
from .schemes import names_socket, speaks_protobuf

__all__ = [
    "DEFAULT_MAX_MESSAGE_SIZE",
    "DEFAULT_MAX_REFERENCES",
    "DEFAULT_MAX_VALUES",
    "DEFAULT_RING_SIZE",
    "Compression",
    "check_compression",
    "check_encoding",
    "check_spin",
    "check_users",
]

Compression: TypeAlias = Literal["gzip", "zstd"]
"""How messages may be compressed."""

DEFAULT_MAX_MESSAGE_SIZE = _core.DEFAULT_MAX_MESSAGE_SIZE
"""Longest message received, bytes, unless the user says otherwise."""
DEFAULT_MAX_VALUES = 2_000_000
"""Values that a received message may hold, unless the user says otherwise: some 300 MB, if each is an empty dict."""
DEFAULT_RING_SIZE = _core.DEFAULT_RING_SIZE
"""Size of each of a shared memory connection's two rings, bytes. Memory counts only once it was touched."""
DEFAULT_MAX_REFERENCES = 10_000
"""Objects that may be passed to one peer at once, unless the user says otherwise."""


def check_spin(spin: float | Literal["auto"]) -> float | Literal["auto"]:
    """The option ``spin``.

    Raises:
        InvalidArgument: it is neither ``"auto"`` nor a number of seconds.
    """
    return spin if spin == "auto" else check_seconds("spin", spin, otherwise='"auto"')


def check_compression(urls: Sequence[str], compression: Compression | None) -> Compression | None:
    """The option ``compression``.

    Raises:
        InvalidArgument: there is no such compression.
        ValueError: none of the URLs is for gRPC or HTTP.
    """
    if check_encoding("compression", compression) is None:
        return None
    if not any(map(speaks_protobuf, urls)):
        raise with_option(
            ValueError(
                "compression is for grpc:// and http:// URLs, and there is none: at others nothing is compressed"
            ),
            "compression",
        )
    return compression


def check_encoding(option: str, encoding: Compression | None) -> Compression | None:
    """A compression for the option of this name.

    Raises:
        InvalidArgument: there is no such compression.
    """
    if encoding is not None and encoding not in get_args(Compression):
        raise with_option(InvalidArgument(f'{option} must be None, "gzip" or "zstd", not {encoding!r}'), option)
    return encoding


def check_users(
    urls: Sequence[str], allow_users: Sequence[str | int], allow_groups: Sequence[str | int]
) -> tuple[list[int], list[int]]:
    """The ids of users and groups that were named for the Unix sockets among these URLs.

    Raises:
        InvalidArgument: there is no such user or group.
        TypeError: a single name was given in place of a list.
        ValueError: none of the URLs is ``unix://``, ``grpc+unix://`` or ``http+unix://``.
    """
    for option, given in (("allow_users", allow_users), ("allow_groups", allow_groups)):
        if isinstance(given, (str, int)):
            raise with_option(TypeError(f"{option} takes a list: write {option}=[{given!r}]"), option)
        if given and not any(map(names_socket, urls)):
            raise with_option(
                ValueError(f"{option} is for unix:// URLs, and there is none; shm:// is for the own user only"), option
            )
    return [_user(user) for user in allow_users], [_group(group) for group in allow_groups]


def _user(user: str | int) -> int:
    if isinstance(user, int):
        return _id("allow_users", user)
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise with_option(
            InvalidArgument(f"allow_users: there is no user '{user}' on this machine"), "allow_users"
        ) from None


def _group(group: str | int) -> int:
    if isinstance(group, int):
        return _id("allow_groups", group)
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise with_option(
            InvalidArgument(f"allow_groups: there is no group '{group}' on this machine"), "allow_groups"
        ) from None


def _id(option: str, number: int) -> int:
    if isinstance(cast(object, number), bool) or not 0 <= number < 2**32 - 1:
        raise with_option(
            InvalidArgument(f"{option}: an id is a whole number from 0 to 4294967294, not {number!r}"), option
        )
    return number
