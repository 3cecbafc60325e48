"""Servers of gRPC on the command line: by reflection they say what they serve, and their methods can be called by it.

What a server says becomes the same classes that ``nearcall stub`` writes. So it is called as by any typed client, and
described as any server describes itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec

import nearcall

from ..codec.protobuf.module import CannotBeWritten, module_text
from ..codec.protobuf.service import ServiceMessages
from ..errors import FailedPrecondition
from ..reflection.asking import Described, ask
from ..service.describing import describe
from ..service.description import MethodInfo, ServiceInfo
from ..service.service import plan_of
from ..types.guards import is_dict, is_list
from ..types.shown import shown
from . import UsageError
from .messages import to_message
from .standard_input import lines

__all__ = ["Reflected"]

_MOST_READ = 64 << 20
"""Bytes of files that are read for all modules together. Each module is made of a file and of all that it imports, so
files that many others import are read many times.
"""
_LEAST_READ = 1 << 10
"""Bytes that reading any file counts for: an empty one is work, too."""


class Reflected:
    """What a client without a class is elsewhere, for a server of gRPC.

    Args:
        channel: A channel to the server; it is closed with this.

    Raises:
        RpcError: the server cannot be reached, or does not describe itself.
    """

    def __init__(self, channel: nearcall.Channel) -> None:
        self._channel = channel
        described = ask(channel.client)
        self.problems: list[str] = []
        """Why services are left out, a line for each file."""
        self._interfaces = dict(self._made(described))
        self.service = SimpleNamespace()
        """A client of each service, by its full name."""
        vars(self.service).update({name: channel.client(each) for name, each in self._interfaces.items()})
        self.description: dict[str, Any] = describe([plan_of(each) for each in self._interfaces.values()])
        """As a server describes itself to nearcall's clients."""

    def __enter__(self) -> Reflected:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def _made(self, described: Described) -> Iterator[tuple[str, type]]:
        """The services and their interfaces.

        Raises:
            FailedPrecondition: it is too much work.
        """
        services_of: dict[str, list[str]] = {}
        for service, file in described.services.items():
            services_of.setdefault(file, []).append(service)
        read = 0
        for file, asked in services_of.items():
            files = described.with_imports(file)
            read += sum(max(described.sizes[each.name], _LEAST_READ) for each in files)
            if read > _MOST_READ:
                raise FailedPrecondition(
                    f"the files that the server's reflection describes import each other too often: its services need "
                    f"more than {_MOST_READ >> 20} MiB of them, each with what it imports"
                )
            try:
                module = _module(module_text(files, [file]))
            except CannotBeWritten as error:
                self.problems.append(f"{', '.join(map(shown, asked))} left out: {error}")
                continue
            for service in asked:
                name = service.rpartition(".")[2]
                if hasattr(module, name):
                    yield service, getattr(module, name)
                else:
                    self.problems.append(f"{shown(service)} left out: it has no methods")

    def messages(self) -> Iterator[tuple[str, ServiceMessages]]:
        """The services and their messages."""
        for name, interface in self._interfaces.items():
            plan = plan_of(interface)
            types = [method.types for method in plan.methods if method.types is not None]
            yield name, ServiceMessages(plan.name, types, plan.doc)

    def arguments(
        self, given: dict[str, Any] | list[Any], service: ServiceInfo, method: MethodInfo
    ) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of a call: a message, or a stream of them.

        Raises:
            UsageError: what is given does not fit.
        """
        plans = plan_of(self._interfaces[service.name]).methods
        declared = next(plan.types for plan in plans if plan.name == method.name)
        assert declared is not None, "it was made from a class"
        if declared.stream is not None:
            return [_stream(given, declared.stream.type.annotation)], {}
        if not is_dict(given):
            raise UsageError("a method of gRPC takes one message: write it as an object, like '{\"a\": 1}'")
        return [to_message(given, declared.parameters[0].type.annotation)], {}


def _stream(given: dict[str, Any] | list[Any], kind: Any) -> Iterator[Any]:
    if is_list(given):
        return iter([to_message(each, kind) for each in given])
    if given:
        raise UsageError("the method takes a stream of messages: write a list, or leave it out to read standard input")
    return _from_stdin(kind)


def _from_stdin(kind: Any) -> Iterator[Any]:
    for number, line in lines():
        try:
            yield to_message(msgspec.json.decode(line), kind)
        except (msgspec.DecodeError, UsageError) as error:
            raise UsageError(f"standard input, line {number}: {error}") from None


def _module(text: str) -> ModuleType:
    """The module of this text, which has only names and numbers of the server's in it: the writer refuses others."""
    module = ModuleType(f"nearcall_described_{len(sys.modules)}")
    sys.modules[module.__name__] = module  # annotations are looked up there
    try:
        exec(compile(text, f"<{module.__name__}>", "exec", dont_inherit=True), vars(module))
    except Exception as error:  # such as a name that Python's enums keep for themselves
        del sys.modules[module.__name__]
        raise CannotBeWritten(f"what the server says cannot be said in Python: {shown(str(error))}") from None
    return module
