"""A block that sets how calls compress what they send, in place of their channel's option."""

from __future__ import annotations

from typing import cast

from ..options.common import Compression, check_encoding
from .block import Block
from .variables import current_compression

__all__ = ["compression"]


class compression(Block["compression"]):  # noqa: N801 - reads as a word: with nearcall.compression("gzip")
    """Sets how every call inside the block compresses what it sends over gRPC and HTTP, whatever its channel's option
    ``compression`` says. Over other transports nothing is compressed, and the block has no effect.

    Blocks nest; the nearest one counts. The server must be able to decompress: gRPC's and Connect's read gzip. Works in
    threads and in tasks alike, for single messages and for streams::

        with nearcall.compression("gzip"):
            archive.store(document)

    To choose message by message, bind the block with ``as``, and set :attr:`compress`.

    Args:
        encoding: ``"gzip"``, ``"zstd"``, or ``None`` for calls that compress nothing.

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
        """The compression, as given."""
        return self._encoding

    @property
    def compress(self) -> bool | None:
        """Whether the messages that are sent from now on are compressed; in a call that sends a stream, the items that
        its iterator yields from now on. ``None``, the initial value: those of 1 KiB and more that become shorter.
        ``True``: all, also those that become longer. ``False``: none. A call by GET is never compressed.

        All calls inside the block share this value: give a call whose messages you choose one by one a block of its
        own.

        Raises:
            TypeError: the value is none of these.
            ValueError: the value is ``True``, and the block compresses nothing.
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
