"""The extension points that host and plugins of the measurements share. Plugins import this module from this
directory.
"""

from __future__ import annotations

from nearcall import plugin


@plugin.filter  # type: ignore[untyped-decorator]
def filtered(text: str) -> str:
    """A text that passes through a plugin."""
    raise NotImplementedError


@plugin.action  # type: ignore[untyped-decorator]
def happened(what: str) -> None:
    """Something that all plugins are told."""
    raise NotImplementedError


@plugin.action  # type: ignore[untyped-decorator]
def provoked(what: str) -> None:
    """What one plugin hangs at, and another one dies of."""
    raise NotImplementedError


POINTS = (filtered, happened, provoked)
