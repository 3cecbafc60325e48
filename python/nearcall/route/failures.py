"""How a node tells a caller that no reply will come, because the handler has failed or there is none."""

from __future__ import annotations

from typing import Final, TypeVar

import msgspec

from .. import _core
from ..codec.statuses import describe_error, make_error
from ..errors import Unknown
from .rmr import is_rmr

__all__ = ["FAILURE", "encoded", "hears_of_failures", "reply_or_raise"]

FAILURE: Final = 99
"""The type of such a message. It gets to who waits for a reply, and to nobody else."""

M = TypeVar("M", bound="_core.RouteMessage[object]")


class _Status(msgspec.Struct, frozen=True, array_like=True):
    """The payload, in msgpack."""

    code: int
    message: str
    details: bytes = b""


_decoder: Final = msgspec.msgpack.Decoder(_Status)


def hears_of_failures(message: _core.RouteMessage[object]) -> bool:
    """Whether the sender of a message may wait for a reply, and would understand that none will come: programs of RMR
    would not.
    """
    return bool(message.transaction and message.address) and not is_rmr(message.address)


def encoded(error: BaseException) -> bytes:
    """The payload that tells of an exception."""
    return msgspec.msgpack.encode(_Status(*describe_error(error)))


def reply_or_raise(reply: M) -> M:
    """A reply to a call.

    Raises:
        RpcError: it says that the handler has failed.
    """
    if reply.type != FAILURE:
        return reply
    try:
        status = _decoder.decode(reply.payload)
    except msgspec.MsgspecError as problem:
        raise Unknown(f"{reply.source} has failed, and how cannot be read: {problem}") from None
    raise make_error(status.code, status.message, status.details)
