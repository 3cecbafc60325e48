"""Runs in a plugin's process once it is confined: imports the plugin, and serves the host until it is gone."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import traceback
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, Final, NoReturn

from ...server.server import Server
from ...service.service import plan_of
from . import registry as registered
from .configuration import Configuration
from .runtime import ABOUT_VERSION, About, Greeting, Runtime

__all__ = ["serve"]


class PluginRuntime(Runtime):
    """The plugin's side of :class:`Runtime`."""

    def __init__(self, entry: Any, layers: list[dict[str, str]]) -> None:
        self._entry = entry
        self._layers = layers
        self.stopped = False

    def about(self) -> About:
        registry = registered.registry
        handlers = {name: each.priority for name, each in registry.handlers.items()}
        offers = [plan_of(type(service)).name for service in registry.offered]
        return About(ABOUT_VERSION, sys.version.split()[0], handlers, offers, list(registry.used), self._layers)

    def start(self, greeting: Greeting) -> None:
        for permission, (_, granted) in registered.registry.used.items():
            why = f"plugin.toml does not ask for it, or {greeting.host} has no such service"
            granted._nearcall_reason = f"is missing: {greeting.refused.get(permission, why)}"
        if self._entry is not None:
            self._entry()

    def running(self) -> int:
        return len(registered.registry.running)

    def stop(self) -> None:
        self.stopped = True
        for function in registered.registry.at_end:
            try:
                function()
            except Exception:
                import traceback  # few fail

                traceback.print_exc()


_PACKAGE: Final = Path(__file__).parents[1]


def _of_plugin(frames: TracebackType | None, places: list[str]) -> TracebackType | None:
    """A traceback from the plugin's first frame on, without those of nearcall at its end: the host shows the last lines
    only.
    """
    while frames is not None and not _is_in(frames, places):
        frames = frames.tb_next
    last = frame = frames
    while frame is not None:
        if not _is_in(frame, [str(_PACKAGE)]):
            last = frame
        frame = frame.tb_next
    if last is not None:
        last.tb_next = None
    return frames


def _is_in(frame: TracebackType, places: list[str]) -> bool:
    return any(Path(frame.tb_frame.f_code.co_filename).is_relative_to(place) for place in places)


def serve(configuration: Configuration, layers: list[dict[str, str]]) -> NoReturn:
    """Imports a plugin, and serves it at the standard input until its host is gone.

    Args:
        configuration: The configuration of this process.
        layers: The layers of its sandbox, with their states.
    """
    registered.registry.storage = configuration.storage
    registered.registry.no_storage = configuration.no_storage
    module_name, _, name = configuration.entry.partition(":")
    try:
        module = import_module(module_name)
        entry = getattr(module, name) if name else None
    except Exception as error:
        places = [configuration.directory, *configuration.paths]
        traceback.print_exception(type(error), error, _of_plugin(error.__traceback__, places))
        sys.exit(1)
    registry = registered.registry
    registry.complete = True
    runtime = PluginRuntime(entry, layers)
    taking = [granted._nearcall_taking for _, granted in registry.used.values()]
    answering = [each.served for each in registry.handlers.values()]
    server = Server(runtime, *taking, *answering, *registry.offered, "stdio:", introspection=False)
    server.start()
    server.wait()
    server.stop(0.0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    may_start = configuration.sandbox is None or configuration.sandbox["subprocesses"]
    if may_start and not runtime.stopped and os.getpgrp() == os.getpid():
        # The host has died, or has given this process up: no process that was started here may remain.
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)
    # An ordinary exit would wait for threads of the plugin, which may hang for ever.
    os._exit(0)
