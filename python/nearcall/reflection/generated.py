"""The files of services whose messages protoc has generated: google.protobuf has them, if the program uses it."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["generated_files"]


def generated_files(service: str) -> Iterator[tuple[str, bytes]]:
    """The file that declares a service, and all that it imports: the name of each, and its encoded descriptor as protoc
    made it.

    Nothing if no generated module has declared the service here. This imports nothing itself.
    """
    pools: Any = sys.modules.get("google.protobuf.descriptor_pool")
    if pools is None:
        return
    try:
        waiting = [pools.Default().FindServiceByName(service).file]
    except KeyError:
        return
    seen: set[str] = set()
    while waiting:
        file = waiting.pop(0)
        if file.name not in seen:
            seen.add(file.name)
            yield file.name, file.serialized_pb
            waiting += file.dependencies
