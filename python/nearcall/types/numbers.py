"""``nearcall.field``: what a type hint alone cannot say of a Protobuf field."""

from __future__ import annotations

import re
from types import NoneType
from typing import Annotated, Any, Final, get_args, get_origin

import msgspec

from .hints import UNION_ORIGINS, opened

__all__ = ["FieldOptions", "field", "field_options", "is_field_number", "is_json_name"]

INTEGERS: Final = frozenset(
    {"int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32", "sfixed64"}
)
FLOATS: Final = frozenset({"float", "double"})
_GREATEST: Final = (1 << 29) - 1
_RESERVED: Final = range(19_000, 20_000)
_JSON_NAME: Final = re.compile(r"[A-Za-z0-9_.$@:/-]{1,200}")

_NO_VALUES: Final = (NoneType, msgspec.UnsetType)


def is_field_number(number: int) -> bool:
    """Whether a field of Protobuf can have the number."""
    return 1 <= number <= _GREATEST and number not in _RESERVED


class FieldOptions:
    """The arguments of :func:`field`."""

    __slots__ = ("implicit", "json_name", "number", "type")

    def __init__(
        self,
        number: int | None = None,
        type: str | None = None,
        implicit: bool = False,
        json_name: str | None = None,
    ) -> None:
        self.number = number
        self.type = type
        self.implicit = implicit
        self.json_name = json_name

    def __repr__(self) -> str:
        more = ", implicit=True" if self.implicit else ""
        more += "" if self.json_name is None else f", json_name={self.json_name!r}"
        return f"nearcall.field({self.number!r}, type={self.type!r}{more})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FieldOptions) and self._all() == other._all()

    def __hash__(self) -> int:
        return hash(self._all())

    def around(self, inner: FieldOptions) -> FieldOptions:
        """These options, and where they say nothing, those of what they are written around."""
        return FieldOptions(
            inner.number if self.number is None else self.number,
            inner.type if self.type is None else self.type,
            self.implicit or inner.implicit,
            inner.json_name if self.json_name is None else self.json_name,
        )

    def _all(self) -> tuple[int | None, str | None, bool, str | None]:
        return self.number, self.type, self.implicit, self.json_name


def is_json_name(name: str) -> bool:
    """Whether a field can have the name in JSON: letters, digits and a few signs."""
    return _JSON_NAME.fullmatch(name) is not None


def field(
    number: int | None = None, *, type: str | None = None, implicit: bool = False, json_name: str | None = None
) -> FieldOptions:
    """Pins the number of a Protobuf field, or says how its number is encoded. Write it into the annotation::

        @dataclass
        class Reading:
            sensor: Annotated[int, nearcall.field(1, type="uint32")]
            celsius: Annotated[float, nearcall.field(4)]

    It has a meaning only where Protobuf is used, over ``grpc://`` and ``http://``, and for parameters as for fields of
    classes. With ``type`` it has one around each number within another type as well: ``list[Int32 | None]``. Where it
    has none, it is refused when the service is served or connected in Protobuf.

    Args:
        number: The field's number, from 1 to 536,870,911 and not from 19,000 to 19,999; its place if not given.
        type: The Protobuf type of an ``int`` or a ``float``, such as ``"uint32"`` or ``"float"``.
        implicit: The default is the type's zero, and an absent field is the same as zero, as for fields of proto3 that
            are not ``optional``. For ``Any`` the default is ``None``, which is not sent.
        json_name: The field's name in JSON, if it is not the usual one, such as ``"@id"``.

    Raises:
        TypeError: the number is no int.
        ValueError: there is no such number or type.
    """
    if number is not None:
        if isinstance(number, bool) or not isinstance(number, int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the number of a field is an int, not {number!r}")
        if not is_field_number(number):
            raise ValueError(f"{number} cannot be the number of a field: take one from 1 to 18,999")
    if type is not None and type not in INTEGERS | FLOATS:
        raise ValueError(f"{type!r} is no number type of Protobuf: write one of {', '.join(sorted(INTEGERS | FLOATS))}")
    if json_name is not None and not is_json_name(json_name):
        raise ValueError(f"{json_name!r} cannot be a field's name in JSON: letters, digits and _ . $ @ : / - can")
    return FieldOptions(number, type, implicit, json_name)


def field_options(annotation: Any) -> FieldOptions:
    """The options that :func:`field` has set around a type, in an alias of it, and around the ``X`` of ``X | None``.
    What is written further out counts.
    """
    found = FieldOptions()
    while True:
        origin, args = get_origin(annotation), get_args(annotation)
        if origin is Annotated:
            inner = args[0]
            for extra in reversed(args[1:]):
                if isinstance(extra, FieldOptions):
                    found = found.around(extra)
        elif origin is Final:
            inner = args[0]
        elif origin in UNION_ORIGINS:
            left = [arg for arg in args if arg not in _NO_VALUES]
            inner = left[0] if len(left) == 1 else annotation
        else:
            inner = opened(annotation)
        if inner is annotation:
            return found
        annotation = inner
