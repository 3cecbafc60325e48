"""A filter that does not come back."""

from __future__ import annotations

import itertools
import time

from speech_extensions_api import filter_speechSequence

calls = itertools.count(1)


@filter_speechSequence.handler
def think(value: list[str]) -> list[str]:
    if next(calls) == 3:
        print("thinking")
        time.sleep(3600)
    return value
