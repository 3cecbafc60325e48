"""Profiles of remote calls: which lines of a program wait for other processes, how often and how long.

``nearcall profile script.py`` runs a program as it is and writes a page; :func:`run` is the same for other tools, which
may add adapters for libraries of their own. Nothing here is imported by a program that is not profiled.

- In the program's own process are :mod:`.recorder`, which writes down each call, :mod:`.importing`, which patches
  libraries when they are imported, and the adapters.
- Afterwards, elsewhere: :mod:`.reading` reads what was written, :mod:`.summary` adds it up, :mod:`.findings` says what
  could be better, :mod:`.page` and :mod:`.terminal` show it, and :mod:`.running` does all this in turn.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .model import Call, Failure, Finding, FlameNode, Line, Process, Profile
    from .page import render
    from .running import NEARCALL, Options, run
    from .terminal import table
else:
    from ..lazy import lazily

    # The process that is profiled imports this package, and nothing of what reads its records.
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "model": ["Call", "Failure", "Finding", "FlameNode", "Line", "Process", "Profile"],
            "page": ["render"],
            "running": ["NEARCALL", "Options", "run"],
            "terminal": ["table"],
        },
    )

__all__ = [
    "NEARCALL",
    "Call",
    "Failure",
    "Finding",
    "FlameNode",
    "Line",
    "Options",
    "Process",
    "Profile",
    "render",
    "run",
    "table",
]
