"""What plugins use of speech.extensions: made from extensions.pyi by 'nearcall plugin shim'. Both sides import it."""

from __future__ import annotations

from nearcall import plugin


@plugin.filter(name="speech.extensions.filter_speechSequence")
def filter_speechSequence(value: list[str]) -> list[str]:
    """The texts that are about to be spoken, one after the other."""
    raise NotImplementedError


POINTS = [filter_speechSequence]
