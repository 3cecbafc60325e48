"""What a plugin's process is started with. Nothing of a service is known here: the process reads it before all else."""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["NOT_CONFINED", "PROGRAM", "Configuration"]

PROGRAM = "from nearcall.plugin.bootstrap import main; main()"
"""What the interpreter runs. As a module, by ``-m``, it would import more, and start later."""
NOT_CONFINED = 78
"""The exit status of a process that could not be confined as it has to be; ``EX_CONFIG`` of ``sysexits.h``."""


class Configuration(msgspec.Struct, frozen=True):
    """What a plugin's process is started with; JSON on its command line."""

    id: str
    directory: str
    entry: str
    paths: list[str]
    """Directories that it may import from, besides its own and what its interpreter has."""
    storage: str = ""
    """Its directory for files that it keeps; empty: none."""
    no_storage: str = ""
    """Why it has none."""
    parent: int = 0
    """The host's process."""
    sandbox: dict[str, Any] | None = None
    """The policy to be confined by, from :func:`~nearcall.plugin.sandboxing.plain_policy`; ``None``: none."""
