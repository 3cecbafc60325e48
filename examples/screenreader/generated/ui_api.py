"""What plugins use of ui: made from ui.py by 'nearcall plugin shim'. Both sides import it."""

from __future__ import annotations

from typing import Protocol

import nearcall
from nearcall.plugin import shims


@nearcall.service(errors=[*shims.ERRORS])
class Ui(Protocol):
    """Messages to the user."""

    def message(self, text: str) -> None:
        """Speaks a message after what is spoken now."""
        ...
