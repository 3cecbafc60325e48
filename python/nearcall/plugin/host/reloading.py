"""Restarts plugins whose files change, for their developers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING

from ..manifests.manifest import MANIFEST, ManifestError

if TYPE_CHECKING:
    from ..process.supervised import Supervised
    from ..process.watch import Watch

__all__ = ["Reloader", "files_of"]

_LOOK = 0.5
"""Seconds between two checks."""

Seen = dict[Path, tuple[int, int]]


class Reloader:
    """Checks the files of plugins every half second.

    Args:
        watch: The thread that checks.
        plugins: The plugins.
    """

    def __init__(self, watch: Watch, plugins: Collection[Supervised]) -> None:
        self._watch = watch
        self._plugins = plugins
        self._seen = {each.id: files_of(each.manifest.directory) for each in plugins}
        self._ended = False
        watch.later(_LOOK, self._look)

    def end(self) -> None:
        """Ends the checks."""
        self._ended = True

    def _look(self) -> None:
        if self._ended:
            return
        for each in self._plugins:
            now = files_of(each.manifest.directory)
            if now != self._seen[each.id]:
                self._seen[each.id] = now
                threading.Thread(target=self._restart, args=(each,), daemon=True).start()
        self._watch.later(_LOOK, self._look)

    @staticmethod
    def _restart(plugin: Supervised) -> None:
        with contextlib.suppress(ManifestError, ValueError):  # restart() has told the host
            plugin.restart()


def files_of(directory: Path) -> Seen:
    """For each source of a plugin, when it was changed and its length."""
    found: Seen = {}
    for path in [directory / MANIFEST, *directory.rglob("*.py")]:
        with contextlib.suppress(OSError):
            status = path.stat()
            found[path] = status.st_mtime_ns, status.st_size
    return found
