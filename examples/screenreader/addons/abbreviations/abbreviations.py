"""A filter of what is spoken."""

from __future__ import annotations

import re

from speech_extensions_api import filter_speechSequence

LONG = {"e.g.": "for example", "i.e.": "that is", "approx.": "approximately", "Mr.": "Mister", "km": "kilometres"}
FOUND = re.compile("|".join(rf"(?<!\w){re.escape(short)}(?!\w)" for short in LONG))


@filter_speechSequence.handler(priority=10)
def in_full(value: list[str]) -> list[str]:
    return [FOUND.sub(lambda found: LONG[found[0]], text) for text in value]
