"""The program of a plugin's process.

The process is confined before anything of the plugin is imported, and serves the host at its standard input. When the
host is gone, for whatever reason, the process ends, and so does everything that it has started.

The order of the imports matters: modules that take long to import are imported while the system moves the process into
its control groups. Until the process is confined, nothing is imported from directories that the plugin could write to.
"""

from __future__ import annotations

import os
import sys
from typing import Any, NoReturn

import msgspec

from ... import _core
from .configuration import NOT_CONFINED, Configuration

__all__ = ["main"]


def main() -> NoReturn:
    """Runs the plugin whose :class:`Configuration` is the program's argument, as JSON, until its host is gone."""
    configuration = msgspec.json.decode(sys.argv.pop(), type=Configuration)
    _core.die_with_starter()
    if configuration.parent and os.getppid() != configuration.parent:
        os._exit(1)  # the host died before that
    layers: list[dict[str, str]] = []
    if configuration.sandbox is None:
        from .serving import serve
    else:
        from ...sandbox import applying

        early = applying.begin(configuration.sandbox)
        from .serving import serve

        layers = _confine(configuration.sandbox, early)
    # Only now: the plugin's directory may have modules with the names of others.
    sys.path[:0] = [configuration.directory, *configuration.paths]
    serve(configuration, layers)


def _confine(policy: dict[str, Any], early: _core.EarlyLimits) -> list[dict[str, str]]:
    """Confines this process for ever. Returns the layers as data: ``name``, ``state`` and ``detail`` of each."""
    from ...sandbox import applying

    try:
        rows = applying.apply(policy, early)
    except (RuntimeError, OSError) as error:
        print(f"it is not started without its sandbox: {error}", file=sys.stderr, flush=True)  # noqa: T201
        os._exit(NOT_CONFINED)
    return [{"name": name, "state": state, "detail": detail} for name, state, detail in rows]
