"""Plugins in processes of their own: ``PluginHost`` for the program that has plugins, and the functions that plugins
themselves use.

The module that both import declares services and extension points; see docs/plugins.md.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .addon import granted, offer, on_stop, storage, use
    from .capabilities import Answer, Ask
    from .host import Extension, Plugin, PluginHost
    from .loops import AsyncPlugin, AsyncPluginHost
    from .manifest import Manifest, ManifestError, Mistake, Permission, read_manifest
    from .points import ExtensionPoint, accumulating_decider, action, chain, decider, filter
    from .settings import HostOptions, PluginEvent
else:
    from ..lazy import lazily

    # A plugin does not need the host's modules, and starts sooner without them.
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "addon": ["granted", "offer", "on_stop", "storage", "use"],
            "capabilities": ["Answer", "Ask"],
            "host": ["Extension", "Plugin", "PluginHost"],
            "loops": ["AsyncPlugin", "AsyncPluginHost"],
            "manifest": ["Manifest", "ManifestError", "Mistake", "Permission", "read_manifest"],
            "points": ["ExtensionPoint", "accumulating_decider", "action", "chain", "decider", "filter"],
            "settings": ["HostOptions", "PluginEvent"],
        },
    )


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
