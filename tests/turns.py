"""Slow tests take turns over the transports: each over shared memory and over one other, which its name decides."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from zlib import crc32

import pytest

WHOLE = "NEARCALL_TRANSPORTS"
"""With ``all`` in this variable every test runs over each transport."""
_NAMES = ("shm", "unix", "tcp", "tls", "nats", "inproc", "grpc", "http")
_TRANSPORT = re.compile(rf"(?<=[\[-])({'|'.join(_NAMES)})(?=[\]-])")


def take_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """What is not run: of the tests that are marked as slow, all but two transports."""
    if os.environ.get(WHOLE) == "all":
        return []
    groups = defaultdict[str, dict[str, pytest.Item]](dict)
    for item in items:
        transport = _TRANSPORT.search(item.nodeid)
        if transport and item.get_closest_marker("slow"):
            groups[_TRANSPORT.sub("*", item.nodeid, count=1)][transport[0]] = item
    left = []
    for test, ways in groups.items():
        others = [name for name in ways if name != "shm"]
        kept = {"shm", others[crc32(test.encode()) % len(others)] if others else ""}
        left += [item for name, item in ways.items() if name not in kept]
    return left
