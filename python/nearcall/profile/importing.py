"""Patches libraries when a profiled program imports them, each by an adapter of its own.

An adapter is a module with a function ``patch(module, recorder)``, which is called once, with the module that it wants
to have watched, as soon as that was imported. What it patches calls :meth:`.Recorder.begin` and :meth:`.Call.end`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from .recorder import Recorder

__all__ = ["ADAPTERS", "FOLDER", "MOST", "ONE_IN", "begin", "environment"]

FOLDER = "NEARCALL_PROFILE_FOLDER"
ADAPTERS = "NEARCALL_PROFILE_ADAPTERS"
ONE_IN = "NEARCALL_PROFILE_ONE_IN"
MOST = "NEARCALL_PROFILE_MOST"
INJECT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "inject")


def environment(
    known: Mapping[str, str], folder: str, adapters: Mapping[str, str], one_in: int, most: int
) -> dict[str, str]:
    """The environment of a program that is to be profiled, and of its children.

    Args:
        known: The environment without the profiler.
        folder: Where records go.
        adapters: The module to watch, and the adapter's module.
        one_in: Of so many calls one is recorded.
        most: Records that each process keeps.
    """
    found = dict(known)
    found[FOLDER] = folder
    found[ADAPTERS] = ",".join(f"{watched}={adapter}" for watched, adapter in adapters.items())
    found[ONE_IN], found[MOST] = str(one_in), str(most)
    path = known.get("PYTHONPATH")
    found["PYTHONPATH"] = f"{INJECT}{os.pathsep}{path}" if path else INJECT
    return found


def begin() -> Recorder | None:
    """Begins to record in this process, if its environment asks for that. Called when Python starts."""
    folder = os.environ.get(FOLDER)
    if not folder or not os.path.isdir(folder):
        return None
    recorder = Recorder(folder, int(os.environ.get(ONE_IN, "1")), int(os.environ.get(MOST, "250000")))
    pairs = (entry.partition("=") for entry in os.environ.get(ADAPTERS, "").split(",") if entry)
    watch({watched: adapter for watched, _, adapter in pairs}, recorder)
    return recorder


def watch(adapters: Mapping[str, str], recorder: Recorder) -> None:
    """Lets adapters patch what they watch: at once what was imported already."""
    finder = _Finder(dict(adapters), recorder)
    sys.meta_path.insert(0, finder)
    for watched in adapters:
        module = sys.modules.get(watched)
        if module is not None:
            finder.patch(watched, module)


class _Finder(MetaPathFinder):
    """Finds nothing itself: it puts a loader around that of a module that is watched."""

    def __init__(self, adapters: dict[str, str], recorder: Recorder) -> None:
        self._adapters = adapters
        self._recorder = recorder

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._adapters:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                    spec.loader = _Loader(spec.loader, self, fullname)
                return spec
        return None

    def patch(self, watched: str, module: ModuleType) -> None:
        """Lets the adapter patch a module that has just been imported, once."""
        adapter = self._adapters.pop(watched, None)
        if adapter is None:
            return
        try:
            loaded = importlib.import_module(adapter)
            self._recorder.skip(loaded)
            loaded.patch(module, self._recorder)
        except Exception as error:  # a version that the adapter does not know: the program must run all the same
            self._recorder.note(f"calls of {watched} are not seen: {type(error).__name__}: {error}")


class _Loader(Loader):
    """Loads a module as its own loader does, and has it patched then."""

    def __init__(self, loader: Loader, finder: _Finder, watched: str) -> None:
        self._loader = loader
        self._finder = finder
        self._watched = watched

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        # The module has its own loader again: resources are read by it, and modules are run by it.
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._finder.patch(self._watched, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
