"""The program of a plugin's process: ``python -I -m nearcall.plugin.bootstrap CONFIGURATION``.

It is confined before anything of the plugin is imported, and serves the host at its standard input. When the host is
gone, however it went, the process and all that it has started go, too.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import os
import signal
import sys
import traceback
from typing import Any, NoReturn

import msgspec

from ..server.server import Server
from ..service.service import plan_of
from . import registry as registered
from .runtime import ABOUT_VERSION, NOT_CONFINED, About, Configuration, Greeting, Runtime

__all__ = ["main"]

_PR_SET_PDEATHSIG = 1


class _Runtime(Runtime):
    """This process, as the host sees it."""

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
            granted._nearcall_reason = greeting.refused.get(permission, why)
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
                traceback.print_exc()


def main(argument: str) -> NoReturn:
    """Runs a plugin until its host is gone.

    Args:
        argument: A :class:`Configuration` as JSON.
    """
    configuration = msgspec.json.decode(argument, type=Configuration)
    _die_with(configuration.parent)
    sys.path[:0] = [configuration.directory, *configuration.paths]
    sys.argv[1:] = []
    registered.registry.storage = configuration.storage
    registered.registry.no_storage = configuration.no_storage
    layers: list[dict[str, str]] = []
    if configuration.sandbox is not None:
        from . import sandboxing

        try:
            layers = sandboxing.confine(configuration.sandbox, configuration.missing)
        except sandboxing.NotConfinedError as error:
            print(f"it is not started without its sandbox: {error}", file=sys.stderr, flush=True)  # noqa: T201
            os._exit(NOT_CONFINED)
    module_name, _, name = configuration.entry.partition(":")
    module = importlib.import_module(module_name)
    entry = getattr(module, name) if name else None
    registry = registered.registry
    registry.complete = True
    runtime = _Runtime(entry, layers)
    taking = [granted._nearcall_taking for _, granted in registry.used.values()]
    answering = [each.served for each in registry.handlers.values()]
    server = Server(runtime, *taking, *answering, *registry.offered, "stdio:", introspection=False)
    server.start()
    server.wait()
    server.stop(0.0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    may_start = configuration.sandbox is None or configuration.sandbox.get("subprocesses")
    if may_start and not runtime.stopped and os.getpgrp() == os.getpid():
        # The host has died, or has given this process up: nothing that was started here may stay.
        with contextlib.suppress(OSError):
            os.killpg(0, signal.SIGKILL)
    # Threads of the plugin may hang, and could hold up an end in good order for ever.
    os._exit(0)


def _die_with(parent: int) -> None:
    """Has the system kill this process when its host dies, whatever hangs here by then."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if parent and os.getppid() != parent:
        os._exit(1)  # it died before that


if __name__ == "__main__":
    main(sys.argv[1])
