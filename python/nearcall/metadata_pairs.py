"""Metadata that came from the other side: keys and values beside a call, in order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeAlias

__all__ = ["Metadata", "MetadataPairs"]

MetadataPairs: TypeAlias = "list[tuple[str, bytes]]"
"""Metadata as it is sent: values are bytes."""


class Metadata(Mapping[str, "str | bytes"]):
    """Keys and values that travel beside a call, in order. A key may come more than once.

    As in gRPC, keys are lower case, and values are text unless the key ends in ``-bin``: then they are bytes.
    """

    __slots__ = ("_pairs",)

    def __init__(self, pairs: MetadataPairs = []) -> None:  # noqa: B006 - never changed
        self._pairs = pairs

    def __getitem__(self, key: str) -> str | bytes:
        for name, value in self._pairs:
            if name == key:
                return _decoded(name, value)
        raise KeyError(key)

    def getall(self, key: str) -> list[str | bytes]:
        """Every value of a key, in order."""
        return [_decoded(name, value) for name, value in self._pairs if name == key]

    def pairs(self) -> list[tuple[str, str | bytes]]:
        """Every key and value, in order."""
        return [(name, _decoded(name, value)) for name, value in self._pairs]

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for name, _ in self._pairs))

    def __len__(self) -> int:
        return len({name for name, _ in self._pairs})

    def __repr__(self) -> str:
        return f"Metadata({self.pairs()!r})"


def _decoded(key: str, value: bytes) -> str | bytes:
    return value if key.endswith("-bin") else value.decode("utf-8", "replace")
