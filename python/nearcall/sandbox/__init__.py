"""Confining a process before foreign code is loaded into it, on Linux.

A host starts an interpreter; that one calls :func:`confine` with a :class:`Policy` while it has one thread, and only
then imports what it does not trust. ``docs/sandbox.md`` says what each layer does, and what none of them stops.
"""

from .confining import available, confine
from .explaining import explain
from .policy import Policy
from .report import LAYERS, Layer, Report, SandboxError
from .violations import violation

__all__ = ["LAYERS", "Layer", "Policy", "Report", "SandboxError", "available", "confine", "explain", "violation"]
