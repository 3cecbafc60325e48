"""Packs a plugin into an archive, and installs it from one. An archive is not trusted until it is checked."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from .manifest import MANIFEST, Manifest, read_manifest

__all__ = ["SUFFIX", "ArchiveError", "install", "pack"]

SUFFIX = ".plugin.zip"
"""The end of an archive's name."""
_MOST_FILES = 10_000
_MOST_BYTES = 1 << 30
"""Bytes of all files together, unpacked."""
_LEFT_OUT = {"__pycache__", "node_modules"}
_SINCE = (1980, 1, 1, 0, 0, 0)
"""The time of all files in an archive, so that the same plugin makes the same archive."""


class ArchiveError(ValueError):
    """An archive is no plugin, or means harm; the message says what is wrong with it."""


def pack(directory: Path, target: Path | None = None) -> Path:
    """Writes a plugin into an archive. Files and folders whose names begin with a dot are left out, such as virtual
    environments.

    Args:
        directory: The plugin's directory.
        target: The archive; ``ID-VERSION.plugin.zip`` here if not given.

    Returns:
        The archive.

    Raises:
        ManifestError: its manifest is wrong.
        ArchiveError: the plugin is too large, or has a file that is no ordinary file, such as a link.
    """
    manifest = read_manifest(directory)
    path = target or Path(f"{manifest.id}-{manifest.version}{SUFFIX}")
    files = sorted(_files(directory))
    if len(files) > _MOST_FILES or sum(file.stat().st_size for file in files) > _MOST_BYTES:
        raise ArchiveError(f"{directory} has more than {_MOST_FILES} files or {_MOST_BYTES} bytes: leave something out")
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.relative_to(directory).as_posix(), _SINCE)
            entry.external_attr = (stat.S_IFREG | 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, file.read_bytes())
    return path


def _files(directory: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(directory):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
        for name in names:
            path = Path(folder, name)
            if name.startswith(".") or name.endswith(".pyc"):
                continue
            if path.is_symlink() or not path.is_file():
                raise ArchiveError(f"{path} is no ordinary file: replace it by a copy, or remove it")
            yield path


def install(archive: Path, directory: Path, *, replace: bool = False) -> Manifest:
    """Unpacks a plugin into a host's directory, under its id. None of its code is run.

    Args:
        archive: An archive made by :func:`pack`.
        directory: Where the host has its plugins.
        replace: Whether to replace the plugin if it is there already.

    Returns:
        The manifest, with its new directory.

    Raises:
        ManifestError: its manifest is wrong.
        ArchiveError: the file is no archive of a plugin, or has an entry that must not be unpacked.
        FileExistsError: the plugin is there, and is not to be replaced.
    """
    directory.mkdir(parents=True, exist_ok=True)
    # In the same directory, so that the last step, a rename, is atomic. Hosts ignore this folder.
    with tempfile.TemporaryDirectory(prefix=".installing-", dir=directory) as temporary:
        unpacked = Path(temporary, "new")
        try:
            with zipfile.ZipFile(archive) as opened:
                _unpack(opened, unpacked)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError) as error:
            raise ArchiveError(f"{archive} cannot be unpacked: {error}") from None
        if not (unpacked / MANIFEST).is_file():
            raise ArchiveError(f"{archive} has no {MANIFEST}: make it with 'nearcall plugin pack'")
        manifest = read_manifest(unpacked)
        target = directory / manifest.id
        if target.exists():
            if not replace:
                raise FileExistsError(f"{target} is there already: write --replace to replace it")
            shutil.move(target, Path(temporary, "old"))
        unpacked.rename(target)
    return read_manifest(target)


def _unpack(archive: zipfile.ZipFile, target: Path) -> None:
    entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    if len(entries) > _MOST_FILES:
        raise ArchiveError(f"it has more than {_MOST_FILES} files")
    left = _MOST_BYTES
    for entry in entries:
        name = PurePosixPath(entry.filename)
        mode = entry.external_attr >> 16
        bad = name.is_absolute() or ".." in name.parts or "\\" in entry.filename or "\0" in entry.filename
        if bad or not name.parts or (mode and stat.S_IFMT(mode) not in (0, stat.S_IFREG)):
            raise ArchiveError(f"{entry.filename!r} must not be unpacked: it leads out of the plugin, or is no file")
        path = target.joinpath(*name.parts)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with archive.open(entry) as source, path.open("xb") as file:
                # The sizes that the archive states are not trusted.
                while data := source.read(min(1 << 20, left + 1)):
                    left -= len(data)
                    if left < 0:
                        raise ArchiveError(f"it has more than {_MOST_BYTES} bytes")
                    file.write(data)
        except (FileExistsError, IsADirectoryError, NotADirectoryError):
            raise ArchiveError(f"{entry.filename!r} is in it twice") from None
