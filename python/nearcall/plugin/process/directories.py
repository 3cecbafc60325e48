"""Measures what a plugin keeps on disk, from outside: the plugin is not asked, and so cannot lie.

The system's own limits are for one file, and limits for a directory need an administrator. So the host adds the files
up.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Generator, Iterator
from pathlib import Path

__all__ = ["Storage", "make_directory"]

_EVERY = 1.0
"""Least seconds between two measurements."""
_SHARE = 0.05
"""The share of time that measuring may take if there are many files."""
_BLOCK = 512
"""Bytes of a block; see stat(2)."""
_LEAST = 4096
"""Least bytes that a file counts as: even an empty file takes an inode, and room for its name."""
_HIDDEN = frozenset({errno.ENAMETOOLONG, errno.EACCES})
"""Why the host cannot look at a file, though it is there: a path of thousands of characters, or a directory that its
owner may write to and not read.
"""


class _HiddenError(Exception):
    """There are files that the host cannot add up."""


@contextlib.contextmanager
def _there() -> Generator[None, None, None]:
    """Passes over files that are removed meanwhile. New files count the next time.

    Raises:
        _HiddenError: a file is there, but cannot be looked at.
    """
    try:
        yield
    except OSError as error:
        if error.errno in _HIDDEN:
            raise _HiddenError(error.strerror) from None


def make_directory(parent: Path, plugin: str) -> str:
    """Makes a plugin's own directory, for its user only. Returns its path, without links.

    Raises:
        OSError: it cannot be made.
    """
    directory = parent / plugin
    parent.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    return str(directory.resolve(strict=True))


class Storage:
    """A plugin's directory, and the limit for its content.

    Args:
        directory: The directory.
        limit: Bytes that all files below it may take, with removed files that the process still has open.
    """

    def __init__(self, directory: str, limit: int) -> None:
        self._directory = directory
        self._limit = limit
        self.pause = _EVERY
        """Seconds until the next measurement."""

    def too_much(self, pid: int | None = None) -> str | None:
        """If the files take more than the limit, or cannot be added up, a text that says so and what to do.

        Args:
            pid: The plugin's process, if it runs. It must not have been waited for, or its id could be another's.
        """
        began = time.monotonic()
        taken = 0
        seen: set[tuple[int, int]] = set()
        try:
            for found in self._files(pid):
                if (found.st_dev, found.st_ino) not in seen:  # hard links are one file
                    seen.add((found.st_dev, found.st_ino))
                    taken += max(found.st_blocks * _BLOCK, _LEAST)
                    if taken > self._limit:
                        break
        except _HiddenError as error:
            return (
                f"keeps files in {self._directory} that the host cannot add up (disk=), as their directory cannot be "
                f"looked into ({error}): remove it, and start it again"
            )
        self.pause = max(_EVERY, (time.monotonic() - began) / _SHARE)
        if taken <= self._limit:
            return None
        return (
            f"keeps more than the {self._limit:,} bytes that it may (disk=) in {self._directory}: make room there, "
            "and start it again"
        )

    def _files(self, pid: int | None) -> Iterator[os.stat_result]:
        folders = [self._directory]
        while folders:
            with _there(), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    with _there():
                        yield entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
        if pid is not None:
            yield from self._removed(pid)

    def _removed(self, pid: int) -> Iterator[os.stat_result]:
        """Files without a name that still take room, because the process has them open."""
        with contextlib.suppress(OSError):
            device = os.stat(self._directory).st_dev
            for name in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    found = os.stat(f"/proc/{pid}/fd/{name}")
                    if found.st_nlink == 0 and found.st_dev == device:
                        yield found
