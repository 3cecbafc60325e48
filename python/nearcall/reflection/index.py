"""The files that reflection is asked for, by their names and by the symbols that they declare."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec

from ..codec.protobuf.descriptor import FileDescriptorProto, codec_of, file_descriptors, symbols
from ..codec.protobuf.service import ServiceMessages
from ..service.plan import ServicePlan
from ..types.numbers import field
from .generated import generated_files

__all__ = ["Index"]

KNOWN = Path(__file__).with_name("known.binpb")
"""Files that are not made here, as protoc encodes them: those of google.protobuf that nearcall's files import, health
and reflection itself.

``tools/make_known_files.py`` writes it.
"""
_MOST_VALUES = 100_000


class _Files(msgspec.Struct):
    """A ``google.protobuf.FileDescriptorSet``, whose files stay as they are."""

    file: Annotated[list[bytes], field(1)]


class Index:
    """The files of the services that a server has.

    Args:
        plans: The services that its user serves.
        own: The names of the server's own services, whose files are in :data:`KNOWN`.
    """

    def __init__(self, plans: Sequence[ServicePlan], own: Sequence[str]) -> None:
        self.services = [*(plan.name for plan in plans), *own]
        """The names of all services."""
        self._encoded: dict[str, bytes] = {}
        self._imports: dict[str, list[str]] = {}
        self._by_symbol: dict[str, str] = {}
        codec = codec_of(FileDescriptorProto)
        served = [
            ServiceMessages(plan.name, [method.types for method in plan.methods if method.types is not None])
            for plan in plans
            if not plan.encoded
        ]
        for file in file_descriptors(served):
            self._add(file, codec.encode(file))
        for plan in plans:
            for _, encoded in generated_files(plan.name) if plan.encoded else ():
                self._add(codec.decode(encoded, _MOST_VALUES), encoded)
        for encoded in codec_of(_Files).decode(KNOWN.read_bytes(), _MOST_VALUES).file:
            self._add(codec.decode(encoded, _MOST_VALUES), encoded)

    def _add(self, file: FileDescriptorProto, encoded: bytes) -> None:
        # The user's own files come first: a service that the user serves hides a known file of the same name.
        if file.name in self._encoded:
            return
        self._encoded[file.name], self._imports[file.name] = encoded, file.dependency
        for symbol in symbols(file):
            self._by_symbol.setdefault(symbol, file.name)

    def declaring(self, symbol: str) -> str | None:
        """The name of the file that declares something, by its full name."""
        return self._by_symbol.get(symbol)

    def with_imports(self, name: str) -> Iterator[tuple[str, bytes]]:
        """A file and the files that it imports, with their names; nothing if there is no file of that name."""
        waiting, seen = [name], set[str]()
        while waiting:
            name = waiting.pop(0)
            if name not in seen and name in self._encoded:
                seen.add(name)
                yield name, self._encoded[name]
                waiting += self._imports[name]
