"""How calls compress what they send: a block that says so, in the place of their channel's option."""

from __future__ import annotations

from typing import cast

from ..options.common import Compression, check_encoding
from .block import Block
from .variables import current_compression

__all__ = ["compression"]


class compression(Block["compression"]):  # noqa: N801 - reads as a word: with nearcall.compression("gzip")
    """Says how every call inside the block compresses what it sends over gRPC and HTTP, whatever its channel's option
    ``compression`` says. Elsewhere nothing is compressed, and this says nothing.

    Blocks nest; the nearest one counts. The server must be able to read it: gRPC's and Connect's read gzip. Works in
    threads and in tasks alike, for single messages and for streams::

        with nearcall.compression("gzip"):
            archive.store(document)

    What the block is bound to chooses for single messages: see :attr:`compress`.

    Args:
        encoding: ``"gzip"``, ``"zstd"``, or ``None`` for calls whose messages all go as they are.

    Raises:
        InvalidArgument: there is no such compression.
    """

    __slots__ = ("_compress", "_encoding")
    _variable = current_compression

    def __init__(self, encoding: Compression | None) -> None:
        super().__init__()
        self._encoding: Compression | None = check_encoding("nearcall.compression", encoding)
        self._compress: bool | None = None

    @property
    def encoding(self) -> Compression | None:
        """What compresses."""
        return self._encoding

    @property
    def compress(self) -> bool | None:
        """Whether the messages that are sent from here on are compressed: of a call that sends a stream, what its
        iterator yields next. ``None``, as it is at first: those of 1 KiB and more. ``True``: short ones as well.
        ``False``: none. What would become longer never is.

        The calls inside the block share it: one whose messages are chosen singly takes a block of its own.

        Raises:
            TypeError: it is set to something else.
            ValueError: it is set to ``True`` in a block that compresses nothing.
        """
        return self._compress

    @compress.setter
    def compress(self, compress: bool | None) -> None:
        if compress is not None and not isinstance(cast(object, compress), bool):
            raise TypeError(f"compress must be True, False or None, not {compress!r}")
        if compress and self._encoding is None:
            raise ValueError('this block compresses nothing: make it with nearcall.compression("gzip") or ("zstd")')
        self._compress = compress

    def _inside(self, outer: compression | None) -> compression:
        return self
