"""Importing an adapter's module: by its name, or from a file that is not installed anywhere."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from pathlib import Path
from types import ModuleType


def load(module: str) -> ModuleType:
    """The module of that import name, or the one in that file if it ends in ``.py``.

    A file's directory does not become a place to import from: an adapter called ``xmlrpc.py`` must not hide what it
    imports. Raises what the import raises, and `FileNotFoundError` where there is no such file.
    """
    if not module.endswith(".py"):
        return importlib.import_module(module)
    path = Path(module).absolute()
    name = f"nearcall_lab_adapter_{path.stem.replace('-', '_')}"
    loaded = sys.modules.get(name)
    if loaded is not None and loaded.__file__ == str(path):
        return loaded
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {module}")
    found = importlib.util.spec_from_file_location(name, path)
    assert found is not None
    assert found.loader is not None
    fresh = importlib.util.module_from_spec(found)
    sys.modules[name] = fresh  # dataclasses look their module up while it is being executed
    try:
        found.loader.exec_module(fresh)
    except BaseException:
        del sys.modules[name]
        raise
    return fresh
