"""ui for plugins: made from ui.py by 'nearcall plugin shim'."""

from __future__ import annotations

import ui_api as _api

from nearcall.plugin import shims as _shims

__all__ = ["message"]

_host = _shims.use("ui", _api.Ui)


def message(text: str) -> None:
    """Speaks a message after what is spoken now."""
    _host.message(text)
