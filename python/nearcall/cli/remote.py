"""Helpers for commands that connect: a client without a class, and finding a method by its name.

At URLs of gRPC, what the server says by reflection stands for its description.
"""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import nearcall

from ..codec.protobuf.names import method_name
from ..options.schemes import speaks_http, speaks_protobuf
from ..service.description import Description, MethodInfo, ServiceInfo
from ..service.reading import read_description
from . import UsageError
from .flags import client_options

__all__ = ["channel", "connected", "find_method", "refuse_undescribed", "remote_method"]


@contextmanager
def connected(options: argparse.Namespace, **more: Any) -> Generator[tuple[Any, Description], None, None]:
    """A dynamic client of ``options.url`` and the description of its server; closed at the end. The client of a server
    of gRPC is a :class:`~nearcall.cli.reflected.Reflected`.

    Raises:
        UsageError: the URL or an option is malformed, or the URL is for Connect.
        RpcError: there is no server, or it does not admit this client.
    """
    if not speaks_protobuf(options.url):
        client = _made(nearcall.connect, options, more)
        with client:
            yield client, read_description(client.description)
        return
    if speaks_http(options.url):
        refuse_undescribed(options.url)
    from .reflected import Reflected

    with channel(options, **more) as opened, Reflected(opened) as reflected:
        yield reflected, read_description(reflected.description)


def channel(options: argparse.Namespace, **more: Any) -> Any:
    """A channel to ``options.url``; ``more`` are options of the client that have no flag.

    Raises:
        UsageError: the URL or an option is malformed.
        RpcError: there is no server, or it does not admit this client.
    """
    return _made(nearcall.Channel, options, more)


def _made(make: Any, options: argparse.Namespace, more: dict[str, Any]) -> Any:
    chosen = client_options(options) | more
    try:
        return make(options.url, **chosen)
    except ValueError as error:  # nothing has been called yet, so the command line is wrong
        raise UsageError(str(error)) from error


def refuse_undescribed(url: str) -> None:
    """Refuses URLs of gRPC and Connect, for commands that ask for more than reflection says.

    Raises:
        UsageError: the URL is for gRPC or Connect.
    """
    if speaks_http(url):
        hint = url.replace("http", "grpc", 1)
        raise UsageError(f"{url}: a server does not describe itself over Connect: write {hint} if it has reflection")
    if speaks_protobuf(url):
        raise UsageError(f"{url}: servers tell this only at nearcall's own URLs: give another of its URLs")


def find_method(description: Description, name: str) -> tuple[ServiceInfo, MethodInfo]:
    """The method called ``Service.method``, or just ``method`` if only one service has it; ``Service/Method``, as gRPC
    writes it, is the same.

    Raises:
        UsageError: there is no such method, or more than one.
    """
    methods = {f"{service.name}.{method.name}": (service, method) for _, service, method in description.numbered()}
    service, dot, last = name.replace("/", ".").rpartition(".")
    found: list[str] = []
    for spelled in dict.fromkeys((last, method_name(last) or last)):
        wanted = f"{service}{dot}{spelled}"
        found = [wanted] if wanted in methods else [full for full in methods if f".{full}".endswith(f".{wanted}")]
        if found:
            break
    if len(found) == 1:
        return methods[found[0]]
    if found:
        raise UsageError(f"several services have a method '{name}': write one of {', '.join(found)}")
    # A name with a dot is compared with full names, another one with bare names.
    spellings = {full if "." in name else full.rpartition(".")[2]: full for full in methods}
    close = difflib.get_close_matches(name, spellings, n=1)
    hint = f"did you mean {spellings[close[0]]}?" if close else f"there are {', '.join(methods) or 'none'}"
    raise UsageError(f"the server has no method '{name}': {hint}")


def remote_method(client: Any, service: ServiceInfo, method: MethodInfo) -> Any:
    """The callable that calls a method of a dynamic client."""
    return getattr(getattr(client.service, service.name), method.name)
