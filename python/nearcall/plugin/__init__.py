"""Plugins in processes of their own: ``PluginHost`` for the program that has plugins, and the functions that plugins
themselves use.

The module that both import declares services and extension points; see docs/plugins.md.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .host.host import Extension, Plugin, PluginHost
    from .host.loops import AsyncPlugin, AsyncPluginHost
    from .inside.addon import granted, offer, on_stop, storage, use
    from .manifests.manifest import Manifest, ManifestError, Mistake, Permission, read_manifest
    from .points.capabilities import Answer, Ask
    from .points.points import ExtensionPoint, accumulating_decider, action, chain, decider, filter
    from .points.settings import HostOptions, PluginEvent
else:
    from ..lazy import lazily

    # A plugin does not need the host's modules, and starts sooner without them.
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "inside.addon": ["granted", "offer", "on_stop", "storage", "use"],
            "points.capabilities": ["Answer", "Ask"],
            "host.host": ["Extension", "Plugin", "PluginHost"],
            "host.loops": ["AsyncPlugin", "AsyncPluginHost"],
            "manifests.manifest": ["Manifest", "ManifestError", "Mistake", "Permission", "read_manifest"],
            "points.points": ["ExtensionPoint", "accumulating_decider", "action", "chain", "decider", "filter"],
            "points.settings": ["HostOptions", "PluginEvent"],
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
