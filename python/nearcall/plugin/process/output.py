"""Writes what a plugin prints to the host's log, line by line, at a limited rate."""

from __future__ import annotations

import logging
import time
from collections import deque

from ...log import write
from ...types.shown import shown

__all__ = ["Output", "plugin_logger"]

_LINE_COSTS = 64
"""Bytes that each line counts besides its text, because a record of the log is more than its text."""

_NOTE = 50
"""Characters of the note that a line was cut."""


def plugin_logger(plugin: str) -> logging.Logger:
    """The logger for what a plugin prints: ``nearcall.plugin.ID``."""
    return logging.getLogger(f"nearcall.plugin.{plugin}")


class Output:
    """Logs the lines that arrive through one pipe. Only one thread may use it at a time.

    Args:
        plugin: The plugin's id.
        level: The level of the records.
        last: Each line is appended to it as well, for the message at the plugin's end.
        rate: Bytes that are read in a second; at first, those of one second at once. A plugin that prints faster waits.
        longest: Characters of a line; the rest of it is dropped.
    """

    def __init__(self, plugin: str, level: int, last: deque[str], rate: int, longest: int) -> None:
        self._logger = plugin_logger(plugin)
        self._level = level
        self._last = last
        self._rate = rate
        self._longest = longest
        self._line = bytearray()
        self._cut = 0
        self._credit = float(rate)
        self._at = time.monotonic()

    def take(self, data: bytes) -> float:
        """Takes bytes that were read.

        Returns:
            Seconds for which nothing more is to be read.
        """
        parts = data.split(b"\n")
        for part in parts[:-1]:
            self._add(part)
            self._end()
        self._add(parts[-1])
        now = time.monotonic()
        self._credit = min(self._rate, self._credit + (now - self._at) * self._rate)
        self._at = now
        self._credit -= len(data) + _LINE_COSTS * (len(parts) - 1)
        return max(0.0, -self._credit / self._rate)

    def finish(self) -> None:
        """Called at the end of the pipe: bytes without a line's end are a line, too."""
        if self._line or self._cut:
            self._end()

    def _add(self, part: bytes) -> None:
        room = self._longest - len(self._line)
        self._line += part[:room]
        self._cut += max(0, len(part) - room)

    def _end(self) -> None:
        line = self._line.decode(errors="replace")
        if self._cut:
            line += f"... ({self._cut} bytes more)"
        self._line.clear()
        self._cut = 0
        self._last.append(shown(line, self._longest + _NOTE))
        write(self._logger, self._level, "%s", line)
