"""A module with the interfaces of a server that describes itself, for ``nearcall stub URL``, and with a class for each
type of its values. What the server says is hostile: no more of it than names, numbers and quoted texts becomes code.
"""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Final

import msgspec

from ..codec.protocol import BYTEARRAY, BYTES, MEMORYVIEW, NOTHING
from ..service.description import Description, MethodInfo, ParameterInfo, ServiceInfo, StreamInfo, ValueInfo
from ..service.plan import BIDI_STREAM, KINDS, ONEWAY, SERVER_STREAM, UNARY
from ..service.references import passed_in
from ..types.functions import is_function_name
from ..types.guards import is_dict, is_list
from ..types.standard import LIBRARY_CLASSES, MODULES
from .module_text import CannotBeWritten, Interface, Method, Parameter, class_name, is_free, module_text

__all__ = ["described_text"]

_PLAIN: Final = {
    "none": "None",
    **{name: name for name in ("bool", "int", "float", "str", "bytes")},
    **{name: f"datetime.{name}" for name in ("datetime", "date", "time", "timedelta")},
    "uuid": "uuid.UUID",
    "decimal": "decimal.Decimal",
}
_FORMS: Final = {NOTHING: "None", BYTES: "bytes", BYTEARRAY: "bytearray", MEMORYVIEW: "memoryview"}
_ANY: Final = "typing.Any"
_SCALARS: Final = {
    "bool": "bool_",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    **{name: name for name in ("float16", "float32", "float64", "complex64", "complex128")},
}


def described_text(description: Description, *, for_loop: bool) -> str:
    """The text of a module with the interfaces of a server's services, and with classes for the types of their values.

    Args:
        description: What the server says.
        for_loop: Whether the interfaces are for clients in event loops, or for threads.

    Raises:
        CannotBeWritten: the server has no services, or Python cannot have one of its names.
    """
    if not description.services:
        raise CannotBeWritten("the server has no services")
    writer = _Writer(description, for_loop)
    for service in description.services:
        writer.interface(service.name)
    interfaces, classes = writer.write()
    names = ", ".join(service.name for service in description.services)
    source = f"the service{'s' if len(description.services) > 1 else ''} {names}"
    return module_text(source, writer.modules, classes, interfaces, for_loop=for_loop)


class _Types:
    """The types of services that mean the same by the same names."""

    def __init__(self) -> None:
        self.described: dict[str, Any] = {}
        self.names: dict[str, str] = {}
        """The names of their classes in the module."""

    def take(self, types: Mapping[str, Any]) -> bool:
        """Adds the types of a service, if all names mean the same there."""
        if any(self.described.get(name, described) != described for name, described in types.items()):
            return False
        self.described.update(types)
        return True


class _Writer:
    def __init__(self, description: Description, for_loop: bool) -> None:
        self.modules: set[str] = set()
        self._for_loop = for_loop
        self._services = {each.name: each for each in [*description.passed, *description.services]}
        names = [each.name for each in description.services]
        self._implemented = set(passed_in(description, names).implemented)
        """The services whose objects a client gives: its handlers yield, and have no stream that can be closed."""
        self._interfaces: dict[str, str] = {}
        self._waiting: list[ServiceInfo] = []
        self._tables: list[_Types] = []
        self._types = _Types()
        """Those of the service that is written now."""
        self._hidden: Collection[str] = ()
        """Names of methods of the interface that is written now."""
        self._classes: list[tuple[_Types, str]] = []
        """The types that are met, to be written."""
        self._taken: set[str] = set()
        self._within: set[str] = set()
        """The services of functions whose annotation is written now."""

    def interface(self, service: str) -> str:
        """The name of a service's interface."""
        if service not in self._interfaces:
            prefix = "Async" if self._for_loop else ""
            self._interfaces[service] = self._named(service.rpartition(".")[2], prefix)
            self._waiting.append(self._services[service])
        return self._interfaces[service]

    def _named(self, name: str, prefix: str = "") -> str:
        found = class_name(name, self._taken, prefix)
        self._taken.add(found)
        return found

    def write(self) -> tuple[list[Interface], list[list[str]]]:
        """The interfaces, and the lines of the classes."""
        interfaces: list[Interface] = []
        while self._waiting:
            interfaces.append(self._interface(self._waiting.pop(0)))
        classes: list[list[str]] = []
        while self._classes:
            (self._types, name), self._hidden = self._classes.pop(0), ()
            classes.append(list(self._class(name)))
            while self._waiting:
                interfaces.append(self._interface(self._waiting.pop(0)))
        return interfaces, classes

    def _interface(self, service: ServiceInfo) -> Interface:
        self._types, self._hidden = self._table(service), service.places.keys()
        methods = [self._method(service, method) for method in service.methods]
        return Interface(self._interfaces[service.name], service.name, [], [], methods, service.doc)

    def _table(self, service: ServiceInfo) -> _Types:
        """The types that mean what those of a service mean."""
        table = next((each for each in self._tables if each.take(service.types)), None)
        if table is None:
            table = _Types()
            table.take(service.types)
            self._tables.append(table)
        return table

    def _method(self, service: ServiceInfo, method: MethodInfo) -> Method:
        where = f"{service.name}.{method.name}"
        if method.kind not in KINDS:
            raise CannotBeWritten(f"{where} is of a kind that only a newer nearcall knows: update nearcall")
        parameters = [
            Parameter(each.name, self._value(each), _default_of(each), each.by_position, each.by_name)
            for each in method.parameters
        ]
        if method.stream is not None:
            item = method.stream
            streamed = Parameter(item.name, self._value(item), None, item.by_position, item.by_name)
            parameters.insert(min(max(item.position, 0), len(parameters)), streamed)
        for name in (method.name, *(parameter.name for parameter in parameters)):
            if keyword.iskeyword(name) or name == "self":
                raise CannotBeWritten(f"{where} has the name '{name}', which Python needs")
        marks = ["oneway"] * (method.kind == ONEWAY) + ["idempotent"] * method.idempotent
        stream = "" if method.stream is None else method.stream.name
        streams_out = ""
        if method.kind in (SERVER_STREAM, BIDI_STREAM):
            streams_out = "Iterator" if service.name in self._implemented else "Stream"
        return Method(method.name, parameters, stream, self._value(method.returns), streams_out, marks, method.doc)

    def _value(self, value: ValueInfo | ParameterInfo | StreamInfo) -> str:
        form = _FORMS.get(value.form)
        return self._annotation(value.schema) if form is None else self._type(form)

    def _type(self, name: str) -> str:
        """A type of Python's; a method of its name hides it."""
        return f"builtins.{name}" if name in self._hidden else name

    def _annotation(self, schema: Any, *, key: bool = False) -> str:  # noqa: PLR0911 - one for each kind
        """The annotation of a schema; ``key``: its values must have hashes."""
        if not is_dict(schema):
            return self._type(_PLAIN.get(schema, _ANY))
        (kind, inner), *_ = schema.items()
        if kind == "reference" and inner in self._services and is_function_name(inner):
            return self._function(self._services[inner])
        if kind == "reference":
            return self.interface(inner) if inner in self._services else _ANY
        if kind == "carried":
            return self._carried(inner, schema)
        if kind == "ref":
            return self._class_name(inner)
        if kind == "list":
            item, tuples = self._annotation(inner, key=key), self._type("tuple")
            return f"{tuples}[{item}, ...]" if key else f"{self._type('list')}[{item}]"
        if kind == "set":
            return f"{self._type('frozenset' if key else 'set')}[{self._annotation(inner, key=True)}]"
        if kind == "dict":
            return f"{self._type('dict')}[{self._annotation(inner[0], key=True)}, {self._annotation(inner[1])}]"
        if kind == "tuple":
            return f"{self._type('tuple')}[{', '.join(self._annotation(each, key=key) for each in inner) or '()'}]"
        if kind == "union" and inner:
            members = [self._annotation(each, key=key) for each in inner]
            return _ANY if _ANY in members else " | ".join(dict.fromkeys(members))
        if kind == "values" and inner and all(type(each) in (int, str) for each in inner):
            return f"typing.Literal[{', '.join(map(repr, inner))}]"
        if kind == "array":
            self.modules.add("numpy")
            self.modules.add("numpy.typing")
            scalar = f"numpy.{_SCALARS[inner]}" if inner in _SCALARS else _ANY
            return f"numpy.typing.NDArray[{scalar}]"
        return _ANY

    def _carried(self, name: str, schema: Mapping[str, Any]) -> str:
        """A class that travels as another type: one of a library that is known, or else plain data."""
        module = MODULES.get(name) if schema.get("as") == "str" else None
        if module is None and (written := schema.get("class")) in LIBRARY_CLASSES:
            module, _, name = written.rpartition(".")
        if module is None:
            return _ANY
        self.modules.add(module)
        return f"{module}.{name}"

    def _function(self, service: ServiceInfo) -> str:
        """The annotation of functions that are passed."""
        called = service.methods[0] if len(service.methods) == 1 else None
        if called is None or called.kind not in (UNARY, SERVER_STREAM) or service.name in self._within:
            return _ANY  # not one of ours, or one that takes itself
        outer, self._within = self._within, {*self._within, service.name}
        known, self._types = self._types, self._table(service)
        parameters = ", ".join(self._value(each) for each in called.parameters)
        result = self._value(called.returns)
        self._within, self._types = outer, known
        self.modules.add("collections.abc")
        if called.kind == SERVER_STREAM:
            result = f"collections.abc.{'AsyncIterator' if self._for_loop else 'Iterator'}[{result}]"
        elif self._for_loop:
            result = f"collections.abc.Awaitable[{result}]"
        return f"collections.abc.Callable[[{parameters}], {result}]"

    def _class_name(self, name: str) -> str:
        described = self._types.described.get(name)
        if not is_dict(described) or not is_list(described.get("fields")):
            return _ANY  # a later version's
        if name not in self._types.names:
            self._types.names[name] = self._named(name)
            self._classes.append((self._types, name))
        return self._types.names[name]

    def _class(self, name: str) -> Iterator[str]:
        described = self._types.described[name]
        is_array = described.get("layout") == "array"
        tag: list[Any] | None = described.get("tag")
        fields: list[dict[str, Any]] = described["fields"]
        names: list[str] = [field["name"] for field in fields]
        for each in names + (tag or [])[:1]:
            if not re.fullmatch(r"[^\x00-\x1f\"\\]+", each):  # msgspec refuses them, too
                raise CannotBeWritten(f"the type {name} has a field that no class can have: {each!r}")
        options = ["msgspec.Struct", "kw_only=True"]
        options += [f"tag_field={tag[0]!r}", f"tag={_tag(name, tag[1])!r}"] if tag else []
        options += ["array_like=True"] * is_array
        options += ["forbid_unknown_fields=True"] * bool(described.get("closed"))
        yield f"class {self._types.names[name]}({', '.join(options)}):"
        for place, field in enumerate(fields):
            attribute: str = field["name"]
            renamed = not is_free(attribute) or attribute in self._taken or attribute.startswith("__")
            if renamed:
                attribute = f"field_{place + 1}"
                if attribute in names:
                    raise CannotBeWritten(f"the type {name} has a field that Python cannot name, and {attribute}")
            annotation = self._annotation(field["type"])
            # In an array every place is filled.
            optional = not field["required"] and not is_array
            default = _default(field) if optional else None
            if optional and default is None:
                annotation, default = f"{annotation} | msgspec.UnsetType", "msgspec.UNSET"
            if renamed:
                # A lambda, for msgspec takes no list as a default here.
                given = "" if default is None else f", default_factory=lambda: {default}"
                default = f"msgspec.field(name={field['name']!r}{given})"
            yield f"    {attribute}: {annotation}{'' if default is None else f' = {default}'}"
        if not fields:
            yield "    pass"


def _tag(name: str, tag: Any) -> int | str:
    if type(tag) not in (int, str):
        raise CannotBeWritten(f"the type {name} has a tag that is neither a number nor a text")
    return tag  # type: ignore[no-any-return]


def _default_of(parameter: ParameterInfo) -> str | None:
    """The default of a parameter as text; ``...`` if only the server knows it, ``None`` if it has none."""
    if parameter.required:
        return None
    known = {} if parameter.default is msgspec.UNSET else {"default": parameter.default}
    return _default({"type": parameter.schema, **known}) or "..."


def _default(field: Mapping[str, Any]) -> str | None:
    """The default of a field as text; ``None`` if only the server knows it."""
    if "default" not in field:
        return None
    schema, value = field["type"], field["default"]
    members: list[Any] = schema["union"] if is_dict(schema) and "union" in schema else [schema]
    for member in members:
        kind = next(iter(member)) if is_dict(member) else member
        if value in ([], {}) and kind in ("list", "set", "dict"):
            return {"list": "[]", "set": "set()", "dict": "{}"}[kind]
        if isinstance(value, float) and not math.isfinite(value):
            return None
        known = None if value is None else type(value).__name__
        if known in ("bool", "int", "float", "str") and (known == kind or (kind == "values" and value in member[kind])):
            return repr(value)
        if value is None and kind == "none":
            return "None"
    return None
