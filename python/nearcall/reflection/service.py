"""The service itself, in the two versions that are in use, which differ only in name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from functools import cached_property
from typing import Annotated, Any

import msgspec

from ..service.plan import ServicePlan
from ..service.service import service
from ..status import StatusCode
from ..types.hints import short_repr
from ..types.numbers import field
from .index import Index

__all__ = ["ReflectionRequest", "ReflectionResponse", "ServerReflection", "ServerReflectionAlpha", "reflection_of"]


class ExtensionRequest(msgspec.Struct, frozen=True):
    """Asks for an extension of a message."""

    containing_type: str = ""
    extension_number: Annotated[int, field(type="int32")] = 0


class ReflectionRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A question; one of the fields but the first says which."""

    host: Annotated[str, field(1)] = ""
    file_by_filename: Annotated[str | None, field(3)] = None
    file_containing_symbol: Annotated[str | None, field(4)] = None
    file_containing_extension: Annotated[ExtensionRequest | None, field(5)] = None
    all_extension_numbers_of_type: Annotated[str | None, field(6)] = None
    list_services: Annotated[str | None, field(7)] = None


class FileDescriptorResponse(msgspec.Struct, frozen=True):
    """Files, each an encoded ``google.protobuf.FileDescriptorProto``."""

    file_descriptor_proto: list[bytes]


class ExtensionNumberResponse(msgspec.Struct, frozen=True):
    """The numbers of a message's extensions."""

    base_type_name: str
    extension_number: list[Annotated[int, field(type="int32")]]


class ServiceResponse(msgspec.Struct, frozen=True):
    """A service."""

    name: str


class ListServiceResponse(msgspec.Struct, frozen=True):
    """The services."""

    service: list[ServiceResponse]


class ErrorResponse(msgspec.Struct, frozen=True):
    """The status of a question that was not answered; the next one may be."""

    error_code: Annotated[int, field(type="int32")]
    error_message: str


class ReflectionResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question; one of the fields but the first two has it."""

    valid_host: Annotated[str, field(1)] = ""
    original_request: Annotated[ReflectionRequest | None, field(2)] = None
    file_descriptor_response: Annotated[FileDescriptorResponse | None, field(4)] = None
    all_extension_numbers_response: Annotated[ExtensionNumberResponse | None, field(5)] = None
    list_services_response: Annotated[ListServiceResponse | None, field(6)] = None
    error_response: Annotated[ErrorResponse | None, field(7)] = None


@service(name="grpc.reflection.v1.ServerReflection")
class ServerReflection:
    """What a server serves."""

    def server_reflection_info(self, requests: Iterator[ReflectionRequest]) -> Iterator[ReflectionResponse]:
        """Answers each question in turn."""
        raise NotImplementedError


@service(name="grpc.reflection.v1alpha.ServerReflection")
class ServerReflectionAlpha:
    """The same under its older name."""

    def server_reflection_info(self, requests: Iterator[ReflectionRequest]) -> Iterator[ReflectionResponse]:
        """Answers each question in turn."""
        raise NotImplementedError


class Answers:
    """Answers the questions of clients.

    Args:
        plans: The services that its user serves.
        own: The names of the server's own services.
    """

    def __init__(self, plans: Sequence[ServicePlan], own: Sequence[str]) -> None:
        self._plans, self._own = plans, own

    @cached_property
    def _index(self) -> Index:
        # Made at the first question, because most servers are never asked.
        return Index(self._plans, self._own)

    def conversation(self) -> Callable[[ReflectionRequest], ReflectionResponse]:
        """The function that answers the questions of one stream. It sends no imported file twice."""
        sent = set[str]()

        def answer(request: ReflectionRequest) -> ReflectionResponse:
            return ReflectionResponse(valid_host=request.host, original_request=request, **self._answer(request, sent))

        return answer

    def _answer(self, request: ReflectionRequest, sent: set[str]) -> dict[str, Any]:
        index = self._index
        if request.list_services is not None:
            names = sorted(index.services)
            return {"list_services_response": ListServiceResponse([ServiceResponse(name) for name in names])}
        if (name := request.file_by_filename) is not None:
            return self._files(name, sent) or _error(StatusCode.NOT_FOUND, f"there is no file {short_repr(name)}")
        if (symbol := request.file_containing_symbol) is not None:
            declaring = index.declaring(symbol.removeprefix("."))
            found = self._files(declaring, sent) if declaring is not None else None
            return found or _error(StatusCode.NOT_FOUND, f"nothing here is called {short_repr(symbol)}")
        if request.file_containing_extension is not None:
            return _error(StatusCode.NOT_FOUND, "no message here has extensions")
        if (kind := request.all_extension_numbers_of_type) is not None:
            if index.declaring(kind.removeprefix(".")) is None:
                return _error(StatusCode.NOT_FOUND, f"nothing here is called {short_repr(kind)}")
            return {"all_extension_numbers_response": ExtensionNumberResponse(kind, [])}
        return _error(StatusCode.INVALID_ARGUMENT, "the request asks for nothing that is known here")

    def _files(self, name: str, sent: set[str]) -> dict[str, Any] | None:
        files = [
            (each, encoded) for each, encoded in self._index.with_imports(name) if each == name or each not in sent
        ]
        sent.update(each for each, _ in files)
        return (
            {"file_descriptor_response": FileDescriptorResponse([encoded for _, encoded in files])} if files else None
        )


def _error(code: StatusCode, message: str) -> dict[str, Any]:
    return {"error_response": ErrorResponse(int(code), message)}


class _InLoop:
    """Answers in the event loop of the server's coroutines."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    async def server_reflection_info(
        self, requests: AsyncIterator[ReflectionRequest]
    ) -> AsyncIterator[ReflectionResponse]:
        answer = self._answers.conversation()
        async for request in requests:
            yield answer(request)


class _LoopV1(_InLoop, ServerReflection): ...  # type: ignore[misc]


class _LoopAlpha(_InLoop, ServerReflectionAlpha): ...  # type: ignore[misc]


def _in_thread(interface: Callable[[], object], answers: Answers) -> object:
    """A handler like others, which counts among ``max_concurrency``."""

    def server_reflection_info(requests: Iterator[ReflectionRequest]) -> Iterator[ReflectionResponse]:
        yield from map(answers.conversation(), requests)

    # An instance attribute and no subclass, whose annotations would be examined when a server starts.
    made = interface()
    vars(made)["server_reflection_info"] = server_reflection_info
    return made


_NAMES = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
_INTERFACES = (ServerReflection, ServerReflectionAlpha)
_LOOP = (_LoopV1, _LoopAlpha)


def reflection_of(plans: Sequence[ServicePlan], own: Sequence[str], *, in_loop: bool) -> list[object]:
    """The services of reflection for a server.

    Args:
        plans: The services of its user.
        own: The names of the server's own services; those of reflection are added.
        in_loop: Whether the server has an event loop for handlers: there, a client that keeps its stream open holds no
            thread.
    """
    taken = {plan.name for plan in plans}
    free = [number for number, name in enumerate(_NAMES) if name not in taken]
    answers = Answers(plans, [*own, *(_NAMES[number] for number in free)])
    return [(_LOOP[number](answers) if in_loop else _in_thread(_INTERFACES[number], answers)) for number in free]
