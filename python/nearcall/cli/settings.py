"""The settings of ``nearcall serve``, by flags, by the environment and by a file: one table, and the functions that
read it.

A setting has one name: ``max_pending`` in Python and in the file, ``NEARCALL_SERVE_MAX_PENDING`` in the environment,
and ``--max-pending`` as a flag. A flag overrides the environment, which overrides the file.
"""

from __future__ import annotations

import argparse
import difflib
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final, NamedTuple, cast

from . import UsageError

__all__ = ["FUNCTIONS", "SETTINGS", "Setting", "Settings", "add_setting_flags", "read_settings", "users"]

FILE = "nearcall.toml"
"""Read if it is in the current directory, and no other file is named."""
FILE_VARIABLE = "NEARCALL_CONFIG"
"""The variable that names another file; if empty, no file is read."""
PREFIX = "NEARCALL_SERVE_"
TABLE = "serve"
"""The file's table of settings."""

_WORDS: Final = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


_LEVELS: Final = ("debug", "info", "warning", "error")


class _Kind(NamedTuple):
    """The type of a setting's value."""

    what: str
    """Its name for messages."""
    fits: Callable[[object], bool]
    """Whether a value from a file is of this type."""
    parse: Callable[[str], Any]
    """Reads a value from text; raises ValueError."""


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: object) -> bool:
    return isinstance(value, float) or _is_whole(value)


def _is_spin(value: object) -> bool:
    return value == "auto" or _is_number(value)


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_level(value: object) -> bool:
    return isinstance(value, str) and value.lower() in _LEVELS


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_text, cast("list[object]", value)))


def _are_users(value: object) -> bool:
    return isinstance(value, list) and all(_is_text(each) or _is_whole(each) for each in cast("list[object]", value))


def _spin(text: str) -> float | str:
    return text if text == "auto" else float(text)


def _flag(text: str) -> bool:
    try:
        return _WORDS[text.strip().lower()]
    except KeyError:
        raise ValueError(text) from None


def _level(text: str) -> str:
    if text.lower() not in _LEVELS:
        raise ValueError(text)
    return text.lower()


def users(given: Sequence[str | int]) -> list[str | int]:
    """Names or ids of users, or of groups."""
    return [int(each) if isinstance(each, str) and each.isdecimal() else each for each in given]


WHOLE = _Kind("a whole number", _is_whole, int)
SECONDS = _Kind("a number of seconds", _is_number, float)
SPIN = _Kind('a number of seconds, or "auto"', _is_spin, _spin)
YES_NO = _Kind("true or false", _is_flag, _flag)
TEXT = _Kind("a text", _is_text, str)
PATH = _Kind("the path of a file", _is_text, str)
TEXTS = _Kind("a list of texts", _are_texts, shlex.split)
USERS = _Kind("a list of names or ids", _are_users, shlex.split)
LEVEL = _Kind("debug, info, warning or error", _is_level, _level)
NAMED = _Kind("MODULE:NAME", _is_text, str)
ALL_NAMED = _Kind("a list of MODULE:NAME", _are_texts, shlex.split)


class Setting(NamedTuple):
    """One setting of ``nearcall serve``."""

    name: str
    """The name of the option in Python."""
    kind: _Kind
    help: str
    metavar: str | None = None
    flag: str | None = None
    """The flag, if it is not named like the option; empty if there is none."""

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return PREFIX + self.name.upper()


GROUPS: Final = {
    "": [
        Setting("services", TEXTS, "what to serve", flag=""),
        Setting("urls", TEXTS, "where to serve it", flag=""),
    ],
    "how it runs": [
        Setting("workers", WHOLE, "serve with so many processes; each makes its objects", "N"),
        Setting("register", TEXTS, "be found as directory+tcp://host:port/name?key=value; repeatable", "URL"),
        Setting("register_token_file", PATH, "a file with the token to show to that directory", "FILE"),
        Setting("register_ca", PATH, "authorities to trust for a directory at tls://, not the system's (PEM)", "FILE"),
        Setting("grace", SECONDS, "seconds that calls have to finish at the end (default: 5)", "S"),
        Setting("spin", SPIN, "how long to spin before sleeping: auto, 0 or seconds", "S"),
        Setting("compression", TEXT, "compress what is sent over gRPC: gzip or zstd", "HOW"),
        Setting("codecs", TEXTS, "offer this codec besides msgpack: json; repeatable", "NAME", "codec"),
        Setting("handshake_timeout", SECONDS, "seconds a client may take to shake hands", "S"),
        Setting(
            "blocked_loop_after", SECONDS, "log what holds up the event loop for so long; 0: never (default: 1)", "S"
        ),
    ],
    "log": [
        Setting("log_level", LEVEL, "write the log to standard error, from debug, info, warning or error on", "LEVEL"),
        Setting("access_log", YES_NO, "log each call, with its status and the time it took"),
    ],
    "who may call": [
        Setting("allow_plaintext", YES_NO, "use tcp:// beyond this machine, unencrypted"),
        Setting("allow_users", USERS, "trust this user at unix://, by name or id; repeatable", "USER", "allow-user"),
        Setting("allow_groups", USERS, "trust this group's members at unix://; repeatable", "GROUP", "allow-group"),
        Setting(
            "allow_origins",
            TEXTS,
            "let web pages from there call at http://, as in https://app.example.org; repeatable, * is all pages",
            "ORIGIN",
            "allow-origin",
        ),
        Setting("tls_cert", PATH, "the server's certificate, for tls:// (PEM)", "FILE"),
        Setting("tls_key", PATH, "its private key, without a password", "FILE"),
        Setting("tls_client_ca", PATH, "ask clients for a certificate that one of these authorities signed", "FILE"),
        Setting("nats_credentials", PATH, "who this is at nats://: a file of credentials (.creds)", "FILE"),
        Setting("nats_ca", PATH, "authorities to trust for nats+tls://, not the system's (PEM)", "FILE"),
        Setting(
            "token_file",
            PATH,
            "a file with tokens to demand, one per line; not on the command line, which every user of the machine can "
            "read",
            "FILE",
        ),
    ],
    "what callers may see": [
        Setting("introspection", YES_NO, "let clients watch with `nearcall top` (default: yes)"),
        Setting("reflection", YES_NO, "let gRPC's clients ask what there is to call (default: yes)"),
        Setting("tracebacks", YES_NO, "send clients the tracebacks of exceptions, which show paths and code"),
    ],
    "limits": [
        Setting("max_message_size", WHOLE, "longest message received", "BYTES"),
        Setting("max_values", WHOLE, "values that a received message may hold", "N"),
        Setting("max_concurrency", WHOLE, "handlers that may run in threads at once", "N"),
        Setting("max_pending", WHOLE, "calls that may run or wait at once", "N"),
        Setting("max_streams", WHOLE, "calls with a stream that one client may have under way", "N"),
        Setting("max_memory", WHOLE, "bytes kept for all clients together", "BYTES"),
        Setting("max_references", WHOLE, "objects that one client may hold references to", "N"),
        Setting("max_connection_age", SECONDS, "seconds after which a client is asked for another connection", "S"),
        Setting("max_connection_age_grace", SECONDS, "seconds that its calls may go on after that (default: 30)", "S"),
    ],
    "functions of yours": [
        Setting("lifespan", NAMED, "what surrounds the serving, as in Server(lifespan=...)", "MODULE:NAME"),
        Setting(
            "interceptors",
            ALL_NAMED,
            "a function around every call; repeatable, the first is the outermost",
            "MODULE:NAME",
            "interceptor",
        ),
        Setting("error_handlers", NAMED, "a dict from exceptions to functions", "MODULE:NAME"),
        Setting("on_connect", NAMED, "called with each client before its first call", "MODULE:NAME"),
        Setting("on_disconnect", NAMED, "called with each client after its last call", "MODULE:NAME"),
        Setting("fallback", NAMED, "answers calls of gRPC's methods that are not known", "MODULE:NAME"),
        Setting("loop_factory", NAMED, "makes the event loop, such as uvloop:new_event_loop", "MODULE:NAME"),
    ],
}
"""The settings by subject, as the help lists them."""
SETTINGS: Final = [setting for group in GROUPS.values() for setting in group]
BY_NAME = {setting.name: setting for setting in SETTINGS}
FUNCTIONS = [setting.name for setting in SETTINGS if setting.kind is NAMED]
"""Settings that name an object in a module."""


class Settings(NamedTuple):
    """The chosen settings."""

    values: dict[str, Any]
    """Only chosen values, by the names of the settings."""
    sources: dict[str, str]
    """Where each was set, for messages; flags are not among them."""


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    """Adds a flag for each setting."""
    parser.add_argument(
        "--config",
        metavar="FILE",
        help=f"settings, in TOML (default: {FILE} in the current directory, if there is one)",
    )
    for name, settings in GROUPS.items():
        group = parser.add_argument_group(name)
        for setting in settings:
            if setting.flag != "":
                _add_flag(group, setting)


def _add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    flag = f"--{setting.flag or setting.name.replace('_', '-')}"
    if setting.kind is YES_NO:
        group.add_argument(flag, dest=setting.name, action=argparse.BooleanOptionalAction, help=setting.help)
    elif setting.kind in (TEXTS, USERS, ALL_NAMED):
        group.add_argument(flag, dest=setting.name, action="append", metavar=setting.metavar, help=setting.help)
    else:
        kind = setting.kind.parse if setting.kind in (WHOLE, SECONDS) else str
        group.add_argument(flag, dest=setting.name, type=kind, metavar=setting.metavar, help=setting.help)


def read_settings(options: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Settings:
    """Reads all settings.

    Args:
        options: The flags; ``None`` for flags that were not given.
        environment: The environment variables.

    Raises:
        UsageError: settings are unknown or malformed; the message names all of them, and where they are.
    """
    mistakes: list[str] = []
    chosen: dict[str, Any] = {}
    sources: dict[str, str] = {}

    def take(found: Iterator[tuple[str, str, Any]]) -> None:
        for name, where, value in found:
            chosen[name], sources[name] = value, where

    named = options.config if options.config is not None else environment.get(FILE_VARIABLE)
    if named or (named is None and os.path.exists(FILE)):
        take(_from_file(Path(named or FILE), mistakes))
    take(_from_environment(environment, mistakes))
    if mistakes:
        raise UsageError("; ".join(mistakes))
    for setting in SETTINGS:
        given = getattr(options, setting.name, None)
        if given is not None:
            if setting.kind in (SPIN, LEVEL):
                given = _of_text(setting, given, f"--{setting.name.replace('_', '-')}", mistakes)
            chosen[setting.name] = given
            sources.pop(setting.name, None)
    if mistakes:
        raise UsageError("; ".join(mistakes))
    for name in ("allow_users", "allow_groups"):
        if name in chosen:
            chosen[name] = users(chosen[name])
    return Settings(chosen, sources)


def _from_environment(environment: Mapping[str, str], mistakes: list[str]) -> Iterator[tuple[str, str, Any]]:
    for variable in sorted(environment):
        if not variable.startswith(PREFIX):
            continue
        setting = BY_NAME.get(variable.removeprefix(PREFIX).lower())
        if setting is None:
            mistakes.append(_unknown(variable, [each.variable for each in SETTINGS]))
        elif (value := _of_text(setting, environment[variable], variable, mistakes)) is not None:
            yield setting.name, variable, value


def _of_text(setting: Setting, text: str, where: str, mistakes: list[str]) -> Any:
    try:
        return setting.kind.parse(text)
    except ValueError:
        how = ", separated by spaces" if setting.kind in (TEXTS, USERS, ALL_NAMED) else ""
        mistakes.append(f"{where} must be {setting.kind.what}{how}, not {text!r}")
        return None


def _from_file(path: Path, mistakes: list[str]) -> Iterator[tuple[str, str, Any]]:
    for key, value in _tables(path).items():
        if key != TABLE:
            mistakes.append(f"{path}: '{key}' is no table of this file: settings stand in [{TABLE}]")
        elif not isinstance(value, dict):
            mistakes.append(f"{path}: '{TABLE}' must be a table: write [{TABLE}]")
        else:
            yield from _from_table(path, cast("dict[str, Any]", value), mistakes)


def _from_table(path: Path, table: dict[str, Any], mistakes: list[str]) -> Iterator[tuple[str, str, Any]]:
    for name, value in table.items():
        where = f"{path}: {TABLE}.{name}"
        setting = BY_NAME.get(name)
        if setting is None:
            mistakes.append(f"{path}: " + _unknown(f"{TABLE}.{name}", [f"{TABLE}.{each.name}" for each in SETTINGS]))
        elif not setting.kind.fits(value):
            mistakes.append(f"{where} must be {setting.kind.what}, not {value!r}")
        else:
            # A path is relative to the file that contains it.
            yield name, where, str(path.parent / value) if setting.kind is PATH else value


def _tables(path: Path) -> dict[str, Any]:
    try:
        tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    except ModuleNotFoundError:
        raise UsageError(f"{path} cannot be read by Python 3.10 alone: pip install tomli") from None
    try:
        tables: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UsageError(f"{path} is no TOML: {error or 'look at its brackets'}") from None
    return tables


def _unknown(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    return f"'{name}' is no setting" + (f" (did you mean '{close[0]}'?)" if close else "")
