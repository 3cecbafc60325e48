"""Makes enums of Protobuf of Python's."""

from __future__ import annotations

import enum
from typing import Final

from ..inspection import UnsupportedTypeError
from .messages import EnumType, own_doc
from .names import VALUE_NAMES, check_name, title, upper_snake, value_name

__all__ = ["enum_type", "is_open"]

_INT32: Final = range(-(1 << 31), 1 << 31)


def is_open(cls: type[enum.Enum]) -> bool:
    """Whether the enum itself makes members for values that it does not declare."""
    return cls._missing_.__func__ is not enum.Enum._missing_.__func__  # type: ignore[attr-defined]


def enum_type(cls: type[enum.Enum]) -> EnumType:
    """The enum of a class.

    Raises:
        UnsupportedTypeError: Protobuf has none like it.
    """
    name = check_name(title(cls.__name__), "an enum")
    if issubclass(cls, enum.Flag):
        raise UnsupportedTypeError(f"{name} is a Flag, and Protobuf's enums cannot be combined: send its value as int")
    members = list(cls)
    numbers = [member.value for member in members]
    if not all(isinstance(number, int) and number in _INT32 for number in numbers):
        if any(isinstance(number, int) for number in numbers):
            raise UnsupportedTypeError(f"the values of {name} are not all ints of 32 bits: make them texts, or smaller")
        # Texts have no numbers: members are numbered by their places, and 0 stands for a value that is not set.
        numbers = list(range(1, len(members) + 1))
    prefix = upper_snake(name)
    own: dict[int, str] = vars(cls).get(VALUE_NAMES, {})
    values = [
        (check_name(own.get(number, value_name(name, member.name)), f"a member of {name}"), number)
        for member, number in zip(members, numbers, strict=True)
    ]
    names = [each for each, _ in values]
    if len(set(names)) < len(names):
        raise UnsupportedTypeError(f"two members of {name} differ in upper and lower case only")
    if 0 in numbers:
        values.sort(key=lambda value: value[1] != 0)  # Protobuf wants the zero first
    else:
        values.insert(0, (f"{prefix}_UNSPECIFIED", 0))
        if f"{prefix}_UNSPECIFIED" in names:
            raise UnsupportedTypeError(f"{name}.UNSPECIFIED must be 0, which stands for it in Protobuf")
    return EnumType(name, values, dict(zip(numbers, members, strict=True)), own_doc(cls))
