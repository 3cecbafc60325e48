"""Metadata: keys and values beside a call, and a block that sends them with every call inside it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias, cast, overload

from ..metadata_pairs import Metadata, MetadataPairs
from .block import Block
from .variables import current_metadata

__all__ = [
    "MetadataItems",
    "MetadataPair",
    "encode_metadata",
    "metadata",
]

MetadataItems: TypeAlias = "Mapping[str, str | bytes] | Iterable[tuple[str, str | bytes]]"
"""Metadata as given: a mapping, or pairs if a key comes more than once."""

MetadataPair: TypeAlias = "tuple[str, str | bytes]"
"""One key and value. Functions have an overload for mappings and one for pairs: with the union of both, mypy finds no
type for ``{"a": "b", "c-bin": b"d"}``.
"""

_KEY = re.compile(r"[0-9a-z_.\-]+")


class metadata(Block["metadata"]):  # noqa: N801 - reads as a word: with nearcall.metadata(...)
    """Sends metadata with every call inside the block, and keeps what the server sent with the last one.

    Blocks nest: the inner one's pairs come after the outer one's. ::

        with nearcall.metadata({"trace-id": "7"}) as meta:
            calc.add(1, 2)
        meta.trailing.get("cost")

    Args:
        items: A mapping, or pairs. Keys are lower-case letters, digits, ``-``, ``_`` and ``.``; values are ``str``, or
            ``bytes`` for a key that ends in ``-bin``.

    Raises:
        ValueError: a key or a value is malformed.
    """

    _variable = current_metadata

    @overload
    def __init__(self, items: Mapping[str, str | bytes]) -> None: ...
    @overload
    def __init__(self, items: Iterable[MetadataPair] = ()) -> None: ...
    def __init__(self, items: MetadataItems = ()) -> None:
        if isinstance(cast("object", items), (str, bytes)):
            raise TypeError(f"metadata is a dict such as {{'user': 'ada'}}, or pairs, not {items!r}")
        super().__init__()
        self._own = encode_metadata(items)
        self.pairs: MetadataPairs = self._own
        """The metadata to send, with that of the outer blocks."""
        self.initial = Metadata()
        """The metadata that the server sent ahead of the last call's result."""
        self.trailing = Metadata()
        """The metadata that the server sent with the end of the last call."""

    def received(self, initial: bool, pairs: MetadataPairs) -> None:
        """Called by the core with metadata that the server sent."""
        if initial:
            self.initial = Metadata(pairs)
        else:
            self.trailing = Metadata(pairs)

    def _inside(self, outer: metadata | None) -> metadata:
        self.pairs = self._own if outer is None else outer.pairs + self._own
        return self


def encode_metadata(items: MetadataItems) -> MetadataPairs:
    """Metadata as it is sent: values are bytes.

    Raises:
        ValueError: a key or a value is malformed.
    """
    pairs = cast("Mapping[str, str | bytes]", items).items() if isinstance(items, Mapping) else items
    return [(key, _encoded(key, value)) for key, value in pairs]


def _encoded(key: str, value: str | bytes) -> bytes:
    if not _KEY.fullmatch(key):
        raise ValueError(f"'{key}' is no metadata key: write lower-case letters, digits, '-', '_' and '.'")
    if key.endswith("-bin"):
        if not isinstance(value, bytes):
            raise ValueError(f"the value of metadata '{key}' must be bytes, because the key ends in -bin")
        return value
    if not isinstance(value, str):
        raise ValueError(f"the value of metadata '{key}' must be str; for bytes, let the key end in -bin")
    return value.encode()
