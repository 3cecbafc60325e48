"""Asks a server of gRPC what it serves."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from ..codec.protobuf.sources import FileSource, read_source
from ..errors import FailedPrecondition, Unimplemented
from ..status import StatusCode
from ..types.shown import shown
from .service import ReflectionRequest, ReflectionResponse, ServerReflection, ServerReflectionAlpha

__all__ = ["Described", "ask"]

_OWN = "grpc.reflection."
_MOST_FILES = 2_000
_MOST_BYTES = 64 << 20
"""Of all files together."""
_LONGEST_REASON = 200
"""Characters of a server's reason that an error shows."""


class Described(NamedTuple):
    """What a server serves."""

    services: dict[str, str]
    """The file that declares each service, by the service's full name. Reflection itself is left out."""
    files: list[FileSource]
    """These files and all that they import, each after the files that it imports."""
    sizes: dict[str, int]
    """How many bytes describe each file, by its name."""

    def with_imports(self, name: str) -> list[FileSource]:
        """One file and all that it imports, in the same order."""
        wanted = {name}
        for file in reversed(self.files):
            if file.name in wanted:
                wanted.update(file.dependency)
        return [file for file in self.files if file.name in wanted]


def ask(client_of: Callable[[type], Any]) -> Described:
    """Asks a server for its services, and for the files that declare them.

    Args:
        client_of: Makes a client of one of its services: the ``client`` of a channel to it.

    Raises:
        RpcError: the server cannot be reached, does not admit this client, or fails.
        FailedPrecondition: it has no reflection, or what it answers makes no sense.
    """
    try:
        return _Questions(client_of(ServerReflection)).ask()
    except Unimplemented:
        pass
    try:
        return _Questions(client_of(ServerReflectionAlpha)).ask()
    except Unimplemented:
        raise FailedPrecondition("the server does not say what it serves: it has no reflection") from None


class _Questions:
    def __init__(self, server: ServerReflection | ServerReflectionAlpha) -> None:
        self._server = server
        self._files: dict[str, FileSource] = {}
        self._declared_in: dict[str, str] = {}
        """Files by the full names of their services."""
        self._bytes = 0
        self._sizes: dict[str, int] = {}

    def ask(self) -> Described:
        listed = self._answer(ReflectionRequest(list_services="*")).list_services_response
        if listed is None:
            raise FailedPrecondition("the server's reflection does not list its services")
        services: dict[str, str] = {}
        for service in listed.service:
            if not service.name.startswith(_OWN):
                services[service.name] = self._declaring(service.name)
        return Described(services, list(self._in_order(services.values())), self._sizes)

    def _declaring(self, service: str) -> str:
        if service not in self._declared_in:
            self._take_in(ReflectionRequest(file_containing_symbol=service))
        if (file := self._declared_in.get(service)) is None:
            raise FailedPrecondition("the server's reflection lists a service that it does not describe")
        return file

    def _take_in(self, question: ReflectionRequest) -> None:
        """Keeps the files of an answer."""
        answer = self._answer(question).file_descriptor_response
        for encoded in answer.file_descriptor_proto if answer is not None else ():
            self._bytes += len(encoded)
            try:
                file = read_source(encoded)
            except ValueError as error:
                raise FailedPrecondition(f"the server's reflection describes a file that is none: {error}") from None
            if self._files.setdefault(file.name, file) is file:
                self._sizes[file.name] = len(encoded)
                for service in _names(file):
                    self._declared_in.setdefault(service, file.name)
            if len(self._files) > _MOST_FILES or self._bytes > _MOST_BYTES:
                raise FailedPrecondition(
                    f"the server's reflection describes more than {_MOST_FILES:,} files, or {_MOST_BYTES >> 20} MiB"
                )

    def _answer(self, question: ReflectionRequest) -> ReflectionResponse:
        # A stream for each question: a server may close it after an answer.
        with_one = self._server.server_reflection_info(iter([question]))
        answer = next(iter(with_one), None)
        if answer is None:
            raise FailedPrecondition("the server's reflection does not answer")
        if (error := answer.error_response) is not None:
            code, why = _status(error.error_code), shown(error.error_message, _LONGEST_REASON)
            raise FailedPrecondition(f"the server's reflection answers with {code}: {why}")
        return answer

    def _in_order(self, names: Iterable[str]) -> Iterator[FileSource]:
        """The files of these names and all that they import. Those that are missing are asked for."""
        begun: set[str] = set()
        waiting: list[str | FileSource] = list(names)
        while waiting:
            each = waiting.pop()
            if isinstance(each, FileSource):
                yield each
            elif each not in begun:
                begun.add(each)
                if each not in self._files:
                    self._take_in(ReflectionRequest(file_by_filename=each))
                if (file := self._files.get(each)) is None:
                    raise FailedPrecondition("the server's reflection does not describe a file that is imported")
                waiting += [file, *file.dependency]


def _names(file: FileSource) -> Iterator[str]:
    """The full names of its services."""
    for service in file.service:
        yield f"{file.package}.{service.name}" if file.package else service.name


def _status(code: int) -> str:
    return StatusCode(code).name if code in set(StatusCode) else f"the status {code}"
