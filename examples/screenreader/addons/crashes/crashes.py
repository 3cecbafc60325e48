"""A filter that takes its process with it."""

from __future__ import annotations

import ctypes
import itertools

from speech_extensions_api import filter_speechSequence

calls = itertools.count(1)


@filter_speechSequence.handler
def read(value: list[str]) -> list[str]:
    if next(calls) == 2:
        print("reading address 0")
        ctypes.string_at(0)
    return value
