"""``nearcall.TLS``: certificates and keys for ``tls://``, ``grpcs://`` and ``https://``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import cast

from .. import _core
from ..errors import InvalidArgument
from .checked import with_option
from .names import with_checked_names

__all__ = ["TLS"]

_ENCRYPTED = ("tls://", "grpcs://", "https://")


@with_checked_names
@dataclass(frozen=True)
class TLS:
    """The certificate of one side of ``tls://``, and whom that side trusts. Certificates and keys are paths of PEM
    files, or their content as bytes.

    Args:
        ca: For clients: the authorities that may have signed the server's certificate. Without it, the authorities that
            the system trusts; the variables ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` name others.
        cert: This side's certificate, followed by any intermediate certificates. A server must have a certificate; a
            client if the server asks for it.
        key: The certificate's private key, without a password.
        server_name: For clients: the name that the server's certificate must be for, if not the host in the URL.
        client_ca: For servers: every client must show a certificate that one of these authorities has signed.
    """

    ca: str | os.PathLike[str] | bytes | None = None
    cert: str | os.PathLike[str] | bytes | None = None
    key: str | os.PathLike[str] | bytes | None = field(default=None, repr=False)
    server_name: str | None = None
    client_ca: str | os.PathLike[str] | bytes | None = None


def client_side(tls: TLS | None, url: str) -> _core.Tls | None:
    """The core's TLS settings for a client of ``url``.

    Raises:
        InvalidArgument: an option is a server's, a file cannot be read, or its content cannot be used.
        TypeError: ``tls`` is no ``TLS``.
        ValueError: the URL's scheme does not encrypt.
    """
    if tls is None:
        return None
    _check(tls, [url], "ca=...")
    if tls.client_ca is not None:
        raise with_option(
            InvalidArgument("TLS(client_ca=...) is for servers; a client trusts a server's authority with ca="),
            "tls.client_ca",
        )
    if (tls.cert is None) != (tls.key is None):
        raise with_option(
            InvalidArgument("TLS(cert=..., key=...) belong together: give both or neither"),
            "tls.key" if tls.key is None else "tls.cert",
        )
    return _core.Tls.client(
        ca=_read("ca", tls.ca), cert=_read("cert", tls.cert), key=_read("key", tls.key), server_name=tls.server_name
    )


def server_side(tls: TLS | None, urls: Sequence[str]) -> _core.Tls | None:
    """The core's TLS settings for a server at ``urls``.

    Raises:
        InvalidArgument: an option is a client's or is missing, a file cannot be read, or its content cannot be used.
        TypeError: ``tls`` is no ``TLS``.
        ValueError: none of the URLs has a scheme that encrypts.
    """
    if tls is None:
        return None
    _check(tls, urls, "cert=..., key=...")
    if tls.ca is not None:
        raise with_option(
            InvalidArgument(
                "TLS(ca=...) is for clients; a server asks for certificates of its clients with client_ca="
            ),
            "tls.ca",
        )
    if tls.server_name is not None:
        raise with_option(
            InvalidArgument("TLS(server_name=...) is for clients; a server's names are in its certificate"),
            "tls.server_name",
        )
    cert, key = _read("cert", tls.cert), _read("key", tls.key)
    if cert is None or key is None:
        raise with_option(
            InvalidArgument(
                "a server needs TLS(cert=..., key=...), both; `nearcall dev-certs DIR` makes them to try it out"
            ),
            "tls.key" if key is None and cert is not None else "tls.cert",
        )
    return _core.Tls.server(cert=cert, key=key, client_ca=_read("client_ca", tls.client_ca))


def _check(tls: TLS, urls: Sequence[str], usual: str) -> None:
    if not isinstance(cast(object, tls), TLS):
        raise with_option(TypeError(f"tls takes nearcall.TLS({usual}), not a {type(tls).__name__}"), "tls")
    if urls and all(url.startswith("nats") for url in urls):
        raise with_option(
            ValueError(
                "the TLS of nats+tls:// is between this process and the NATS server: write nats=NATS(tls=TLS(...))"
            ),
            "tls",
        )
    # A user who gives certificates expects encryption, so a URL that does not encrypt is an error.
    if urls and not any(url.startswith(_ENCRYPTED) for url in urls):
        shown = " and ".join(urls)
        families = {"grpc": "grpcs://", "http": "https://"}
        fitting = (use for start, use in families.items() if all(url.startswith(start) for url in urls))
        usual = next(fitting, "tls://")
        raise with_option(
            ValueError(f"tls is for {usual} URLs, and {shown} would not be encrypted; write {usual}, or leave tls out"),
            "tls",
        )


def _read(option: str, source: str | os.PathLike[str] | bytes | None) -> tuple[str, bytes] | None:
    """The source's name for messages, and its content."""
    if source is None:
        return None
    if isinstance(source, bytes):
        return f"in {option}=", source
    path = os.fspath(source)
    try:
        with open(path, "rb") as file:
            return path, file.read()
    except OSError as error:
        raise with_option(
            InvalidArgument(f"TLS({option}={path!r}) cannot be read: {error.strerror or error}"), f"tls.{option}"
        ) from None
