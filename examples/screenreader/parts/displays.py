"""The braille displays that plugins offer: each shows a part of a line, and the next when its reader presses a key."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from screen_api import Display

import nearcall
from nearcall.plugin import PluginHost
from parts.braille import shown

KEY = 0.02
"""Seconds that a key takes at least: a plugin that invents them without end is slowed down, and not this process."""


class Displays:
    """All displays.

    Args:
        host: Whose plugins may have displays.
        on_line: Told what each display shows.
        patience: Seconds that a display may take. One that takes longer gets no more lines until its plugin is started
            again.
    """

    def __init__(self, host: PluginHost, on_line: Callable[[str], object], patience: float) -> None:
        self._patience = patience
        self._host = host
        self._on_line = on_line
        self._open: dict[int, _Opened | None] = {}
        """By the plugin's process; ``None`` if it is of no use."""

    def show(self, cells: bytes) -> None:
        """Shows a line from its beginning on."""
        for plugin in self._host:
            pid = plugin.pid
            if pid is None or not plugin.offers(Display):
                continue
            try:
                if pid not in self._open:
                    self._open[pid] = _Opened(plugin.service(Display), self._on_line, self._patience)
                if (display := self._open[pid]) is not None:
                    display.begin(cells)
            except nearcall.RpcError:
                self._open[pid] = None


class _Opened:
    """One display, and the thread that waits for its keys."""

    def __init__(self, display: Display, on_line: Callable[[str], object], patience: float) -> None:
        self._patience = patience
        self._display = display
        self._on_line = on_line
        self._change = threading.Lock()
        self._cells = b""
        self._at = 0
        with nearcall.timeout(self._patience):
            self._width = max(1, display.width())
        threading.Thread(target=self._listen, name="braille-keys", daemon=True).start()

    def begin(self, cells: bytes) -> None:
        with self._change:
            self._cells, self._at = cells, 0
            self._show()

    def _listen(self) -> None:
        with contextlib.suppress(nearcall.RpcError):  # its plugin has ended
            for key in self._display.pressed():
                time.sleep(KEY)
                with self._change:
                    if key == "more" and self._at + self._width < len(self._cells):
                        self._at += self._width
                        self._show()

    def _show(self) -> None:
        part = self._cells[self._at : self._at + self._width]
        with nearcall.timeout(self._patience):
            self._display.show(part)
        self._on_line(shown(part))
