"""``nearcall.NATS``: who this process is to the servers of ``nats://``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from .. import _core
from ..errors import InvalidArgument
from .checked import with_option
from .names import with_checked_names
from .schemes import is_named
from .tls import TLS, client_side

__all__ = ["NATS", "login_of"]


@with_checked_names
@dataclass(frozen=True)
class NATS:
    """Who this process is to a NATS server: by a password, a token, a key or a file of credentials, one of these. A
    server asks for none if it is not configured to. What is secret is not shown.

    Args:
        user: The user's name; with ``password``.
        password: The user's password.
        token: A word that the NATS server knows.
        nkey: The seed of a key pair of NATS; it begins with ``SU``.
        credentials: The path of a file of credentials (``.creds``), or its content as bytes.
        tls: For ``nats+tls://``: whom to trust if not the system's authorities, and a certificate to show to the NATS
            server.
        inbox: How the subjects begin on which this process is answered. Who may listen there can read along: a user of
            the NATS server may be given a prefix of his own, such as ``_INBOX_ada``.
    """

    user: str | None = None
    password: str | None = field(default=None, repr=False)
    token: str | None = field(default=None, repr=False)
    nkey: str | None = field(default=None, repr=False)
    credentials: str | os.PathLike[str] | bytes | None = field(default=None, repr=False)
    tls: TLS | None = None
    inbox: str = "_INBOX"


def login_of(nats: NATS | None, urls: Sequence[str]) -> _core.Login | None:
    """The core's settings of ``nats`` for a client of these URLs, or a server.

    Raises:
        InvalidArgument: options do not fit together, or a file cannot be read.
        TypeError: ``nats`` is no ``NATS``.
        ValueError: none of the URLs is one of NATS.
    """
    if nats is None:
        return None
    if not isinstance(cast(object, nats), NATS):
        raise with_option(TypeError(f"nats takes nearcall.NATS(user=...), not a {type(nats).__name__}"), "nats")
    if urls and not any(is_named(url) or url.startswith(("nats://", "nats+tls://")) for url in urls):
        raise with_option(ValueError(f"nats is for nats:// URLs, and {' and '.join(urls)} is none"), "nats")
    if (nats.user is None) != (nats.password is None):
        raise with_option(InvalidArgument("NATS(user=..., password=...) belong together: give both or neither"), "nats")
    proofs = {
        "password": nats.password,
        "token": nats.token,
        "nkey": nats.nkey,
        "credentials": None if nats.credentials is None else _read(nats.credentials),
    }
    given = {kind: proof for kind, proof in proofs.items() if proof is not None}
    if len(given) > 1:
        raise with_option(InvalidArgument(f"NATS takes one of {', '.join(proofs)}, not {' and '.join(given)}"), "nats")
    for kind, proof in given.items():
        if not isinstance(cast(object, proof), str):
            raise with_option(
                InvalidArgument(f"NATS({kind}=...) is a text, not a {type(proof).__name__}"), f"nats.{kind}"
            )
    prefix = nats.inbox
    if not isinstance(cast(object, prefix), str) or not prefix.startswith("_INBOX") or not _is_subject(prefix):
        raise with_option(
            InvalidArgument(
                f"NATS(inbox=...) begins with _INBOX, such as _INBOX_ada, and has no wildcard: not {prefix!r}"
            ),
            "nats.inbox",
        )
    words = [word for kind, proof in given.items() for word in (kind, nats.user if kind == "password" else None, proof)]
    return _core.Login([word for word in words if word is not None], tls=client_side(nats.tls, "tls://"), inbox=prefix)


def _is_subject(text: str) -> bool:
    tokens = text.split(".")
    return len(text) <= 100 and all(t and t.isascii() and t.isprintable() and not set(t) & set(" *>") for t in tokens)


def _read(source: str | os.PathLike[str] | bytes) -> str:
    try:
        if not isinstance(source, bytes):
            with open(os.fspath(source), "rb") as file:
                source = file.read()
        return source.decode()
    except OSError as error:
        raise with_option(
            InvalidArgument(
                f"NATS(credentials={os.fspath(cast(str, source))!r}) cannot be read: {error.strerror or error}"
            ),
            "nats.credentials",
        ) from None
    except UnicodeDecodeError:
        raise with_option(
            InvalidArgument("NATS(credentials=...) is no file of credentials"), "nats.credentials"
        ) from None
