"""Lets code that was written for the host's own process run as a plugin, unchanged.

``nearcall plugin shim`` makes modules with the names of the host's own modules, which use this package to call the
host. See docs/shims.md.
"""

from .points import Registered, accumulating_decider, action, chain, decider, filter
from .services import ERRORS, AtPlugin, Run, at_host, at_once, at_plugin, away, load, use
from .turns import Turn, turn
from .values import LARGEST, MOST, Shared, find, keys_of, put, remove, variables

__all__ = [
    "ERRORS",
    "LARGEST",
    "MOST",
    "AtPlugin",
    "Registered",
    "Run",
    "Shared",
    "Turn",
    "accumulating_decider",
    "action",
    "at_host",
    "at_once",
    "at_plugin",
    "away",
    "chain",
    "decider",
    "filter",
    "find",
    "keys_of",
    "load",
    "put",
    "remove",
    "turn",
    "use",
    "variables",
]
