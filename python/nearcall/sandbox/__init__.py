"""Confines a process before foreign code is loaded into it, on Linux.

A host starts an interpreter, which calls :func:`confine` with a :class:`Policy` while it has one thread, and only then
imports code that is not trusted. ``docs/sandbox.md`` says what each layer does, and what none of them stops.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .confining import available, confine
    from .explaining import explain
    from .policy import Policy
    from .report import LAYERS, Layer, Report, SandboxError
    from .violations import violation
else:
    from ..lazy import lazily

    # A plugin's process only needs `applying` to be confined, and starts sooner without the rest.
    __getattr__, __dir__ = lazily(
        __name__,
        {
            "confining": ["available", "confine"],
            "explaining": ["explain"],
            "policy": ["Policy"],
            "report": ["LAYERS", "Layer", "Report", "SandboxError"],
            "violations": ["violation"],
        },
    )

__all__ = ["LAYERS", "Layer", "Policy", "Report", "SandboxError", "available", "confine", "explain", "violation"]
