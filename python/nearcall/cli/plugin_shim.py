"""``nearcall plugin shim``: modules that let code for the host's own process run as a plugin."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from . import UsageError

__all__ = ["add_to"]

_ABOUT = """\
Make a shim of modules that a program gives to code in its own process, so that this code runs as a plugin, unchanged.
For a module speech it has speech_api.py, which both sides import, speech_host.py, whose service calls the module, and
shims/speech.py, which plugins find under the module's name. Nothing is imported or run. What cannot be had from another
process is left out, with the reason."""


def add_to(actions: Any) -> None:
    """Adds the action to those of ``nearcall plugin``."""
    parser = actions.add_parser(
        "shim", help="make modules by which code for the host's own process runs as a plugin", description=_ABOUT
    )
    parser.add_argument("module", nargs="+", metavar="MODULE", help="a stub (speech.pyi), a source, or a module's name")
    parser.add_argument("-o", "--output", type=Path, default=Path(), help="where to (default: here)")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is not as it would be made")
    parser.add_argument("--debug", action="store_true", default=argparse.SUPPRESS, help=argparse.SUPPRESS)
    parser.set_defaults(run=_shim)


def _shim(options: argparse.Namespace) -> int:
    from ..plugin.shims.reading import locate, read_module
    from ..plugin.shims.writing import files

    made: dict[Path, str] = {}
    for given in options.module:
        try:
            name, path = locate(given)
            module = read_module(name, path)
        except (OSError, SyntaxError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {given}: {error}") from None
        for left_out in module.left_out:
            print(f"{path}:{left_out.line}: {left_out.name} is left out: it {left_out.why}", file=sys.stderr)
        found = files(module)
        for file in found.keys() & made.keys():
            raise UsageError(f"{given}: {file} is made of another of these modules, too: name each module once")
        made |= found
    return _compare(options.output, made) if options.check else _write(options.output, made)


def _compare(folder: Path, made: dict[Path, str]) -> int:
    wrong = [file for file, text in made.items() if not _is(folder / file, text)]
    for file in wrong:
        print(f"{folder / file} is not what the modules say now: make it again")
    return 1 if wrong else 0


def _is(path: Path, text: str) -> bool:
    return path.is_file() and path.read_text(encoding="utf-8") == text


def _write(folder: Path, made: dict[Path, str]) -> int:
    for file in made:
        path = folder / file
        if path.exists() and "'nearcall plugin shim'" not in path.read_text(encoding="utf-8")[:400]:
            raise UsageError(f"{path} is there, and was not made by this command: name another folder with --output")
    for file, text in made.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)
    return 0
