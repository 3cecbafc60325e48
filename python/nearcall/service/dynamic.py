"""Plans made from a server's description, for a client that has no class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Optional, TypedDict

from msgspec import inspect as shapes

from ..codec.checks import OuterType, outer_type
from ..codec.described import DescribedSenders
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
from ..types.functions import MARK, is_function_name
from ..types.guards import is_dict, is_list
from ..types.shown import shown
from .description import Description, MethodInfo, ParameterInfo, ServiceInfo, StreamInfo, ValueInfo
from .making import make_method
from .plan import BIDI_STREAM, KINDS, SERVER_STREAM, UNARY, MethodPlan, ServicePlan, Slot

__all__ = ["DescribedService", "described_services"]


def described_services(description: Description) -> list[DescribedService]:
    """The services of a description, for a client that has no class."""
    # Each class stands for a service whose objects are passed. A class and its plan refer to each other, so they live
    # equally long.
    services: dict[str, type] = {
        service.name: _Described(service.name, (), {MARK: True} if is_function_name(service.name) else {})
        for service in description.passed
    }
    for service in description.passed:
        cls = services[service.name]
        declared[cls] = Declared(service.name, (), None, {})
        setattr(cls, DESCRIBED_PLAN, DescribedService(service, services).whole)
    return [DescribedService(service, services) for service in description.services]


class DescribedService:
    """A service of which only a description is known. The plan of a method is made when it is first asked for: a server
    may describe thousands, and few are called.

    Values are plain data; buffers and arrays cross as everywhere. The arguments' number and names are checked before a
    call is sent; the server checks their types. A dataclass is sent and received as a dict.

    Args:
        service: The service.
        services: The classes that stand for the services whose objects are passed, by their names.
    """

    def __init__(self, service: ServiceInfo, services: Mapping[str, type]) -> None:
        self._service = service
        self._services = services
        self._plans: dict[str, MethodPlan] = {}

    @property
    def name(self) -> str:
        """The service's name."""
        return self._service.name

    @property
    def doc(self) -> str | None:
        """The service's docstring, as its server says it."""
        return self._service.doc

    @property
    def names(self) -> Iterable[str]:
        """The names of its methods, in order."""
        return self._service.places.keys()

    def method(self, name: str) -> MethodPlan:
        """The plan of one of its methods.

        Raises:
            FailedPrecondition: the types of the description are malformed, or refer to each other in too many ways.
        """
        found = self._plans.get(name)
        if found is None:
            described = self._service.methods[self._service.places[name]]
            # If two threads make the same plan at once, both get the one that was entered first.
            found = self._plans.setdefault(name, _dynamic_method(self.name, described, self._known))
        return found

    def whole(self) -> ServicePlan:
        """The plan of the service with all of its methods.

        Raises:
            FailedPrecondition: as :meth:`method`.
        """
        return self._whole

    @cached_property
    def _whole(self) -> ServicePlan:
        return self.with_methods(map(self.method, self.names))

    def with_methods(self, plans: Iterable[MethodPlan]) -> ServicePlan:
        """The plan of the service with some of its methods."""
        return ServicePlan(
            name=self.name,
            methods=tuple(plans),
            doc=self._service.doc,
            types=self._service.types,
            plain=True,
        )

    @cached_property
    def _known(self) -> _Known:
        return _Known(self._service.types, self._services)


class _Described(type):
    """A service of which only the description is known."""

    def __instancecheck__(cls, instance: Any) -> bool:
        return True  # an object of this process that comes back: its methods were checked when it was passed


MOST_WALKED = 10_000
"""Types with references that are gone through for one service. A type that contains itself is gone through once for
each way that leads to it.
"""


def _holders(types: Mapping[str, Any]) -> set[str]:
    """The names of the types that contain references, directly or in the types that they name."""
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
    """The types of a service, and annotations made from them for the references that they contain."""

    def __init__(self, types: Mapping[str, Any], services: Mapping[str, type]) -> None:
        self.types = types
        self.services = services
        self.senders = DescribedSenders(types, services)
        self._holders = _holders(types)
        # Annotations whose contents do not depend on the types around them: they are the same wherever the type is met.
        self._made: dict[str, Any] = {}
        # Of the types that were met again within themselves, the outermost, as the number of types around it.
        self._outermost = MOST_WALKED
        self._walked = 0

    def annotation(self, schema: Any, outer: tuple[str, ...] = ()) -> Any:
        """``Any``, or a type of plain data that has the services' classes in place of references.

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
            # Nothing in it depends on the types around it here.
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
    # A method of a later version's kind is made as if it were unary: it is compared with the server's, and refused.
    kind = method.kind if method.kind in KINDS else UNARY
    if method.stream is not None and kind != UNARY:
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
        streams_out=kind in (SERVER_STREAM, BIDI_STREAM),
        doc=method.doc,
    )
    return make_method(
        service,
        types,
        kind=kind,
        slots=slots,
        signature=shown(method.signature),
        idempotent=method.idempotent,
    )


def _described_type(value: ValueInfo | ParameterInfo | StreamInfo, known: _Known) -> ValueType:
    if value.form in BUFFER_FORMS or value.form == NOTHING:
        annotation, shape, outer = _BARE[value.form]
        return ValueType(annotation, shape, value.type, value.schema, outer, described=True)
    try:
        sender = known.senders.sender(value.schema)
        found = known.annotation(value.schema)
        services = () if found is Any else services_in(shapes.type_info(found))
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError):
        raise FailedPrecondition("the server's description of its types is malformed") from None
    # The server checks the value's type.
    _, shape, outer = _ANY
    return ValueType(found, shape, value.type, value.schema, outer, services, described=True, sender=sender)


def _known(annotation: Any) -> tuple[Any, shapes.Type, OuterType]:
    return annotation, shapes.type_info(annotation), outer_type(annotation)


_ANY = _known(Any)
_BARE = {
    form: _known(annotation)
    for form, annotation in ((NOTHING, None), (BYTES, bytes), (BYTEARRAY, bytearray), (MEMORYVIEW, memoryview))
}
"""Annotation, shape and outer type of values that need no codec, by their form."""
