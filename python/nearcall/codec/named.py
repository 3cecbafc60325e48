"""Arguments by name, as one type."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import msgspec

from .protocol import ParameterType

__all__ = ["arguments_type"]


def arguments_type(parameters: Sequence[ParameterType]) -> type[msgspec.Struct]:
    """A class whose fields are the parameters in their order, with the defaults of the signature."""
    fields: list[Any] = []
    for number, parameter in enumerate(parameters):
        # A factory, so that the handler gets the very object in its signature, as in Python.
        default: Any = {} if parameter.required else {"default_factory": partial(_same, parameter.default)}
        field = msgspec.field(name=parameter.name, **default)
        fields.append((f"p{number}", parameter.type.annotation, field))
    return msgspec.defstruct("Arguments", fields, kw_only=True, forbid_unknown_fields=True)


def _same(value: Any) -> Any:
    return value
