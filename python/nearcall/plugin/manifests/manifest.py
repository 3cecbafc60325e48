"""``plugin.toml``: a plugin's description of itself, read and checked before any of its code runs."""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from ...types.shown import shown

tomllib: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")

__all__ = ["MANIFEST", "SYSTEM", "Manifest", "ManifestError", "Mistake", "Permission", "Runtime", "read_manifest"]

MANIFEST = "plugin.toml"
"""The file's name, in the plugin's own directory."""
SYSTEM = ("files", "network", "programs", "interpreter", "storage")
"""Permissions that concern the system rather than a service of the host."""

_LARGEST = 64 * 1024
"""Bytes of a manifest."""
_LONGEST = 500
"""Characters of a text in it."""
_ID = re.compile(r"[a-z0-9]+([._-][a-z0-9]+)*", re.ASCII)
_ENTRY = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(:[A-Za-z_]\w*)?", re.ASCII)
_PERMISSION = re.compile(r"[a-z][a-z0-9_]*", re.ASCII)
_KEYS = ["id", "name", "version", "summary", "author", "entry", "host", "runtime", "permissions", "extends"]
_RANGE = 'write a range such as ">=1.0, <2"'


class Mistake(NamedTuple):
    """One thing that is wrong in a manifest."""

    file: str
    key: str
    """Where in the file: ``"host.api"``; empty if it is about the whole file."""
    what: str
    todo: str
    """What to do about it."""

    def __str__(self) -> str:
        where = f"{self.file}: {self.key}" if self.key else self.file
        return shown(f"{where}: {self.what}: {self.todo}")


class ManifestError(ValueError):
    """A manifest is wrong. The message has a line for each mistake.

    Args:
        mistakes: All mistakes that were found.
    """

    def __init__(self, mistakes: Collection[Mistake]) -> None:
        super().__init__("\n".join(map(str, mistakes)))
        self.mistakes = tuple(mistakes)


class Permission(msgspec.Struct, frozen=True):
    """Something that a plugin asks for: a service of the host by its name, or one of :data:`SYSTEM`."""

    name: str
    why: str
    """The plugin's reason, for the user who is asked."""
    read: tuple[str, ...] = ()
    """``files``: what it wants to read, absolute paths."""
    write: tuple[str, ...] = ()
    """``files``: what it wants to read and write."""
    ports: tuple[int, ...] = ()
    """``network``: the TCP ports that it wants to connect to; all if empty."""
    run: tuple[str, ...] = ()
    """``programs``: the programs that it wants to start, absolute paths."""


class Runtime(msgspec.Struct, frozen=True):
    """Which Python a plugin needs."""

    python: str = ""
    """A range of versions; empty: any."""
    venv: str = ""
    """A virtual environment in the plugin's directory, whose interpreter runs it; empty: the host's interpreter."""
    interpreter: str = ""
    """An absolute path; empty: the host's interpreter."""


class Manifest(msgspec.Struct, frozen=True):
    """A plugin's description of itself."""

    directory: Path
    id: str
    name: str
    version: str
    summary: str
    author: str
    entry: str
    """``"module"``, which is imported, or ``"module:function"``: the function is called after the import."""
    api: str
    """The versions of the host's interface that it works with."""
    tested: str
    """The versions that it was tested with; the same as ``api`` if it does not say."""
    runtime: Runtime = Runtime()
    permissions: tuple[Permission, ...] = ()
    extends: tuple[str, ...] = ()
    """The extension points for which it is started, where plugins are started lazily."""

    @property
    def path(self) -> Path:
        """The file."""
        return self.directory / MANIFEST

    def works_with(self, api: str) -> bool:
        """Whether it says that it works with that version of the host's interface."""
        return SpecifierSet(self.api).contains(Version(api), prereleases=True)

    def tested_with(self, api: str) -> bool:
        """Whether it says that it was tested with that version."""
        return SpecifierSet(self.tested).contains(Version(api), prereleases=True)

    def permission(self, name: str) -> Permission | None:
        """The permission of that name, if it asks for it."""
        return next((each for each in self.permissions if each.name == name), None)


def read_manifest(directory: str | os.PathLike[str]) -> Manifest:
    """Reads the manifest in a plugin's directory. Nothing of the plugin is run or imported.

    Raises:
        ManifestError: the manifest is missing, malformed or wrong; the message names every mistake.
    """
    directory = Path(directory)
    path = directory / MANIFEST
    try:
        # To open a pipe would wait for a writer, and there may be none.
        with open(path, "rb", opener=_without_waiting) as file:
            ordinary = stat.S_ISREG(os.fstat(file.fileno()).st_mode)
            text = file.read(_LARGEST + 1) if ordinary else b""
    except OSError as error:
        hint = f"write one, or begin with 'nearcall plugin new {directory.name}'"
        raise ManifestError([Mistake(str(path), "", f"cannot be read ({error.strerror})", hint)]) from None
    if not ordinary:
        raise ManifestError([Mistake(str(path), "", "is no ordinary file", "write one in its place")])
    if len(text) > _LARGEST:
        raise ManifestError([Mistake(str(path), "", f"is longer than {_LARGEST} bytes", "make it shorter")])
    try:
        table = tomllib.loads(text.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ManifestError([Mistake(str(path), "", "is no TOML", str(error) or "look at its brackets")]) from None
    return _Reader(path, table).manifest()


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


class _Reader:
    """Reads a manifest and collects its mistakes."""

    def __init__(self, path: Path, table: dict[str, Any]) -> None:
        self._path = path
        self._top = table
        self._mistakes: list[Mistake] = []

    def manifest(self) -> Manifest:
        """The manifest that the table describes.

        Raises:
            ManifestError: there are mistakes in it.
        """
        top = self._top
        host, runtime = self._table("host"), self._table("runtime")
        api = self._text(host, "host.api", self._check_range, required=_RANGE)
        manifest = Manifest(
            directory=self._path.parent,
            id=self._text(top, "id", self._check_id, required="write a name of its own such as 'org.example.shout'"),
            name=self._text(top, "name", required="write a name for people"),
            version=self._text(top, "version", self._check_version, required="write one such as '1.0'"),
            summary=self._text(top, "summary", required="say in one line what it does"),
            author=self._text(top, "author", required="say who made it"),
            entry=self._text(top, "entry", self._check_entry, required="write 'module' or 'module:function'"),
            api=api,
            tested=self._text(host, "host.tested", self._check_range) or api,
            runtime=Runtime(
                self._text(runtime, "runtime.python", self._check_range),
                self._text(runtime, "runtime.venv", self._check_inside),
                self._text(runtime, "runtime.interpreter", self._check_absolute),
            ),
            permissions=self._permissions(),
            extends=tuple(self._texts(top, "extends", None)),
        )
        if manifest.runtime.venv and manifest.runtime.interpreter:
            self._wrong("runtime", "has a venv and an interpreter", "write one of them")
        if bool(manifest.runtime.venv or manifest.runtime.interpreter) != bool(manifest.permission("interpreter")):
            todo = "ask for [permissions] interpreter = 'why' exactly if [runtime] names a venv or an interpreter"
            self._wrong("runtime", "an interpreter of its own runs before it is confined", todo)
        self._no_others(top, "", _KEYS)
        self._no_others(host, "host.", ["api", "tested"])
        self._no_others(runtime, "runtime.", ["python", "venv", "interpreter"])
        if self._mistakes:
            raise ManifestError(self._mistakes)
        return manifest

    def _permissions(self) -> tuple[Permission, ...]:
        found: list[Permission] = []
        for name, value in self._table("permissions").items():
            key = f"permissions.{name}"
            if not _PERMISSION.fullmatch(name):
                self._wrong(key, "is no name of a permission", "write small letters, digits and underscores")
                continue
            table: dict[str, Any] = cast("dict[str, Any]", value) if isinstance(value, dict) else {"why": value}
            why = self._text(table, f"{key}.why", required="say why it is needed: the user reads it")
            known = {"files": ["read", "write"], "network": ["ports"], "programs": ["run"]}.get(name, [])
            self._no_others(table, f"{key}.", ["why", *known])
            paths = {
                field: tuple(self._texts(table, f"{key}.{field}", self._check_absolute))
                for field in ("read", "write", "run")
                if field in known
            }
            if name in ("files", "programs") and not any(paths.values()) and not self._any_in(key):
                self._wrong(key, "names nothing", f'write {" or ".join(known)} = ["/a/path"]')
            ports = self._ports(table, f"{key}.ports") if "ports" in known else ()
            found.append(Permission(name, why, ports=ports, **paths))
        return tuple(found)

    def _any_in(self, key: str) -> bool:
        return any(mistake.key.startswith(f"{key}.") for mistake in self._mistakes)

    def _wrong(self, key: str, what: str, todo: str) -> None:
        self._mistakes.append(Mistake(str(self._path), key, what, todo))

    def _table(self, key: str) -> dict[str, Any]:
        value = self._top.get(key, {})
        if isinstance(value, dict):
            return cast("dict[str, Any]", value)
        self._wrong(key, "is no table", f"write [{key}] on a line of its own, and its keys below")
        return {}

    def _text(
        self, table: Mapping[str, Any], key: str, check: Callable[[str], str | None] | None = None, required: str = ""
    ) -> str:
        name = key.rpartition(".")[2]
        if name not in table:
            if required:
                self._wrong(key, "is missing", required)
            return ""
        value = table[name]
        if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST:
            what = "is empty" if value == "" else f"must be a text of at most {_LONGEST} characters, not {value!r:.80}"
            self._wrong(key, what, required or "leave it out, or write one")
            return ""
        if check is None:
            # For people, who may see it in a terminal just when they are asked what the plugin may do.
            return shown(value, _LONGEST)
        todo = check(value) if value.isprintable() else "write it without characters that cannot be seen"
        if todo:
            self._wrong(key, f"{value!r} does not fit", todo)
            return ""
        return value

    def _texts(self, table: Mapping[str, Any], key: str, check: Callable[[str], str | None] | None) -> list[str]:
        name = key.rpartition(".")[2]
        values: Any = table.get(name, [])
        if not isinstance(values, list):
            self._wrong(key, f"must be a list, not {values!r:.80}", f'write {name} = ["..."]')
            return []
        given = cast("list[object]", values)
        return [self._text({name: value}, key, check) for value in given]

    def _ports(self, table: Mapping[str, Any], key: str) -> tuple[int, ...]:
        ports: Any = table.get("ports", [])
        fits = isinstance(ports, list) and all(
            type(port) is int and 0 < port < 65536 for port in cast("list[object]", ports)
        )
        if not fits:
            self._wrong(key, f"must be a list of TCP ports, not {ports!r:.80}", "write ports = [443]")
            return ()
        return tuple(cast("list[int]", ports))

    def _no_others(self, table: Mapping[str, Any], prefix: str, known: list[str]) -> None:
        for key in table:
            if key not in known:
                import difflib  # only on the way to an error

                close = difflib.get_close_matches(key, known, n=1)
                todo = f"did you mean '{close[0]}'?" if close else f"remove it; there are {', '.join(known)}"
                self._wrong(f"{prefix}{key}", "is not known", todo)

    @staticmethod
    def _check_id(value: str) -> str | None:
        fits = _ID.fullmatch(value) and len(value) <= 100
        return None if fits else "write small letters and digits, with dots, dashes or underscores between them"

    @staticmethod
    def _check_version(value: str) -> str | None:
        try:
            Version(value)
        except InvalidVersion:
            return "write a version such as '1.2.0'"
        return None

    @staticmethod
    def _check_range(value: str) -> str | None:
        try:
            SpecifierSet(value)
        except InvalidSpecifier:
            return _RANGE
        return None

    @staticmethod
    def _check_entry(value: str) -> str | None:
        return None if _ENTRY.fullmatch(value) else "write 'module', or 'module:function' for what is to be called"

    @staticmethod
    def _check_inside(value: str) -> str | None:
        path = Path(value)
        outside = path.is_absolute() or ".." in path.parts
        return "write a path in the plugin's own directory, such as '.venv'" if outside else None

    @staticmethod
    def _check_absolute(value: str) -> str | None:
        path = Path(value)
        fits = path.is_absolute() and ".." not in path.parts and "\0" not in value
        return None if fits else "write an absolute path without '..'"
