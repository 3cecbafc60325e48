"""Helpers for commands that connect: a client without a class, and finding a method by its name."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any, cast

import nearcall

from ..options.schemes import speaks_http, speaks_protobuf
from ..service.description import Description, MethodInfo, ServiceInfo
from ..service.reading import read_description
from . import UsageError
from .flags import client_options

__all__ = ["connect", "connected", "find_method", "refuse_undescribed", "remote_method"]


@contextmanager
def connected(options: argparse.Namespace, **more: Any) -> Generator[tuple[Any, Description], None, None]:
    """A dynamic client of ``options.url`` and the description of its server; closed at the end."""
    client = connect(options, **more)
    with client:
        yield client, read_description(client.description)


def connect(options: argparse.Namespace, **more: Any) -> Any:
    """A dynamic client of ``options.url``; ``more`` are options of the client that have no flag.

    Raises:
        UsageError: the URL or an option is malformed, or the URL is for gRPC or Connect.
        RpcError: there is no server, or it does not admit this client.
    """
    refuse_undescribed(options.url)
    chosen = client_options(options) | more
    try:
        return cast(Any, nearcall).connect(options.url, **chosen)
    except ValueError as error:  # nothing has been called yet, so the command line is wrong
        raise UsageError(str(error)) from error


def refuse_undescribed(url: str) -> None:
    """Refuses URLs at which servers do not describe themselves, for commands that need the description.

    Raises:
        UsageError: the URL is for gRPC or Connect.
    """
    if speaks_protobuf(url):
        how = "Connect" if speaks_http(url) else "gRPC"
        raise UsageError(f"{url}: a server does not describe itself over {how}: give another of its URLs")


def find_method(description: Description, name: str) -> tuple[ServiceInfo, MethodInfo]:
    """The method called ``Service.method``, or just ``method`` if only one service has it.

    Raises:
        UsageError: there is no such method, or more than one.
    """
    methods = {f"{service.name}.{method.name}": (service, method) for _, service, method in description.numbered()}
    found = [full for full in methods if full == name or full.rpartition(".")[2] == name]
    if name in methods:
        found = [name]
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
