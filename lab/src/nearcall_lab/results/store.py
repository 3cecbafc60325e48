"""A run as a directory: ``run.json``, ``cells/<digest>.json``, ``logs/``, ``combined.json``, ``results.sqlite``.

Every file is written under another name and then renamed, so that a reader never sees half a file, also after a crash
or with a full disk. A cell's file is written after each of its launches, so that none is lost.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from nearcall_lab.results.database import write_database
from nearcall_lab.results.model import CellResult, RunInfo

INFO, CELLS, LOGS, COMBINED, DATABASE = "run.json", "cells", "logs", "combined.json", "results.sqlite"

T = TypeVar("T")


class StoreError(Exception):
    """A run that cannot be written or read, in one line."""


class Combined(msgspec.Struct):
    """The content of ``combined.json``: a whole run in one file."""

    run: RunInfo
    cells: list[CellResult]


@dataclass(frozen=True)
class Recorded:
    """A run that was read from disk."""

    path: Path
    info: RunInfo
    cells: list[CellResult]
    """In the scenario's order."""

    def cell(self, digest: str) -> CellResult | None:
        """The cell of that digest, if there is one."""
        return next((cell for cell in self.cells if cell.digest == digest), None)


class Run:
    """A run's directory, open for writing. Only one process can have it open; use it as a context manager."""

    def __init__(self, directory: Path, info: RunInfo) -> None:
        self.directory = directory
        self.info = info
        self._lock = -1

    @classmethod
    def create(cls, directory: Path, info: RunInfo) -> Run:
        """Start a run in a directory that holds none. Raises `StoreError`."""
        if (directory / INFO).exists() or (directory / CELLS).exists():
            raise StoreError(f"{directory} holds a run already; go on with --resume {directory}, or name another --out")
        with _explained(directory):
            (directory / CELLS).mkdir(parents=True)
        run = cls(directory, info)
        run._take()
        run.save_info()
        return run

    @classmethod
    def open(cls, directory: Path) -> Run:
        """Open a run to continue it. Raises `StoreError`."""
        info = decode_file(directory / INFO, RunInfo, hint="is it the directory of a run?")
        run = cls(directory, info)
        run._take()
        return run

    def __enter__(self) -> Run:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the run, so that another process can open it."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def add(self, result: CellResult) -> None:
        """Write a cell that the run does not have yet. A digest that is there already is refused."""
        if self._path(result).exists():
            raise StoreError(f"{self.directory} has a result for cell {result.digest} ({result.cell.title()}) already")
        self.update(result)

    def update(self, result: CellResult) -> None:
        """Write a cell again, with its new results. Raises `StoreError`; the file is then as it was."""
        if result.digest != result.cell.digest():
            raise StoreError(f"cell {result.cell.digest()} cannot be stored under the digest {result.digest}")
        _write(self._path(result), msgspec.json.format(msgspec.json.encode(result), indent=1))

    def save_info(self) -> None:
        """Write ``run.json``."""
        _write(self.directory / INFO, msgspec.json.format(msgspec.json.encode(self.info), indent=1))

    def cells(self) -> list[CellResult]:
        """The stored cells, in the scenario's order. Raises `StoreError`."""
        return _cells(self.directory, self.info)

    def log(self, digest: str, number: int, text: str) -> str:
        """Store what the workers of a failed launch wrote; returns the path relative to the run."""
        name = f"{LOGS}/{digest}-{number}.log"
        with _explained(self.directory / name):
            (self.directory / LOGS).mkdir(exist_ok=True)
        _write(self.directory / name, text.encode())
        return name

    def keep(self, name: str, text: str) -> None:
        """Store a text beside the results, such as the scenario's own."""
        _write(self.directory / name, text.encode())

    def combine(self) -> None:
        """Write ``combined.json`` and ``results.sqlite`` from the cells' files."""
        cells = self.cells()
        _write(self.directory / COMBINED, msgspec.json.encode(Combined(self.info, cells)))
        temporary = self.directory / f".{DATABASE}.new"
        with _explained(self.directory / DATABASE):
            try:
                write_database(temporary, self.info, cells)
                temporary.replace(self.directory / DATABASE)
            finally:
                temporary.unlink(missing_ok=True)

    def _path(self, result: CellResult) -> Path:
        return self.directory / CELLS / f"{result.digest}.json"

    def _take(self) -> None:
        with _explained(self.directory):
            self._lock = os.open(self.directory, os.O_RDONLY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self.close()
            raise StoreError(f"{self.directory} is being written by another process") from None


def read(path: Path) -> Recorded:
    """Read a run from its directory, or from its ``combined.json``. Raises `StoreError` with one line of reason."""
    if path.is_dir():
        info = decode_file(path / INFO, RunInfo, hint="is it the directory of a run?")
        return Recorded(path, info, _cells(path, info))
    if path.name == INFO:
        return read(path.parent)
    combined = decode_file(path, Combined, hint="it takes a run's directory or its combined.json")
    return Recorded(path, combined.run, [_checked(path, cell) for cell in combined.cells])


def _cells(directory: Path, info: RunInfo) -> list[CellResult]:
    found = []
    for digest in info.digests:
        path = directory / CELLS / f"{digest}.json"
        cell = _checked(
            path, decode_file(path, CellResult, hint="run.json names it; delete the run, or restore the file")
        )
        if cell.digest != digest:
            raise StoreError(f"{path}: holds the cell {cell.digest}, not the one its name says")
        found.append(cell)
    return found


def _checked(path: Path, cell: CellResult) -> CellResult:
    if cell.digest != cell.cell.digest():
        raise StoreError(f"{path}: says digest {cell.digest}, but its cell has {cell.cell.digest()}: it was edited")
    return cell


def decode_file(path: Path, kind: type[T], hint: str) -> T:
    """The content of a JSON file. Raises `StoreError` with one line of reason, and with `hint` where the file cannot be
    read.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise StoreError(f"{path}: {error.strerror}; {hint}") from None
    try:
        return msgspec.json.decode(content, type=kind)
    except msgspec.DecodeError as error:  # includes ValidationError
        raise StoreError(f"{path}: broken: {error}; restore it from a copy, or measure again") from None


def _write(path: Path, content: bytes) -> None:
    temporary = path.with_name(f".{path.name}.new")
    with _explained(path):
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turns an error of the system into one line that states what to do."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StoreError(f"disk full: {path} cannot be written; make room, then go on with --resume") from None
        raise StoreError(f"{path} cannot be written: {error.strerror or error}") from None
