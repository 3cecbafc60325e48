"""The types of a method that returns what it gets, for tests of a codec by itself."""

from __future__ import annotations

from typing import Any

from nearcall.codec.protocol import MethodTypes, ParameterType
from nearcall.service.values import value_type
from nearcall.types.schema import SchemaBuilder

__all__ = ["echo_types"]


def echo_types(annotation: Any) -> MethodTypes:
    """Those of ``def echo(self, value: annotation) -> annotation``."""
    known = value_type(annotation, SchemaBuilder())
    return MethodTypes("echo", (ParameterType("value", known, True, None),), None, known)
