"""What protoc sees to before a file is written as Python.

A server's description of itself has gone through no protoc, and each name in it would become part of a program.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from ...types.numbers import is_field_number
from ...types.shown import shown
from .sources import EnumSource, FieldSource, FileSource, MessageSource, ServiceSource

__all__ = ["CannotBeWritten", "check_sources"]

_T = TypeVar("_T")
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9_./ +@-]+", re.ASCII)
_SCALARS: Final = frozenset(range(1, 19)) - {10, 11, 14}
_KEYS: Final = _SCALARS - {1, 2, 12}
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_LONGEST_NAME = 100
"""Characters of a wrong name that an error shows."""


class CannotBeWritten(ValueError):
    """Something in a file has no counterpart in Python; the message says where, what, and what to do."""


def check_sources(files: Sequence[FileSource]) -> None:
    """Checks that names are names, that what is referred to is there, and that nothing has the same name twice.

    Args:
        files: The files, and all that they import.

    Raises:
        CannotBeWritten: something is not so; the message is one line, which begins with the file.
    """
    for file in files:
        if not _FILE_NAME.fullmatch(file.name):
            raise CannotBeWritten(f"a file is called '{shown(file.name, _LONGEST_NAME)}', and no file of protoc's is")
    if twice := _twice(file.name for file in files):
        raise CannotBeWritten(f"{twice}: there are two files of this name")
    types: dict[str, MessageSource | EnumSource] = {}
    for file in files:
        types |= _Names(file).declared()
    for file in files:
        _References(file, types).check()


class _Names:
    """The names that a file declares."""

    def __init__(self, file: FileSource) -> None:
        self._file = file

    def declared(self) -> dict[str, MessageSource | EnumSource]:
        """The messages and enums, by their full names."""
        file = self._file
        package = file.package.split(".") if file.package else []
        self._check("the package", package)
        scope = "".join(f".{part}" for part in package)
        self._check("a service", (service.name for service in file.service))
        for service in file.service:
            self._check(f"a method of {service.name}", (method.name for method in service.method))
        return dict(self._types(scope, "the file", file.message_type, file.enum_type))

    def _types(
        self, scope: str, where: str, messages: Sequence[MessageSource], enums: Sequence[EnumSource]
    ) -> Iterator[tuple[str, MessageSource | EnumSource]]:
        self._check(f"a type in {where}", [*(each.name for each in messages), *(each.name for each in enums)])
        for enum in enums:
            self._check(f"a value of {enum.name}", (value.name for value in enum.value))
            yield f"{scope}.{enum.name}", enum
        for message in messages:
            self._check(f"a field of {message.name}", (field.name for field in message.field))
            self._check(f"a oneof of {message.name}", (oneof.name for oneof in message.oneof_decl))
            yield f"{scope}.{message.name}", message
            yield from self._types(f"{scope}.{message.name}", message.name, message.nested_type, message.enum_type)

    def _check(self, what: str, names: Iterable[str]) -> None:
        known = list(names)
        for name in known:
            if not _NAME.fullmatch(name):
                raise _wrong(self._file, f"{what} is called '{shown(name, _LONGEST_NAME)}', which is no name")
        if what != "the package" and (twice := _twice(known)):
            raise _wrong(self._file, f"{what} is called '{twice}', and so is another one")


class _References:
    """What a file refers to."""

    def __init__(self, file: FileSource, types: dict[str, MessageSource | EnumSource]) -> None:
        self._file = file
        self._types = types

    def check(self) -> None:
        waiting = list(self._file.message_type)
        while waiting:
            message = waiting.pop()
            waiting += message.nested_type
            for field in message.field:
                self._field(message, field)
            if twice := _twice(field.number for field in message.field):
                raise _wrong(self._file, f"two fields of {message.name} have the number {twice}")
            if message.options is not None and message.options.map_entry:
                self._entry(message)
        for service in self._file.service:
            self._service(service)

    def _service(self, service: ServiceSource) -> None:
        for method in service.method:
            for name in (method.input_type, method.output_type):
                if not isinstance(self._types.get(name), MessageSource):
                    missing = f"names a message '{shown(name, _LONGEST_NAME)}', which is missing"
                    raise _wrong(self._file, f"{service.name}.{method.name} {missing}")

    def _field(self, message: MessageSource, field: FieldSource) -> None:
        where = f"{message.name}.{field.name}"
        if not is_field_number(field.number):
            raise _wrong(self._file, f"{where} has the number {field.number}, which no field may have")
        if field.type in (_GROUP, _MESSAGE, _ENUM):
            kind = EnumSource if field.type == _ENUM else MessageSource
            if not isinstance(self._types.get(field.type_name), kind):
                missing = f"names a type '{shown(field.type_name, _LONGEST_NAME)}', which is missing"
                raise _wrong(self._file, f"{where} {missing}")
        elif field.type not in _SCALARS:
            raise _wrong(self._file, f"{where} has a type of the number {field.type}, which nobody knows")
        if field.oneof_index is not None and not 0 <= field.oneof_index < len(message.oneof_decl):
            raise _wrong(self._file, f"{where} is in a oneof that is missing")

    def _entry(self, message: MessageSource) -> None:
        if [field.name for field in message.field] != ["key", "value"] or message.field[0].type not in _KEYS:
            raise _wrong(self._file, f"{message.name} is the entry of no map")


def _wrong(file: FileSource, problem: str) -> CannotBeWritten:
    return CannotBeWritten(f"{file.name}: {problem}")


def _twice(names: Iterable[_T]) -> _T | None:
    seen: set[_T] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None
