"""Names in the form that Protobuf's style guide asks for."""

from __future__ import annotations

import keyword
import re
from typing import Final

from ..inspection import UnsupportedTypeError

__all__ = ["VALUE_NAMES", "camel_case", "check_name", "json_name", "method_name", "title", "upper_snake", "value_name"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_OTHER = re.compile(r"[^A-Za-z0-9_]+")

VALUE_NAMES: Final = "__protobuf_names__"
"""The attribute of an enum that says its values' names by number, where they are not made of its members' names."""


def camel_case(name: str) -> str:
    """``"scale_all"`` becomes ``"ScaleAll"``: a method's name."""
    return "".join(part[:1].upper() + part[1:] for part in name.split("_")) or name


def method_name(name: str) -> str | None:
    """``"get_feature"`` of ``"GetFeature"``; ``None`` if :func:`camel_case` makes this name of no Python name."""
    mixed = _BOUNDARY.sub("_", name)
    for each in (mixed.lower(), mixed, name):
        if camel_case(each) == name and not keyword.iskeyword(each) and not each.startswith("_"):
            return each
    return None


def upper_snake(name: str) -> str:
    """``"HttpMethod"`` becomes ``"HTTP_METHOD"``: the prefix of an enum's values."""
    return _BOUNDARY.sub("_", name).upper()


def value_name(enum: str, member: str) -> str:
    """The name of an enum's value, made of Python's: ``"SIZE_LARGE"`` of ``Size.LARGE``."""
    return f"{upper_snake(title(enum))}_{member.upper()}"


def title(name: str) -> str:
    """A message's name, made of a type's: ``"Box[int]"`` becomes ``"BoxInt"``, and ``"int64"`` ``"Int64"``."""
    return "".join(part[:1].upper() + part[1:] for part in _OTHER.split(name))


def json_name(name: str) -> str:
    """The name of a field in JSON. Two fields of a message must not have the same."""
    first, *others = name.split("_")
    return first + "".join(part[:1].upper() + part[1:] for part in others)


def check_name(name: str, what: str) -> str:
    """The name itself.

    Raises:
        UnsupportedTypeError: Protobuf does not allow this name.
    """
    if not _NAME.fullmatch(name):
        raise UnsupportedTypeError(f"{what} is called '{name}', and Protobuf allows ASCII letters, digits and _ only")
    return name
