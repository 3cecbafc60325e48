"""The codec that an option names, at clients and servers alike."""

from __future__ import annotations

from ..codec.protocol import Codec
from ..codec.table import codec_of
from ..errors import InvalidArgument
from ..options.checked import with_option

__all__ = ["chosen_codec"]


def chosen_codec(option: str, codec: object) -> Codec:
    """The codec of an option.

    Raises:
        InvalidArgument: there is none of that name.
        TypeError: it is no codec.
    """
    try:
        return codec_of(codec)
    except TypeError as error:
        raise with_option(TypeError(f"{option} {error}"), option) from None
    except ValueError as error:
        raise with_option(InvalidArgument(f"{option} {error}"), option) from None
