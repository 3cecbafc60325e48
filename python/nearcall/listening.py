"""Where servers listen, and which users two processes of one machine let near."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from . import _core
from .errors import InvalidArgument
from .tls import TLS, server_side

__all__ = ["check_users", "make_listeners"]


def make_listeners(
    urls: Sequence[str],
    *,
    allow_plaintext: bool = False,
    tls: TLS | None = None,
    allow_users: Sequence[str | int] = (),
    allow_groups: Sequence[str | int] = (),
) -> _core.Listeners:
    """Listeners that are bound nowhere yet, for these URLs.

    Raises:
        InvalidArgument: an option is malformed.
        TypeError, ValueError: an option does not fit the URLs.
    """
    users, groups = check_users(urls, allow_users, allow_groups)
    return _core.Listeners(
        allow_plaintext=bool(allow_plaintext), tls=server_side(tls, urls), allow_users=users, allow_groups=groups
    )


def check_users(
    urls: Sequence[str], allow_users: Sequence[str | int], allow_groups: Sequence[str | int]
) -> tuple[list[int], list[int]]:
    """The ids of users and groups that were named for the ``unix://`` URLs among these.

    Raises:
        InvalidArgument: there is no such user or group.
        TypeError: a single name was given in place of a list.
        ValueError: none of the URLs is ``unix://``.
    """
    for option, given in (("allow_users", allow_users), ("allow_groups", allow_groups)):
        if isinstance(given, (str, int)):
            raise TypeError(f"{option} takes a list: write {option}=[{given!r}]")
        if given and not any(url.startswith("unix://") for url in urls):
            raise ValueError(f"{option} is for unix:// URLs, and there is none; shm:// is for the own user only")
    return [_user(user) for user in allow_users], [_group(group) for group in allow_groups]


def _user(user: str | int) -> int:
    if isinstance(user, int):
        return _id("allow_users", user)
    import pwd

    try:
        return pwd.getpwnam(user).pw_uid
    except KeyError:
        raise InvalidArgument(f"allow_users: there is no user '{user}' on this machine") from None


def _group(group: str | int) -> int:
    if isinstance(group, int):
        return _id("allow_groups", group)
    import grp

    try:
        return grp.getgrnam(group).gr_gid
    except KeyError:
        raise InvalidArgument(f"allow_groups: there is no group '{group}' on this machine") from None


def _id(option: str, number: int) -> int:
    if isinstance(cast(object, number), bool) or not 0 <= number < 2**32 - 1:
        raise InvalidArgument(f"{option}: an id is a whole number from 0 to 4294967294, not {number!r}")
    return number
