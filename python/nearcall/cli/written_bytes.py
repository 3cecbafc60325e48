"""Bytes on the command line."""

from __future__ import annotations

import base64
import binascii
from typing import Any

from ..types.guards import is_dict

__all__ = ["to_bytes"]


def to_bytes(value: Any) -> Any:
    """The bytes for a value of JSON; another value as it is.

    Raises:
        ValueError: a base64 text is malformed.
    """
    if isinstance(value, str):
        return value.encode()
    if is_dict(value):
        given = value
        if given.keys() == {"base64"} and isinstance(given["base64"], str):
            try:
                return base64.b64decode(given["base64"], validate=True)
            except binascii.Error as error:
                raise ValueError(f"malformed base64: {error}") from None
    return value
