"""The ``nearcall`` command: serve a class, list a server's methods, call them, measure the round trip, watch the
server, profile a program's calls, compare two versions of a class, convert to and from .proto, describe a service
as OpenAPI, make certificates, handle plugins, keep a directory of services, route messages, and complete what is typed.

argparse does the parsing: it is part of Python, so the library gains no dependency from its command.

Nearly all is imported in :func:`main`, which knows what to do about Ctrl-C: the imports take longer than many commands.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

__all__ = ["UsageError", "carry_out", "main", "parser"]

FAILED = 1
"""Exit status: the call failed, or no server answered."""
WRONG_USAGE = 2
"""Exit status: the command line does not make sense."""
INTERRUPTED = 130
"""Exit status after Ctrl-C, as shells have it."""


class UsageError(Exception):
    """A mistake on the command line; the message is one line that says what to do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command.

    Args:
        argv: The arguments without the program's name; those of the process if not given.

    Returns:
        The exit status: 0 for success, 1 for a failed call or a check that found something, 2 for wrong usage, 130
        after Ctrl-C.
    """
    try:
        return _run(argv)
    except KeyboardInterrupt:
        return INTERRUPTED


def _parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """The options. Ctrl-C ends the process here and raises nothing: in the middle of an import it reaches code that
    does not expect it. msgspec 0.22 crashes where it is interrupted while it makes a decoder.
    """
    import os
    import signal
    import threading

    interrupts = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if not interrupts or threading.current_thread() is not threading.main_thread():
        return parser().parse_args(argv)
    signal.signal(signal.SIGINT, lambda _number, _frame: os._exit(INTERRUPTED))
    try:
        return parser().parse_args(argv)
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _run(argv: Sequence[str] | None) -> int:
    _speak_utf8()
    return carry_out(_parse(argv))


def _speak_utf8() -> None:
    """Has files and pipes in UTF-8, whatever the locale is: programs read what a command prints, and JSON, a ``.proto``
    and a module of Python are in UTF-8. A terminal is shown what it can show.
    """
    import io
    import sys

    for stream in (sys.stdin, sys.stdout):
        if not isinstance(stream, io.TextIOWrapper) or stream.closed:
            continue
        if not stream.isatty():
            if stream.encoding.lower() not in ("utf-8", "utf8"):
                stream.reconfigure(encoding="utf-8", errors=stream.errors)
        elif stream is sys.stdout:
            stream.reconfigure(errors="backslashreplace")


def carry_out(options: argparse.Namespace) -> int:
    """Runs a command whose options were read; tells its errors. Returns the exit status."""
    import os
    import sys

    from ..errors import RpcError
    from ..types.shown import shown, traceback_text

    try:
        return int(options.run(options) or 0)
    except BrokenPipeError:
        # The reader of the output, such as head, has gone. Python must not try to flush to it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (UsageError, RpcError, OSError, TypeError, ValueError, RuntimeError) as error:
        if options.debug:
            # Not by Python itself: the texts in it may be a server's.
            print(traceback_text(error), file=sys.stderr)
        else:
            from .flags import where_to_set

            message = shown(" ".join(_message(error).split()))
            message += where_to_set(error, message, options)
            print(f"nearcall: {message}", file=sys.stderr)
        return WRONG_USAGE if isinstance(error, UsageError) else FAILED


def _message(error: Exception) -> str:
    from ..errors import RpcError

    if isinstance(error, RpcError):
        details = "" if error.details is None else f" (details: {error.details!r})"
        return f"{error.code.name}: {error.message}{details}"
    return str(error) or type(error).__name__


_OF_THE_LAB = (
    *("choose", "compare", "cross-check", "demo", "doctor", "floor", "grpc-load"),
    *("install", "report", "reproduce", "run", "runtime", "study"),
)
"""Commands of nearcall-lab that are none here."""

_FIRST_STEPS = """\
first steps, with a class Calculator in calculator.py:
  nearcall serve calculator:Calculator shm://calc
  nearcall list shm://calc
  nearcall call shm://calc add '{"a": 1, "b": 2}'

nearcall COMMAND --help says what a command does, its options, and an example."""


def parser() -> argparse.ArgumentParser:
    """What reads the command line."""
    import argparse

    from . import (
        call,
        check,
        completion,
        dev_certs,
        directory,
        listing,
        openapi,
        ping,
        plugin,
        profile,
        proto,
        route,
        serve,
        stub,
        top,
    )
    from .parsing import CommandParser

    command_line = CommandParser(
        prog="nearcall",
        description="Typed calls between processes: serve a Python class, or call one that is served.",
        epilog=_FIRST_STEPS,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    command_line.add_argument("--version", action="version", version=f"nearcall {_version()}")
    command_line.add_argument("--debug", action="store_true", help="show the traceback of an error")
    command_line.elsewhere = {name: f"nearcall-lab {name}" for name in _OF_THE_LAB}
    commands = command_line.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (
        serve,
        listing,
        call,
        ping,
        top,
        profile,
        check,
        proto,
        stub,
        openapi,
        dev_certs,
        plugin,
        directory,
        route,
        completion,
    ):
        module.add_to(commands)
    for command in commands.choices.values():
        # --debug may also follow the command. It has no default there, which would override the flag before the
        # command.
        command.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    return command_line


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("nearcall")
    except PackageNotFoundError:
        return "(not installed)"
