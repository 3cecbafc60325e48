"""Describes a message: how a ``.proto`` declares it, and what it becomes in Python.

The compiled codec reads these objects once, by the names of their attributes
(``crates/python/src/values/protobuf/plan.rs``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from ..._core import memory_of
from ..weights import object_weight
from .names import json_name

__all__ = ["REQUIRED", "ZERO", "Element", "EnumType", "Field", "Message", "own_doc"]

Absent = tuple[str, Any]
"""What the absence of a field means: ``("zero", None)``, ``("value", v)``, ``("factory", f)``, ``("omit", None)`` or
``("required", None)``.
"""

ZERO: Final[Absent] = ("zero", None)
REQUIRED: Final[Absent] = ("required", None)

_ZERO: Final = memory_of("number")
"""The memory of a float."""
_DICT: Final = memory_of("dict", 1)
_ENTRY: Final = 56
"""The memory of a dict of one key, and what each key adds at most, however many there are."""


class EnumType(msgspec.Struct, eq=False):
    """An enum: its values' names and numbers, in order."""

    name: str
    values: list[tuple[str, int]]
    members: dict[int, Any]
    """Python's members, by their numbers."""
    doc: str | None = None

    @property
    def member_names(self) -> list[tuple[int, str, str]]:
        """Each number with Protobuf's name and Python's; a zero that Python lacks has only the first."""
        members = self.members
        return [(number, name, members[number].name if number in members else name) for name, number in self.values]


class Element(msgspec.Struct, eq=False):
    """One value of a field."""

    kind: str | int | dict[int, Any]
    """A scalar's name, ``"timestamp"``, ``"duration"``, ``"any"``, the place of a message, or an enum's members."""
    name: str
    """The Python type, for people."""
    proto: str
    """The type as a ``.proto`` names it."""
    accepts: tuple[type, ...] = ()
    """The classes of its values."""
    to: Callable[[Any], Any] | None = None
    from_: Callable[[Any], Any] | None = None
    check: Callable[[Any], Any] | None = None
    from_list: Callable[[list[Any]], Any] | None = None
    """Makes the value from lists of numbers, which JSON may have in place of the message."""
    member_names: list[tuple[int, str, str]] = []
    """If it is an enum: each number with Protobuf's name and Python's."""
    open_class: Any = None
    """The class of an enum that makes members for other numbers, too."""
    note: str | None = None
    """A comment for readers of the ``.proto``."""
    limits: dict[str, Any] = {}
    """Limits of its values, as :class:`msgspec.Meta` calls them; ``check`` sees to them."""
    values: tuple[Any, ...] = ()
    """The only values that there are, if it is a ``Literal``."""

    @property
    def is_message(self) -> bool:
        """Whether Protobuf tells an absent value from a zero without ``optional``."""
        return isinstance(self.kind, int) or self.kind in ("timestamp", "duration", "any")


class Field(msgspec.Struct, eq=False):
    """A field of a message."""

    number: int
    name: str
    """The attribute, item or parameter."""
    proto_name: str
    shape: str
    """``"implicit"``, ``"presence"``, ``"list"``, ``"tuple"``, ``"set"``, ``"frozenset"`` or ``"map"``."""
    element: Element
    key: Element | None = None
    absent: Absent = ZERO
    required: bool = False
    """Python has no default for it, whatever its absence means in Protobuf."""
    left_out: list[Any] = []
    """The values that are sent by leaving the field out."""
    check: Callable[[Any], Any] | None = None
    accepts: tuple[type, ...] = ()
    limits: dict[str, int] = {}
    """The limits of how many it holds, as :class:`msgspec.Meta` calls them; ``check`` sees to them."""
    own_json_name: str | None = None
    """Its name in JSON, if that is declared."""

    @property
    def json_name(self) -> str:
        """``"findAll"`` of ``find_all``."""
        return self.own_json_name or json_name(self.proto_name)

    @property
    def declared(self) -> str:
        """``repeated int64 values = 3;``"""
        kind = self.element.proto
        if self.key is not None:
            kind = f"map<{self.key.proto}, {kind}>"
        elif self.shape in ("list", "tuple", "set", "frozenset"):
            kind = f"repeated {kind}"
        elif self.shape == "presence" and not self.element.is_message:
            kind = f"optional {kind}"
        return f"{kind} {self.proto_name} = {self.number};"


class Message(msgspec.Struct, eq=False):
    """A message."""

    proto_name: str
    """Empty for a message that only reads or writes some of the fields of another one."""
    name: str
    """The Python type, for people."""
    form: str
    """``"object"``, ``"call"``, ``"tuple"``, ``"dict"``, ``"arguments"``, ``"only"``, ``"oneof"`` or
    ``"nothing"``."""
    fields: list[Field] = []
    cls: Any = None
    make: Callable[..., Any] | None = None
    """Makes a value of the fields' values, where the class itself would change them or run code."""
    check: Callable[[Any], object] | None = None
    """Lets the class look at a value that has arrived; raises what the class raises. It may change what it looks at."""
    look: Callable[[Any], object] | None = None
    """Raises :class:`TypeError` if a value holds something that would not be sent."""
    doc: str | None = None
    in_json: tuple[Callable[[Any], Any], Callable[[Any], Any]] | Literal["value"] | None = None
    """If JSON has it in a form of its own: what is written of a value, and back; or that it is its only field."""

    @property
    def weight(self) -> int:
        """What a value takes in memory, apart from those of its fields that are present."""
        zeros = sum(
            _ZERO for field in self.fields if field.absent == ZERO and field.element.kind in ("float", "double")
        )
        if self.form in ("object", "call"):
            return zeros + object_weight(self.cls, len(self.fields))
        if self.form == "dict":
            return zeros + _DICT + _ENTRY * len(self.fields)
        if self.form in ("tuple", "arguments"):
            return zeros + object_weight(self.cls or tuple, len(self.fields))
        return zeros

    @property
    def oneof(self) -> str:
        """The name of the ``oneof`` that its fields are in, which no field has."""
        taken = {field.proto_name for field in self.fields}
        return next(name for name in ("value", "choice", "one_of") if name not in taken)

    def same_as(self, other: Message) -> bool:
        """Whether a ``.proto`` declares both messages alike."""
        oneof = (self.form == "oneof") == (other.form == "oneof")
        return oneof and [field.declared for field in self.fields] == [field.declared for field in other.fields]


def own_doc(cls: Any) -> str | None:
    """The docstring that somebody has written for a class."""
    doc = cls.__dict__.get("__doc__")
    # Without a docstring, a dataclass gets its signature as docstring, and an enum a general sentence.
    if not doc or doc.startswith(f"{cls.__name__}(") or doc == "An enumeration.":
        return None
    import inspect

    return inspect.cleandoc(doc)
