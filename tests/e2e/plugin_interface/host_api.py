"""The interface of the hosts in the tests: what they and their plugins import."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import nearcall
from nearcall import plugin


@nearcall.service
class Speech(Protocol):
    def speak(self, text: str) -> int: ...
    def words(self, count: int) -> Iterator[str]: ...
    def spoken_by(self, texts: Iterator[str]) -> int: ...
    def back(self, text: str) -> str: ...


@nearcall.service
class More(Protocol):
    def numbers(self, count: int) -> Iterator[int]: ...


@nearcall.service
class Synth(Protocol):
    def render(self, text: str) -> Iterator[bytes]: ...
    def pid(self) -> int: ...
    def buffer(self, size: int) -> memoryview: ...


@plugin.filter
def spoken_text(text: str, language: str = "en") -> str:
    """What is about to be spoken."""


@plugin.action
def key_pressed(key: str) -> None: ...


@plugin.decider
def may_speak(text: str) -> bool: ...


@plugin.accumulating_decider(default=False)
def is_command(text: str) -> bool: ...


@plugin.chain
def menu(limit: int) -> list[str]: ...


POINTS = [spoken_text, key_pressed, may_speak, is_command, menu]
