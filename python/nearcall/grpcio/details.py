"""Converts ``google.rpc.Status``, which grpcio's users read and write as bytes, to and from the details of nearcall's
errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Annotated, Any, cast

import msgspec

from ..codec.protobuf.descriptor import codec_of
from ..errors import RpcError
from ..types.guards import is_dict, is_list
from ..types.numbers import field

__all__ = ["DETAILS", "details_of", "status_of"]

DETAILS = "grpc-status-details-bin"
"""The key of the metadata that carries it."""
_MOST_VALUES = 10_000


@cache
def _codec() -> Any:
    """Made once, when it is first needed."""
    return codec_of(_Status)


class _Any(msgspec.Struct):
    type_url: Annotated[str, field(1)] = ""
    value: Annotated[bytes, field(2)] = b""


class _Status(msgspec.Struct):
    code: Annotated[int, field(1, type="int32")] = 0
    message: Annotated[str, field(2)] = ""
    details: Annotated[list[_Any], field(3)] = []


def details_of(encoded: bytes) -> list[dict[str, Any]] | None:
    """The details in an encoded status, as :class:`nearcall.RpcError` has them; ``None`` if the status has none.

    Raises:
        ValueError: ``encoded`` is no status.
    """
    try:
        status = _codec().decode(encoded, _MOST_VALUES)
    except Exception as problem:
        raise ValueError(f"the metadata {DETAILS} is no google.rpc.Status: {problem}") from None
    return [{"type": each.type_url, "value": each.value} for each in status.details] or None


def status_of(error: RpcError) -> bytes | None:
    """The status of an error that arrived, encoded; ``None`` if the error has no details of that kind."""
    messages = list(_messages(error.details))
    if not messages or len(messages) != len(error.details):
        return None
    return bytes(_codec().encode(_Status(int(error.code), error.message, messages)))


def _messages(details: Any) -> Iterator[_Any]:
    for each in cast("Iterable[Any]", details) if is_list(details) else ():
        if is_dict(each) and isinstance(each.get("type"), str) and isinstance(each.get("value"), bytes):
            yield _Any(each["type"], each["value"])
