"""The service of a confined process, and what it calls back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

import nearcall

__all__ = ["Listener", "Work"]


@nearcall.service
class Listener(Protocol):
    def heard(self, text: str) -> int: ...


@nearcall.service
class Work:
    """What a plugin does."""

    def add(self, a: int, b: int) -> int:
        return a + b

    def echo(self, data: bytes) -> bytes:
        return data

    def double(self, array: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
        return array * 2

    def count(self, most: int) -> Iterator[int]:
        yield from range(most)

    async def slowly(self, text: str) -> str:
        import asyncio

        await asyncio.sleep(0.001)
        return text

    def tell(self, listener: Listener, text: str) -> int:
        return listener.heard(text)

    def read(self, path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()
