"""Plans made from a server's description, for a client that has no class."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Optional, TypedDict

from msgspec import inspect as shapes

from ..codec.checks import OuterType, outer_type
from ..codec.described import described_sender
from ..codec.inspection import services_in
from ..codec.protocol import (
    BUFFER_FORMS,
    BYTEARRAY,
    BYTES,
    MEMORYVIEW,
    NOTHING,
    MethodTypes,
    ParameterType,
    ValueType,
)
from ..errors import FailedPrecondition
from ..types.declared import DESCRIBED_PLAN, Declared, declared
from ..types.guards import is_dict, is_list
from ..types.shown import shown
from .description import MethodInfo, ParameterInfo, ServiceInfo, StreamInfo, ValueInfo
from .making import make_method
from .plan import BIDI_STREAM, SERVER_STREAM, MethodPlan, ServicePlan, Slot
from .reading import read_description

__all__ = ["plans_from"]


def plans_from(description: Mapping[str, Any] | bytes) -> list[ServicePlan]:
    """Plans for a client that has no class: values are plain data, buffers and arrays cross as everywhere.

    The arguments' number and names are checked before a call leaves, their types by the server. A dataclass is sent
    and received as a dict.

    Raises:
        FailedPrecondition: the description is malformed or of an unknown version.
    """
    read = read_description(description)
    # Each stands for a service whose objects are passed. A class and its plan know each other, and go together.
    services: dict[str, type] = {service.name: _Described(service.name, (), {}) for service in read.passed}
    for service in read.passed:
        cls = services[service.name]
        declared[cls] = Declared(service.name, (), None, {})
        setattr(cls, DESCRIBED_PLAN, _dynamic_service(service, services))
    return [_dynamic_service(service, services) for service in read.services]


class _Described(type):
    """A service of which only the description is known."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return True  # an object of one's own that comes home: it had the methods when it was passed


def _dynamic_service(service: ServiceInfo, services: Mapping[str, type]) -> ServicePlan:
    known = _Known(service.types, services)
    return ServicePlan(
        name=service.name,
        methods=tuple(_dynamic_method(service.name, method, known) for method in service.methods),
        doc=service.doc,
        types=service.types,
        plain=True,
    )


MOST_WALKED = 10_000
"""Types that hold references and are gone through for one service. One that is in itself is gone through for each way
that leads to it."""


def _holders(types: Mapping[str, Any]) -> set[str]:
    """The names of the types in which there are references, in themselves or in types that they name."""
    users: dict[str, set[str]] = {}
    holders: set[str] = set()
    for name, described in types.items():
        level: list[Any] = [described.get("fields")]
        while level:
            part = level.pop()
            if is_list(part):
                level.extend(part)
            elif is_dict(part):
                if "reference" in part:
                    holders.add(name)
                if isinstance(part.get("ref"), str):
                    users.setdefault(part["ref"], set()).add(name)
                level.extend(part.values())
    found = list(holders)
    while found:
        more = users.get(found.pop(), set()) - holders
        holders |= more
        found.extend(more)
    return holders


class _Known:
    """What the types of a service refer to."""

    def __init__(self, types: Mapping[str, Any], services: Mapping[str, type]) -> None:
        self.types = types
        self.services = services
        self._holders = _holders(types)
        # Of types that do not contain themselves: those are the same wherever they are met.
        self._made: dict[str, Any] = {}
        # The outermost type that was met again within itself, by how many are around it.
        self._outermost = MOST_WALKED
        self._walked = 0

    def annotation(self, schema: Any, outer: tuple[str, ...] = ()) -> Any:
        """``Any``, or a type of plain data that has the services' classes in the places of references.

        Raises:
            FailedPrecondition: the types refer to each other in too many ways.
        """
        if not is_dict(schema):
            return Any
        (kind, inner), *_ = schema.items()
        if kind == "reference":
            return self.services.get(inner, Any)
        if kind == "ref":
            return self._named(inner, outer)
        if kind not in ("list", "dict", "tuple", "union"):
            return Any
        parts: list[Any] = [self.annotation(part, outer) for part in (inner if is_list(inner) else [inner])]
        if all(part is Any for part in parts):
            return Any
        if kind == "union":
            # Of several members only None can be told from a reference.
            named = [part for part, each in zip(parts, inner, strict=True) if each != "none"]
            return Optional[named[0]] if len(named) == 1 else Any  # noqa: UP045 - known at run time only
        made: Any = {"list": list, "dict": dict, "tuple": tuple}[kind]
        return made[tuple(parts)]

    def _named(self, name: str, outer: tuple[str, ...]) -> Any:
        if name not in self._holders:
            return Any
        if name in self._made:
            return self._made[name]
        if name in outer:
            self._outermost = min(self._outermost, outer.index(name))
            return Any
        self._walked += 1
        if self._walked > MOST_WALKED:
            raise FailedPrecondition("the server's description has types that refer to each other in too many ways")
        before, self._outermost = self._outermost, MOST_WALKED
        made = self._fields(name, (*outer, name))
        if self._outermost >= len(outer):
            # Nothing in it hangs on what is around it here.
            self._made[name] = made
        self._outermost = min(before, self._outermost)
        return made

    def _fields(self, name: str, outer: tuple[str, ...]) -> Any:
        described = self.types.get(name, {})
        if described.get("layout") != "map":
            return Any
        fields = {field["name"]: self.annotation(field["type"], outer) for field in described["fields"]}
        if all(field is Any for field in fields.values()):
            return Any
        if described.get("tag"):
            fields[described["tag"][0]] = Any
        return TypedDict(name, fields, total=False)  # type: ignore[operator]


def _dynamic_method(service: str, method: MethodInfo, known: _Known) -> MethodPlan:
    slots = [
        Slot(parameter.name, parameter.by_position, parameter.by_name, parameter.required)
        for parameter in method.parameters
    ]
    stream = None
    if method.stream is not None:
        item = method.stream
        slots.insert(min(max(item.position, 0), len(slots)), Slot(item.name, item.by_position, item.by_name, True))
        stream = ParameterType(item.name, _described_type(item, known), True, ...)
    types = MethodTypes(
        name=method.name,
        parameters=tuple(
            ParameterType(each.name, _described_type(each, known), each.required, ...) for each in method.parameters
        ),
        stream=stream,
        result=_described_type(method.returns, known),
        streams_out=method.kind in (SERVER_STREAM, BIDI_STREAM),
        doc=method.doc,
    )
    return make_method(
        service,
        types,
        kind=method.kind,
        slots=slots,
        signature=shown(method.signature),
        idempotent=method.idempotent,
    )


def _described_type(value: ValueInfo | ParameterInfo | StreamInfo, known: _Known) -> ValueType:
    if value.form in BUFFER_FORMS or value.form == NOTHING:
        annotation, shape, outer = _BARE[value.form]
        return ValueType(annotation, shape, value.type, value.schema, outer, described=True)
    try:
        sender = described_sender(value.schema, known.types, known.services)
        found = known.annotation(value.schema)
        services = () if found is Any else services_in(shapes.type_info(found))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise FailedPrecondition("the server's description of its types is malformed") from None
    # What it is like is the server's to check.
    _, shape, outer = _ANY
    return ValueType(found, shape, value.type, value.schema, outer, services, described=True, sender=sender)


def _known(annotation: Any) -> tuple[Any, shapes.Type, OuterType]:
    return annotation, shapes.type_info(annotation), outer_type(annotation)


_ANY = _known(Any)
_BARE = {
    form: _known(annotation)
    for form, annotation in ((NOTHING, None), (BYTES, bytes), (BYTEARRAY, bytearray), (MEMORYVIEW, memoryview))
}
"""What crosses without a codec, by its form."""
