"""ui as a service for plugins: made from ui.py by 'nearcall plugin shim'."""

from __future__ import annotations

import ui as _module
from ui_api import Ui

from nearcall.plugin import shims


class UiOfHost(Ui):
    """Calls the module ui. Give it to plugins: services={"ui": UiOfHost()}.

    Args:
        run: Calls a function where the module's code may run, such as in the main thread.
    """

    def __init__(self, run: shims.Run = shims.at_once) -> None:
        self._run = run

    def message(self, text: str) -> None:
        self._run(lambda: _module.message(text))
