"""Names in Python for what a ``.proto`` file declares: as they are there, unless Python has another use for them."""

from __future__ import annotations

import keyword
from collections.abc import Callable, Container, Sequence
from typing import Final

from .names import upper_snake

__all__ = ["attributes", "class_name", "is_class_name", "members"]

_TAKEN: Final = frozenset(
    {"bool", "bytes", "collections", "dataclasses", "datetime", "dict", "enum", "float", "int", "list", "msgspec"}
    | {"nearcall", "self", "str", "typing"}
)
"""Names that annotations need, and that a field or a class of the same name would hide."""
_TAKEN_BY_CODE: Final = _TAKEN | {"ValueError", "sum"}
"""What the methods need as well: only a class hides it from them."""


def attributes(fields: Sequence[str], classes: Container[str]) -> dict[str, str]:
    """The attributes of a message's fields, no two alike.

    Args:
        fields: The fields' names.
        classes: The names of all classes of the module.
    """

    def usable(name: str) -> bool:
        # Python takes names with two underscores for its own, or adds the class's name to them.
        return not (name in _TAKEN or name in classes or keyword.iskeyword(name) or name.startswith("__"))

    return _each(fields, usable, "field")


def members(enum: str, values: Sequence[str]) -> dict[str, str]:
    """The members of an enum, no two alike: without the enum's name, if all values begin with it."""
    prefix = f"{upper_snake(enum)}_"
    short = {value: value.removeprefix(prefix) for value in values}
    if all(value.startswith(prefix) and _is_member(each) for value, each in short.items()):
        return short

    return _each(values, _is_member, "value")


def is_class_name(name: str) -> bool:
    """Whether a class of the module can have this name."""
    return not (name in _TAKEN_BY_CODE or keyword.iskeyword(name) or name.startswith("__"))


def class_name(parts: Sequence[str], package: str, taken: Container[str]) -> str:
    """The name of the class of a message or an enum.

    Args:
        parts: Its name, after those of the messages in which it is declared.
        package: What goes before the name if it is taken.
        taken: Names that other classes have.
    """

    def free(name: str) -> bool:
        return is_class_name(name) and name not in taken

    found = "".join(parts)
    if not free(found) and len(parts) > 1:
        found = "_".join(parts)
    if not free(found):
        before = "" if package.startswith("_") else package
        found = f"{before or 'Type' * found.startswith('_')}{found}"
    while not free(found):
        found += "_"
    return found


def _is_member(name: str) -> bool:
    # Enums keep mro for themselves, and what begins and ends with an underscore.
    reserved = name == "mro" or name.startswith("__") or (name.startswith("_") and name.endswith("_"))
    return name.isidentifier() and not keyword.iskeyword(name) and not reserved


def _each(names: Sequence[str], usable: Callable[[str], bool], before: str) -> dict[str, str]:
    """Names made usable, no two alike. Those that are so already stay as they are."""
    found = {name: name for name in names if usable(name)}
    taken = set(found)
    for name in names:
        if name not in found:
            made = f"{before}{name}" if name.startswith("_") else f"{name}_"
            while made in taken or not usable(made):
                made += "_"
            found[name] = made
            taken.add(made)
    return found
