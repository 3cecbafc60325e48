"""The codecs of nearcall's own URLs, by the names on which clients and servers agree: a new one is one line.

What they carry has names, those of arguments and of fields: two sides that declare these in another order understand
each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Literal, TypeAlias, cast

from .protocol import Codec
from .values import ValueCodec

__all__ = ["CODECS", "CodecName", "codec_of"]

_LONGEST_NAME: Final = 100
"""Characters of a codec's name."""

CodecName: TypeAlias = Literal["msgpack", "json"]
"""The codecs that come with nearcall."""


def _msgpack() -> Codec:
    from .msgpack.service import Msgpack

    return Msgpack()


def _json() -> Codec:
    from .protobuf.json import Json

    # Both sides know each other's declarations: what is not known, or missing, is a mistake.
    return Json(strict=True)


CODECS: Final[Mapping[str, Callable[[], Codec]]] = {"msgpack": _msgpack, "json": _json}
"""Each is imported where it is needed."""


def codec_of(codec: object) -> Codec:
    """The codec that a user means.

    Args:
        codec: A name of the table, or a :class:`ValueCodec`.

    Raises:
        TypeError: it is neither; the message goes on after the name of an option.
        ValueError: there is none of that name, or its name is another one's.
    """
    if isinstance(codec, str):
        if codec not in CODECS:
            known = " or ".join(f'"{name}"' for name in CODECS)
            raise ValueError(f"must be {known}, or a codec of yours, not {codec!r}")
        return CODECS[codec]()
    if isinstance(codec, type):
        raise TypeError(f"takes an object, not a class: write {codec.__name__}()")
    own = cast(ValueCodec, codec)
    if not (callable(getattr(own, "encode", None)) and callable(getattr(own, "decode", None))):
        raise TypeError(f"takes a name, or an object with encode() and decode(), not {codec!r}")
    name: object = getattr(own, "name", None)
    if not isinstance(name, str) or not name or not name.isprintable() or name in CODECS:
        raise ValueError(f"takes codecs with a name of their own in the attribute 'name': that of {own!r} is {name!r}")
    if len(name) > _LONGEST_NAME:
        raise ValueError(f"takes codecs with names of 1 to {_LONGEST_NAME} characters: that of {own!r} has {len(name)}")
    from .of_values import OfValues

    return OfValues(own)
