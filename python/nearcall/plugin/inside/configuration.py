"""The configuration that a plugin's process is started with. It imports no services: the process reads it before all
else.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["NOT_CONFINED", "PROGRAM", "Configuration"]

PROGRAM = "from nearcall.plugin.inside.bootstrap import main; main()"
"""The code that the interpreter runs. A module, run by ``-m``, would import more, and start later."""
NOT_CONFINED = 78
"""The exit status of a process that could not be confined as its policy demands; ``EX_CONFIG`` of ``sysexits.h``."""


class Configuration(msgspec.Struct, frozen=True):
    """The configuration of a plugin's process; JSON on its command line."""

    id: str
    directory: str
    entry: str
    paths: list[str]
    """Directories that it may import from, besides its own and its interpreter's."""
    storage: str = ""
    """Its directory for files that it keeps; empty if it has none."""
    no_storage: str = ""
    """Why it has no such directory."""
    parent: int = 0
    """The host's process id."""
    sandbox: dict[str, Any] | None = None
    """The policy to be confined by, from :func:`~nearcall.plugin.sandboxing.plain_policy`; ``None``: it is not
    confined.
    """
