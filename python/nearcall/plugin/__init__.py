"""Plugins in processes of their own: ``PluginHost`` for the program that has them, and what plugins themselves use.

The module that both import declares services and extension points; see docs/plugins.md.
"""

from typing import TYPE_CHECKING, Any

from .addon import granted, offer, on_stop, storage, use
from .points import ExtensionPoint, accumulating_decider, action, chain, decider, filter

if TYPE_CHECKING:
    from .capabilities import Answer, Ask
    from .host import Extension, Plugin, PluginHost
    from .loops import AsyncPlugin, AsyncPluginHost
    from .manifest import Manifest, ManifestError, Mistake, Permission, read_manifest
    from .settings import HostOptions, PluginEvent
else:  # hidden from type checkers, to which it would mean that the module has every attribute there is
    # A plugin needs nothing of a host: it starts sooner without.
    _LATER = {
        **dict.fromkeys(["Answer", "Ask"], "capabilities"),
        **dict.fromkeys(["Extension", "Plugin", "PluginHost"], "host"),
        **dict.fromkeys(["AsyncPlugin", "AsyncPluginHost"], "loops"),
        **dict.fromkeys(["Manifest", "ManifestError", "Mistake", "Permission", "read_manifest"], "manifest"),
        **dict.fromkeys(["HostOptions", "PluginEvent"], "settings"),
    }

    def __getattr__(name: str) -> Any:
        if name in _LATER:
            from importlib import import_module

            return getattr(import_module(f".{_LATER[name]}", __name__), name)
        raise AttributeError(f"module 'nearcall.plugin' has no attribute '{name}'")


__all__ = [
    "Answer",
    "Ask",
    "AsyncPlugin",
    "AsyncPluginHost",
    "Extension",
    "ExtensionPoint",
    "HostOptions",
    "Manifest",
    "ManifestError",
    "Mistake",
    "Permission",
    "Plugin",
    "PluginEvent",
    "PluginHost",
    "accumulating_decider",
    "action",
    "chain",
    "decider",
    "filter",
    "granted",
    "offer",
    "on_stop",
    "read_manifest",
    "storage",
    "use",
]
