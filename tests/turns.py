"""Slow tests take turns over the transports: each over shared memory and over one other, which its name decides.

``make test-transports`` runs them over each, and some of them longer.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from zlib import crc32

import pytest

IS_WHOLE = os.environ.get("NEARCALL_TRANSPORTS") == "all"
"""Every test runs over each transport, and the slow ones in their long form."""
_NAMES = ("shm", "unix", "tcp", "tls", "nats", "inproc", "grpc", "http")
_TRANSPORT = re.compile(rf"(?<=[\[-])({'|'.join(_NAMES)})(?=[\]-])")


def take_turns(items: list[pytest.Item]) -> list[pytest.Item]:
    """What is not run: of the tests that are marked as slow, all but two transports."""
    if IS_WHOLE:
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


def examples(most: int) -> int:
    """How many examples hypothesis makes up for a slow test: a third, and all in the long form."""
    return most if IS_WHOLE else most // 3
