"""Finds the object that ``module:name`` or ``file.py:name`` stands for."""

from __future__ import annotations

import difflib
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from . import UsageError

__all__ = ["find", "in_module", "is_url", "where_in_code"]


def is_url(text: str) -> bool:
    """Whether a text is meant as a URL, and not as ``module:name``."""
    return "://" in text or text == "stdio:"


def _example(target: str) -> str:
    module, dot, last = target.partition(":")[0].rpartition(".")
    if is_url(target) or not dot:
        return "for example calculator:Calculator, for a class in calculator.py"
    return f"{target.partition(':')[0]}:CLASS" if last == "py" else f"{module}:{last}"


def find(target: str) -> object:
    """The object that ``module:name`` or ``file.py:name`` stands for. A file is imported as the module of its name, and
    finds the modules beside it, as ``python file.py`` does.

    Raises:
        UsageError: the module cannot be imported, or has no such name.
    """
    where, colon, name = target.partition(":")
    if is_url(target) or not (colon and where and name):
        found = f"{target!r} is a URL" if is_url(target) else f"{target!r} is not MODULE:CLASS"
        raise UsageError(f"{found}: write {_example(target)}")
    if where.endswith(".py"):
        return in_module(_file(where), name, where)
    if "" not in sys.path:
        sys.path.insert(0, "")  # the command finds modules where it is started, as python -m does
    return in_module(_module(where, f"module '{where}'"), name, f"module '{where}'")


def in_module(module: ModuleType, name: str, where: str) -> object:
    """The object of that name, which may have dots.

    Args:
        module: Where to look.
        name: The name.
        where: The module, for the message.

    Raises:
        UsageError: there is no such name.
    """
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            known = [each for each in dir(found) if not each.startswith("_")]
            close = difflib.get_close_matches(part, known, n=1)
            raise UsageError(f"{where} has no '{name}'{f': did you mean {close[0]}?' if close else ''}")
        found = getattr(found, part)
    return found


def _file(path: str) -> ModuleType:
    file = Path(path).absolute()
    if not file.is_file():
        raise UsageError(f"there is no file {path}")
    if str(file.parent) not in sys.path:
        sys.path.insert(0, str(file.parent))
    module = _module(file.stem, path)
    there = getattr(module, "__file__", None)
    if there is None or not os.path.samefile(there, file):
        raise UsageError(f"{path} cannot be imported as '{file.stem}': that is {there or 'built in'}; rename the file")
    return module


def _module(name: str, what: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and (name + ".").startswith(error.name + "."):
            raise UsageError(f"there is no module '{error.name}' here: check the name and the directory") from None
        raise UsageError(f"{what} imports '{error.name}', which is not installed") from None
    except Exception as error:
        raise UsageError(f"{what} cannot be imported: {type(error).__name__}: {error}{where_in_code(error)}") from error


def where_in_code(error: Exception) -> str:
    """Where in the user's code an error came about, for the end of its message: the last line of it that was run, not
    that of a library it had called. Empty if none of it was run, or the message says it, as that of a SyntaxError does.
    """
    if isinstance(error, SyntaxError):
        return ""
    import sysconfig
    import traceback

    libraries = [str(Path(sysconfig.get_path(name))) + os.sep for name in ("stdlib", "purelib", "platlib")]
    libraries.append(str(Path(__file__).parents[1]) + os.sep)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if not frame.filename.startswith(("<", *libraries)):
            return f" ({os.path.relpath(frame.filename)}, line {frame.lineno}; --debug shows the traceback)"
    return ""
