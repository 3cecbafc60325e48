"""Options of the commands that become options of servers and clients."""

from __future__ import annotations

import argparse
from typing import Any

from . import UsageError

__all__ = ["add_client_options", "add_server_options", "client_options", "flags_for", "server_options"]

_FLAGS = {"allow_users": "allow_user", "allow_groups": "allow_group", "allow_origins": "allow_origin"}
"""Options whose flag has another name."""

_FLAGS_IN_MESSAGES = {
    "allow_plaintext=True": "allow_plaintext",
    "allow_users=[": "allow_user",
    "allow_groups=[": "allow_group",
    "allow_origins=[": "allow_origin",
    "max_message_size": "max_message_size",
    "max_values": "max_values",
    "TLS(ca=": "tls_ca",
    "TLS(cert=": "tls_cert",
    "key=...": "tls_key",
    "TLS(client_ca=": "tls_client_ca",
    "TLS(server_name=": "tls_server_name",
    "auth.token(": "token_file",
}
"""How messages of the compiled core and of the other side name an option, and its flag: they are text only."""


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Adds what a server can be told."""
    _add_common(parser)
    parser.add_argument("--workers", type=int, metavar="N", help="serve with so many processes; each makes its objects")
    parser.add_argument(
        "--grace", type=float, metavar="S", help="seconds that calls have to finish at the end (default: 5)"
    )
    parser.add_argument("--no-introspection", action="store_true", help="do not let clients watch with `nearcall top`")
    parser.add_argument(
        "--no-reflection", action="store_true", help="do not let gRPC's clients ask what there is to call"
    )
    parser.add_argument(
        "--allow-origin",
        action="append",
        metavar="ORIGIN",
        help="let web pages from there call at http://, as in https://app.example.org; repeatable, * is all pages",
    )
    parser.add_argument("--tls-cert", metavar="FILE", help="the server's certificate, for tls:// (PEM)")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key, without a password")
    parser.add_argument(
        "--tls-client-ca", metavar="FILE", help="ask clients for a certificate that one of these authorities signed"
    )


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Adds what a client can be told."""
    _add_common(parser)
    parser.add_argument("--tls-ca", metavar="FILE", help="authorities to trust for tls://, not the system's (PEM)")
    parser.add_argument("--tls-cert", metavar="FILE", help="a certificate to show to the server")
    parser.add_argument("--tls-key", metavar="FILE", help="its private key, without a password")
    parser.add_argument("--tls-server-name", metavar="NAME", help="whom the server's certificate must be for")


def _add_common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--allow-plaintext", action="store_true", help="use tcp:// beyond this machine, unencrypted")
    parser.add_argument(
        "--allow-user", action="append", metavar="USER", help="trust this user at unix://, by name or id; repeatable"
    )
    parser.add_argument(
        "--allow-group", action="append", metavar="GROUP", help="trust this group's members at unix://; repeatable"
    )
    parser.add_argument("--max-message-size", type=int, metavar="BYTES", help="longest message received")
    parser.add_argument("--max-values", type=int, metavar="N", help="values that a received message may hold")
    parser.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with a token to send, or with those to demand, one per line; not on the command line, "
        "which every user of the machine can read",
    )


def server_options(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords for ``nearcall.serve`` that were asked for.

    Raises:
        UsageError: they make no sense.
    """
    chosen = _common(options) | _tls(options, "client_ca")
    if options.workers is not None:
        chosen["workers"] = options.workers
    if options.grace is not None:
        chosen["grace"] = options.grace
    if options.no_introspection:
        chosen["introspection"] = False
    if options.no_reflection:
        chosen["reflection"] = False
    if options.allow_origin:
        chosen["allow_origins"] = options.allow_origin
    return chosen


def client_options(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords for ``nearcall.connect`` that were asked for.

    Raises:
        UsageError: they make no sense.
    """
    return _common(options) | _tls(options, "ca", "server_name")


def _common(options: argparse.Namespace) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if options.allow_plaintext:
        chosen["allow_plaintext"] = True
    for name, given in (("allow_users", options.allow_user), ("allow_groups", options.allow_group)):
        if given:
            chosen[name] = [int(each) if each.isdecimal() else each for each in given]
    for name in ("max_message_size", "max_values"):
        if (size := getattr(options, name)) is not None:
            chosen[name] = size
    if options.token_file is not None:
        from ..auth import token

        chosen["interceptors"] = [token(*_tokens(options.token_file))]
    return chosen


def _tokens(path: str) -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            tokens = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"--token-file {path} cannot be read: {why}; it is a file with one token per line") from None
    if not tokens:
        raise UsageError(f"--token-file {path} is empty: write a token into it, one per line")
    return tokens


def _tls(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    given = {name: getattr(options, f"tls_{name}") for name in ("cert", "key", *names)}
    given = {name: value for name, value in given.items() if value is not None}
    if ("cert" in given) != ("key" in given):
        raise UsageError("--tls-cert and --tls-key belong together: give both or neither")
    if not given:
        return {}
    from ..options.tls import TLS

    return {"tls": TLS(**given)}


def flags_for(error: Exception, message: str, options: argparse.Namespace) -> list[str]:
    """The flags of this command that are the option which an error is about, or those that its message advises."""
    # A mistake on the command line has the library's error as its cause.
    option = getattr(error, "option", None) or getattr(error.__cause__, "option", None)
    if isinstance(option, str):
        flags = [_FLAGS.get(option, option.replace(".", "_"))]
    else:
        flags = [flag for words, flag in _FLAGS_IN_MESSAGES.items() if words in message]
    return [f"--{flag.replace('_', '-')}" for flag in flags if hasattr(options, flag)]
