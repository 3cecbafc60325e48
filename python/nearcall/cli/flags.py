"""Flags of the commands, and how they become options of servers and clients."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

from . import UsageError
from .settings import FUNCTIONS, Settings, users

__all__ = ["add_client_options", "client_options", "server_functions", "server_options", "where_to_set"]

_FLAGS = {
    "allow_users": "--allow-user",
    "allow_groups": "--allow-group",
    "allow_origins": "--allow-origin",
    "codecs": "--codec",
    "interceptors": "--interceptor",
}
"""Options whose flag has another name."""

_FLAGS_IN_MESSAGES = {
    "allow_plaintext=True": "allow_plaintext",
    "allow_users=[": "allow_users",
    "allow_groups=[": "allow_groups",
    "allow_origins=[": "allow_origins",
    "max_message_size": "max_message_size",
    "max_values": "max_values",
    "TLS(ca=": "tls_ca",
    "TLS(cert=": "tls_cert",
    "key=...": "tls_key",
    "TLS(client_ca=": "tls_client_ca",
    "TLS(server_name=": "tls_server_name",
    "auth.token(": "token_file",
}
"""Words by which messages of the compiled core and of the other side name an option: these are only text."""


def add_client_options(parser: argparse.ArgumentParser) -> None:
    """Adds the flags for options of clients."""
    group = parser.add_argument_group("how to connect")
    _add_common(group)
    group.add_argument("--tls-ca", metavar="FILE", help="authorities to trust for tls://, not the system's (PEM)")
    group.add_argument("--tls-cert", metavar="FILE", help="a certificate to show to the server")
    group.add_argument("--tls-key", metavar="FILE", help="its private key, without a password")
    group.add_argument("--tls-server-name", metavar="NAME", help="whom the server's certificate must be for")
    group.add_argument(
        "--nats-credentials", metavar="FILE", help="who this is at nats://: a file of credentials (.creds)"
    )
    group.add_argument("--nats-ca", metavar="FILE", help="authorities to trust for nats+tls://, not the system's (PEM)")


def _add_common(group: argparse._ArgumentGroup) -> None:
    group.add_argument("--allow-plaintext", action="store_true", help="use tcp:// beyond this machine, unencrypted")
    group.add_argument(
        "--allow-user",
        dest="allow_users",
        action="append",
        metavar="USER",
        help="trust this user at unix://, by name or id; repeatable",
    )
    group.add_argument(
        "--allow-group",
        dest="allow_groups",
        action="append",
        metavar="GROUP",
        help="trust this group's members at unix://; repeatable",
    )
    group.add_argument("--max-message-size", type=int, metavar="BYTES", help="longest message received")
    group.add_argument("--max-values", type=int, metavar="N", help="values that a received message may hold")
    group.add_argument(
        "--token-file",
        metavar="FILE",
        help="a file with a token to send; not on the command line, which every user of the machine can read",
    )


def server_options(values: Mapping[str, Any]) -> dict[str, Any]:
    """The keywords for ``nearcall.serve`` that settings stand for, except functions.

    Raises:
        UsageError: options contradict each other.
    """
    tls = _tls({name.removeprefix("tls_"): value for name, value in values.items() if name.startswith("tls_")})
    nats = _nats(values.get("nats_credentials"), values.get("nats_ca"))
    registered = _registrations(values)
    other = ("services", "urls", "token_file", "interceptors", "log_level", "access_log", *FUNCTIONS)
    spelt = ("tls_", "nats_", "register")
    rest = {name: value for name, value in values.items() if name not in other and not name.startswith(spelt)}
    return tls | nats | registered | rest


def server_functions(settings: Settings, find: Callable[[str], object]) -> Callable[[], dict[str, Any]]:
    """Makes the rest of the keywords. The process that serves calls this, so that it imports the functions itself.

    Args:
        settings: The settings.
        find: Finds the object that ``MODULE:NAME`` stands for; raises UsageError.

    Returns:
        A function that raises UsageError if functions cannot be found; the message names all of them, and where they
        are set.

    Raises:
        UsageError: the file with tokens cannot be read.
    """
    values, sources = settings
    tokens = _tokens(values["token_file"]) if "token_file" in values else []

    def make() -> dict[str, Any]:
        mistakes: list[str] = []

        def named(name: str, target: str) -> object:
            try:
                return find(target)
            except UsageError as error:
                where = f"set in {sources[name]}" if name in sources else f"as a flag: {_flag(name)}"
                mistakes.append(f"{error} ({where})")
                return None

        made: dict[str, Any] = {name: named(name, values[name]) for name in FUNCTIONS if name in values}
        interceptors = [named("interceptors", target) for target in values.get("interceptors", ())]
        if mistakes:
            raise UsageError("; ".join(mistakes))
        if tokens:
            from ..auth import token

            interceptors.insert(0, token(*tokens))
        if values.get("access_log"):  # outermost, to log calls that the others refuse, too
            from ..observe import access_log

            interceptors.insert(0, access_log())
        return made | ({"interceptors": interceptors} if interceptors else {})

    return make


def client_options(options: argparse.Namespace) -> dict[str, Any]:
    """The keywords for ``nearcall.connect`` for the given flags.

    Raises:
        UsageError: options contradict each other.
    """
    names = ("cert", "key", "ca", "server_name")
    tls = _tls({name: getattr(options, f"tls_{name}") for name in names})
    return _common(options) | tls | _nats(options.nats_credentials, options.nats_ca)


def _common(options: argparse.Namespace) -> dict[str, Any]:
    chosen: dict[str, Any] = {}
    if options.allow_plaintext:
        chosen["allow_plaintext"] = True
    for name in ("allow_users", "allow_groups"):
        if given := getattr(options, name):
            chosen[name] = users(given)
    for name in ("max_message_size", "max_values"):
        if (size := getattr(options, name)) is not None:
            chosen[name] = size
    if options.token_file is not None:
        from ..auth import token

        chosen["interceptors"] = [token(*_tokens(options.token_file))]
    return chosen


def _tokens(path: str, flag: str = "--token-file") -> list[str]:
    try:
        with open(path, encoding="utf-8") as file:
            tokens = [line.strip() for line in file if line.strip()]
    except (OSError, UnicodeError) as error:
        why = getattr(error, "strerror", None) or "it is not text"
        raise UsageError(f"{flag} {path} cannot be read: {why}; it is a file with one token per line") from None
    if not tokens:
        raise UsageError(f"{flag} {path} is empty: write a token into it, one per line")
    return tokens


def _registrations(values: Mapping[str, Any]) -> dict[str, Any]:
    if "register" not in values:
        return {}
    from ..auth import token
    from ..options.tls import TLS
    from ..server.registration import Registration

    options: dict[str, Any] = {"allow_plaintext": values.get("allow_plaintext", False)}
    if "register_token_file" in values:
        options["interceptors"] = [token(*_tokens(values["register_token_file"], "--register-token-file"))]
    if "register_ca" in values:
        options["tls"] = TLS(ca=values["register_ca"])
    try:
        return {"register": [Registration(url, **options) for url in values["register"]]}
    except ValueError as error:
        raise UsageError(str(error)) from error


def _tls(asked: Mapping[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in asked.items() if value is not None}
    if ("cert" in given) != ("key" in given):
        raise UsageError("--tls-cert and --tls-key belong together: give both or neither")
    if not given:
        return {}
    from ..options.tls import TLS

    return {"tls": TLS(**given)}


def _nats(credentials: str | None, ca: str | None) -> dict[str, Any]:
    if credentials is None and ca is None:
        return {}
    from ..options.nats import NATS
    from ..options.tls import TLS

    return {"nats": NATS(credentials=credentials, tls=None if ca is None else TLS(ca=ca))}


def _flag(name: str) -> str:
    return _FLAGS.get(name, f"--{name.replace('_', '-')}")


def where_to_set(error: Exception, message: str, options: argparse.Namespace) -> str:
    """A hint for an error: where the wrong option was set, or which flags set the options that the message names. Empty
    if there is none.
    """
    # A mistake on the command line has the library's error as its cause.
    option = getattr(error, "option", None) or getattr(error.__cause__, "option", None)
    if isinstance(option, str):
        names = [option.replace(".", "_")]
        source = getattr(options, "sources", {}).get(names[0])
        if source is not None:
            return f" (set in {source})"
    else:
        names = [name for words, name in _FLAGS_IN_MESSAGES.items() if words in message]
    flags = [_flag(name) for name in names if hasattr(options, name)]
    return f" (as a flag: {', '.join(flags)})" if flags else ""
