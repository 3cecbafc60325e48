"""What the reader and its plugins have in common: its services and its extension points."""

from __future__ import annotations

from typing import Protocol

import nearcall
from nearcall import plugin


@nearcall.service
class Speech(Protocol):
    """Speaks; the permission is called speech."""

    def speak(self, text: str) -> None: ...


@plugin.filter
def spoken_text(text: str, language: str) -> str:
    """What is about to be spoken: plugins may change it."""
    raise NotImplementedError


@plugin.action
def key_pressed(key: str) -> None:
    """A key was pressed."""
    raise NotImplementedError
