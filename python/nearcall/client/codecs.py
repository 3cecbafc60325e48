"""The option ``codec`` of clients."""

from __future__ import annotations

from typing import Literal, TypeAlias

from ..call.codecs import chosen_codec
from ..codec.protocol import Codec
from ..codec.table import CodecName
from ..codec.values import ValueCodec
from ..errors import InvalidArgument
from ..options.checked import with_option
from ..options.schemes import speaks_http, speaks_protobuf

__all__ = ["ClientCodec", "check_codec"]

ClientCodec: TypeAlias = "Literal['protobuf'] | CodecName | ValueCodec"
"""How clients write messages; at ``http://`` in Protobuf or JSON."""


def check_codec(url: str, codec: ClientCodec | None) -> Codec | None:
    """The codec of a client; ``None`` is msgpack, in which both sides describe what they serve and call.

    Raises:
        InvalidArgument: there is no such codec.
        TypeError: it is no codec.
        ValueError: the URL leaves no choice.
    """
    if not speaks_protobuf(url):
        found = None if codec is None else chosen_codec("codec", codec)
        return None if found is None or found.name == "msgpack" else found
    if codec not in (None, "protobuf", "json"):
        raise with_option(InvalidArgument(f'codec must be "protobuf" or "json", not {codec!r}'), "codec")
    if codec != "json":
        from ..codec.protobuf.service import Protobuf  # only where it is needed

        return Protobuf()
    if not speaks_http(url):
        raise with_option(
            ValueError(f"codec is for http:// URLs and nearcall's own: at {url} there is no choice"), "codec"
        )
    from ..codec.protobuf.json import Json

    return Json()
