"""A typed module of Python from ``.proto`` files: a dataclass for each message, an interface for each service.

The module and the files declare the same on the wire. Names of messages are not on the wire: the class of a message
that is declared in another message has both names. The members of a ``oneof`` are fields that may be ``None``, of which
at most one is set. The module writes every imported name with its module (``typing.Annotated``), so that no message can
hide it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from ...types.numbers import is_json_name
from .names import VALUE_NAMES, json_name, method_name, title, value_name
from .python_names import attributes, class_name, is_class_name, members
from .sound import CannotBeWritten, check_sources
from .sources import EnumSource, FieldSource, FileSource, MessageSource, MethodSource, Place
from .well_known import FULL_NAME, OWN_FORMS

__all__ = ["CannotBeWritten", "module_text"]

_SCALARS: Final = {
    1: ("float", None, "0.0"),
    2: ("float", "float", "0.0"),
    3: ("int", None, "0"),
    4: ("int", "uint64", "0"),
    5: ("int", "int32", "0"),
    6: ("int", "fixed64", "0"),
    7: ("int", "fixed32", "0"),
    8: ("bool", None, "False"),
    9: ("str", None, '""'),
    12: ("bytes", None, 'b""'),
    13: ("int", "uint32", "0"),
    15: ("int", "sfixed32", "0"),
    16: ("int", "sfixed64", "0"),
    17: ("int", "sint32", "0"),
    18: ("int", "sint64", "0"),
}
"""By descriptor.proto's numbers: Python's type, the ``type`` of :func:`nearcall.field` unless it is the default, and
zero.
"""
_GROUP, _MESSAGE, _ENUM = 10, 11, 14
_REQUIRED, _REPEATED = 2, 3
_KNOWN: Final = {
    ".google.protobuf.Timestamp": "datetime.datetime",
    ".google.protobuf.Duration": "datetime.timedelta",
    ".google.protobuf.Value": "typing.Any",
}
_OPTIONS: Final = re.compile(r"\.google\.protobuf\.([A-Za-z]+Options|FeatureSet)")
"""What options in files are extensions of. They are said of a file, and are in no message that is sent."""


_ANY: Final = ".google.protobuf.Any"


class _Type(NamedTuple):
    """A message or an enum of a file."""

    file: FileSource
    path: tuple[int, ...]
    source: Any
    name: str
    """The name of its class."""


class _Writer:
    def __init__(self, files: Sequence[FileSource], asked: Iterable[str], for_loop: bool, for_clients: bool) -> None:
        self._asked = set(asked)
        self._for_loop = for_loop
        self._for_clients = for_clients
        self._files = files
        self._places: dict[str, dict[tuple[int, ...], Place]] = {}
        self._types: dict[str, _Type] = {}
        self._maps: dict[str, MessageSource] = {}
        self._used: dict[str, None] = {}
        self._taken = {self._interface(service.name) for file in files for service in file.service}
        """Names that no other class may have."""
        for file in sorted(files, key=lambda file: file.name not in self._asked):  # what is asked for keeps its names
            info = file.source_code_info
            self._places[file.name] = {tuple(place.path): place for place in info.location} if info else {}
            self._collect(file)
        self._names = {each.name for each in self._types.values()}

    def _collect(self, file: FileSource) -> None:
        scope = f".{file.package}" if file.package else ""
        package = "".join(map(title, file.package.split(".")))

        def name(parts: tuple[str, ...]) -> str:
            found = class_name(parts, package, self._taken)
            self._taken.add(found)
            return found

        def messages(sources: Sequence[MessageSource], outer: tuple[str, ...], path: tuple[int, ...]) -> None:
            for index, source in enumerate(sources):
                parts, here = (*outer, source.name), (*path, index)
                full = ".".join((scope, *parts))
                if source.options is not None and source.options.map_entry:
                    self._maps[full] = source
                    continue
                if full not in _KNOWN:
                    self._types[full] = _Type(file, here, source, name(parts))
                enums(source.enum_type, parts, (*here, 4))
                messages(source.nested_type, parts, (*here, 3))

        def enums(sources: Sequence[EnumSource], outer: tuple[str, ...], path: tuple[int, ...]) -> None:
            for index, source in enumerate(sources):
                parts = (*outer, source.name)
                self._types[".".join((scope, *parts))] = _Type(file, (*path, index), source, name(parts))

        messages(file.message_type, (), (4,))
        enums(file.enum_type, (), (5,))

    def write(self) -> Iterator[str]:
        """The lines of the module."""
        declared = [
            (file, index, service)
            for file in self._files
            if file.name in self._asked
            for index, service in enumerate(file.service)
        ]
        services = [each for each in declared if each[2].method]
        named: dict[str, FileSource] = {}
        for file, index, service in services:
            if (other := named.setdefault(service.name, file)) is not file:
                problem = f"there is another service {service.name} in {other.name}: make a module of each file"
                raise self._refusal(file, (6, index), problem)
        for file in self._files:
            if file.name in self._asked:
                self._check(file)
        for full, each in self._types.items():
            if each.file.name in self._asked:
                self._use(full)
        interfaces = [line for each in services for line in self._service(*each)]
        bodies: dict[str, list[str]] = {}
        waiting = list(self._used)
        while waiting:  # writing a message may add others
            full = waiting.pop(0)
            if full not in bodies:
                bodies[full] = list(self._type(full))
                waiting += [other for other in self._used if other not in bodies]
        names = [self._types[full].name for full in bodies]
        names = sorted(names + [self._interface(service.name) for _, _, service in services])
        command = "nearcall stub" + " --async" * self._for_loop + " --client" * self._for_clients
        yield f'"""Made by ``{command}`` of {", ".join(sorted(self._asked))}; do not edit."""'
        yield ""
        yield "from __future__ import annotations"
        yield ""
        text = "\n".join(line for lines in (*bodies.values(), interfaces) for line in lines)
        for module in ("collections.abc", "dataclasses", "datetime", "enum", "typing"):
            if f"{module}." in text:
                yield f"import {module}"
        yield ""
        if "msgspec." in text:
            yield "import msgspec"
        yield "import nearcall"
        yield ""
        yield "__all__ = ["
        yield from (f'    "{name}",' for name in names)
        yield "]"
        is_enum = {full: isinstance(self._types[full].source, EnumSource) for full in bodies}
        for full in sorted(bodies, key=lambda full: not is_enum[full]):  # defaults name members of enums
            yield from ("", "", *bodies[full])
        yield from interfaces
        for _, _, service in declared:
            if not service.method:
                yield from ("", "", f"# The service {service.name} has no methods, so there is no interface for it.")

    def _check(self, file: FileSource) -> None:
        for index, service in enumerate(file.service):
            if service.method and not is_class_name(service.name):
                raise self._refusal(
                    file, (6, index), f"Python needs the name of the service '{service.name}': rename it"
                )
        self._check_extensions(file, file.extension, (7,))

    def _check_extensions(self, file: FileSource, extensions: Sequence[FieldSource], path: tuple[int, ...]) -> None:
        for index, extension in enumerate(extensions):
            if not _OPTIONS.fullmatch(extension.extendee):
                problem = f"the extension '{extension.name}' has no counterpart: remove it"
                raise self._refusal(file, (*path, index), problem)

    def _use(self, full: str) -> str:
        """The class of a message or an enum."""
        self._used[full] = None
        return self._types[full].name

    def _refusal(self, file: FileSource, path: tuple[int, ...], problem: str) -> CannotBeWritten:
        place = self._places[file.name].get(path)
        line = f":{place.span[0] + 1}" if place is not None and place.span else ""
        return CannotBeWritten(f"{file.name}{line}: {problem}")

    def _doc(self, file: FileSource, path: tuple[int, ...], indent: str, *more: str) -> Iterator[str]:
        """The docstring made of a comment in the file. Google's own messages get none, because their documentation has
        it.
        """
        if file.name.startswith("google/protobuf/"):
            return
        place = self._places[file.name].get(path)
        comment = (place.leading or place.trailing) if place is not None else ""
        lines = [line.strip() for line in comment.strip().splitlines()]
        lines += ([""] if lines and more else []) + list(more)
        if not lines:
            return
        text = "\n".join(lines).replace("\\", "\\\\").replace('"""', "'''")
        text += " " if text.endswith('"') else ""
        first, *others = text.splitlines()
        if not others:
            yield f'{indent}"""{first}"""'
            return
        yield f'{indent}"""{first}'
        yield from (f"{indent}{line}" if line else "" for line in others)
        yield f'{indent}"""'

    def _type(self, full: str) -> Iterator[str]:
        each = self._types[full]
        return self._enum(each) if isinstance(each.source, EnumSource) else self._message(full, each)

    def _enum(self, each: _Type) -> Iterator[str]:
        source: EnumSource = each.source
        named = _members(source)
        yield f"class {each.name}(enum.IntEnum):"
        doc = list(self._doc(each.file, each.path, "    "))
        if doc:
            yield from (*doc, "")
        if any(value_name(each.name, named[value.name]) != value.name for value in source.value):
            # JSON has the names of the file. Of two for one number the first counts.
            names = {value.number: value.name for value in reversed(source.value)}
            yield f"    {VALUE_NAMES} = {dict(reversed(names.items()))!r}".replace("'", '"')
        for index, value in enumerate(source.value):
            yield f"    {named[value.name]} = {value.number}"
            yield from self._doc(each.file, (*each.path, 2, index), "    ")

    def _message(self, full: str, each: _Type) -> Iterator[str]:
        source: MessageSource = each.source
        self._check_extensions(each.file, source.extension, (*each.path, 6))
        named = attributes([field.name for field in source.field], self._names)
        renamed = any(attribute != name for name, attribute in named.items())
        if renamed:
            yield f"class {each.name}(msgspec.Struct, kw_only=True):"
        else:
            yield "@dataclasses.dataclass(kw_only=True)"
            yield f"class {each.name}{'(nearcall.ProtobufAny)' if full == _ANY else ''}:"
        gone = [f"{each.start} to {each.end - 1}" for each in source.reserved_range if each.end - each.start > 1]
        gone = [str(each.start) for each in source.reserved_range if each.end - each.start == 1] + gone
        more = [f"No field may have the numbers {', '.join(gone)}."] if gone else []
        doc = list(self._doc(each.file, each.path, "    ", *more))
        yield from doc
        # By which Any finds it, and JSON's forms of Google's own.
        named_so = _ANY in self._types or full[1:] in OWN_FORMS
        if doc and (source.field or named_so):
            yield ""
        if named_so:
            yield f'    {FULL_NAME}: typing.ClassVar[str] = "{full[1:]}"'
        for index, field in enumerate(source.field):
            yield from self._field(each, index, field, named[field.name], renamed)
        yield from self._oneofs(source, named)
        if not doc and not source.field and not named_so:
            yield "    pass"

    def _field(self, each: _Type, index: int, field: FieldSource, attribute: str, renamed: bool) -> Iterator[str]:
        path = (*each.path, 2, index)
        features = field.options.features if field.options is not None else None
        of_file = each.file.options.features if each.file.options is not None else None
        as_group = features.message_encoding if features is not None else 0
        as_group = as_group or (of_file.message_encoding if of_file is not None else 0)
        if field.type == _GROUP or (field.type == _MESSAGE and as_group == 2 and field.type_name not in self._maps):
            raise self._refusal(each.file, path, f"the group '{field.name}' has no counterpart: make it a message")
        kind, zero = self._kind(field)
        own = _SCALARS.get(field.type, (None, None))[1]
        options = [str(field.number)]
        more: list[str] = []
        factory = None
        if field.label == _REPEATED:
            entry = self._maps.get(field.type_name)
            if entry is not None:
                key, value = (self._inner(part) for part in entry.field)
                kind = f"dict[{key}, {value}]"
                factory = f"dict[{', '.join(self._bare(part) for part in entry.field)}]"
            else:
                kind, factory = f"list[{self._inner(field)}]", f"list[{self._bare(field)}]"
            default = None
        else:
            if own is not None:
                options.append(f'type="{own}"')
            if zero is not None and self._is_implicit(each.file, field):
                options.append("implicit=True")
                default = zero
            else:
                default = "None"
                if kind != "typing.Any":
                    kind += " | None"
                else:
                    options.append("implicit=True")
                if field.label == _REQUIRED:
                    default = None
                    more.append("It must be set.")
            if field.default_value is not None:
                more.append(f"Where it is not set, peers take {field.default_value}.")
            if (oneof := _oneof(each.source, field)) is not None:
                more.append(f"One of {oneof}: at most one of those is set.")
        if field.json_name is not None and field.json_name != json_name(field.name):
            if not is_json_name(field.json_name):
                problem = f"the field '{field.name}' is called {field.json_name!r} in JSON: nearcall cannot write that"
                raise self._refusal(each.file, path, problem)
            options.append(f'json_name="{field.json_name}"')
        given = [f"default_factory={factory}"] if factory else [f"default={default}"] if default is not None else []
        if attribute != field.name:
            value = f" = msgspec.field({', '.join([*given, f'name={field.name!r}'])})".replace("'", '"')
        elif factory:
            value = f" = {'msgspec' if renamed else 'dataclasses'}.field({given[0]})"
        else:
            value = f" = {default}" if default is not None else ""
        yield f"    {attribute}: typing.Annotated[{kind}, nearcall.field({', '.join(options)})]{value}"
        yield from self._doc(each.file, path, "    ", *more)

    def _is_implicit(self, file: FileSource, field: FieldSource) -> bool:
        """Whether a zero is not told from absence: in proto3 without ``optional``, or by a feature of an edition."""
        if file.syntax == "proto3":
            return not field.proto3_optional and field.oneof_index is None
        own = field.options.features if field.options is not None else None
        whole = file.options.features if file.options is not None else None
        said = [each.field_presence for each in (own, whole) if each is not None and each.field_presence]
        return said[:1] == [2] and field.oneof_index is None

    def _kind(self, field: FieldSource) -> tuple[str, str | None]:
        """Python's type of a single value, and its zero; ``None`` if it has none."""
        if field.type == _MESSAGE:
            if field.type_name in self._maps:
                return "", None  # the caller writes a dict
            return _KNOWN.get(field.type_name) or self._use(field.type_name), None
        if field.type == _ENUM:
            name = self._use(field.type_name)
            source: EnumSource = self._types[field.type_name].source
            zero = next((value.name for value in source.value if value.number == 0), None)
            return name, None if zero is None else f"{name}.{_members(source)[zero]}"
        kind, _, zero = _SCALARS[field.type]
        return kind, zero

    def _bare(self, field: FieldSource) -> str:
        """The same for code that runs at once: the name of a class that may be declared further down is quoted."""
        kind, _ = self._kind(field)
        return f'"{kind}"' if field.type == _ENUM or (field.type == _MESSAGE and "." not in kind) else kind

    def _inner(self, field: FieldSource) -> str:
        """Python's type of a value in a list or a dict."""
        kind, _ = self._kind(field)
        own = _SCALARS.get(field.type, (None, None))[1]
        return kind if own is None else f'typing.Annotated[{kind}, nearcall.field(type="{own}")]'

    def _oneofs(self, source: MessageSource, named: dict[str, str]) -> Iterator[str]:
        groups: dict[str, list[str]] = {}
        for field in source.field:
            if (oneof := _oneof(source, field)) is not None:
                groups.setdefault(oneof, []).append(f"self.{named[field.name]}")
        if not groups:
            return
        yield ""
        yield "    def __post_init__(self) -> None:"
        for oneof, choices in groups.items():
            yield f"        if sum(each is not None for each in [{', '.join(choices)}]) > 1:"
            yield f'            raise ValueError("{source.name}: more than one of {oneof} is set")'

    def _service(self, file: FileSource, index: int, service: Any) -> Iterator[str]:
        full = f"{file.package}.{service.name}" if file.package else service.name
        bases = "nearcall.aio.Interface, typing.Protocol" if self._for_loop else "typing.Protocol"
        yield from ("", "", f'@nearcall.service(name="{full}")', f"class {self._interface(service.name)}({bases}):")
        doc = list(self._doc(file, (6, index), "    "))
        yield from doc
        for number, method in enumerate(service.method):
            if doc or number:
                yield ""
            yield from self._method(file, (6, index, 2, number), method)

    def _interface(self, service: str) -> str:
        """The name of a service's interface."""
        return f"Async{service}" if self._for_loop else service

    def _method(self, file: FileSource, path: tuple[int, ...], method: MethodSource) -> Iterator[str]:
        name = method_name(method.name)
        if name is None:
            raise self._refusal(file, path, f"the method '{method.name}' must be written in CamelCase")
        types: list[str] = []
        for full, streams in (
            (method.input_type, method.client_streaming),
            (method.output_type, method.server_streaming),
        ):
            if full in _KNOWN:
                raise self._refusal(file, path, f"{full[1:]} cannot be a request or a response: put it into a message")
            cls = self._use(full)
            types.append(self._stream(cls, is_result=bool(types)) if streams else cls)
        level = method.options.idempotency_level if method.options is not None else 0
        if level:
            yield f"    @nearcall.{('no_side_effects', 'idempotent')[level - 1]}"
        parameter = "requests" if method.client_streaming else "request"
        doc = list(self._doc(file, path, "        "))
        defined = "async def" if self._for_loop and not method.server_streaming else "def"
        yield f"    {defined} {name}(self, {parameter}: {types[0]}) -> {types[1]}:{'' if doc else ' ...'}"
        if doc:
            yield from doc
            yield "        ..."

    def _stream(self, cls: str, *, is_result: bool) -> str:
        if not self._for_clients:
            return f"collections.abc.{'AsyncIterator' if self._for_loop else 'Iterator'}[{cls}]"
        if is_result:
            return f"nearcall.{'aio.AsyncStream' if self._for_loop else 'Stream'}[{cls}]"
        taken = f"collections.abc.Iterable[{cls}]"
        return f"collections.abc.AsyncIterable[{cls}] | {taken}" if self._for_loop else taken


def _oneof(source: MessageSource, field: FieldSource) -> str | None:
    if field.oneof_index is None or field.proto3_optional:
        return None
    return source.oneof_decl[field.oneof_index].name


def _members(source: EnumSource) -> dict[str, str]:
    return members(source.name, [value.name for value in source.value])


def module_text(
    files: Sequence[FileSource], asked: Iterable[str], *, for_loop: bool = False, for_clients: bool = False
) -> str:
    """The text of a module for some files, and for the types that they need from imported files.

    Args:
        files: These files and all that they import, each after the files that it imports.
        asked: The names of the files whose services and messages are all wanted.
        for_loop: Whether the interfaces are for event loops, or for threads.
        for_clients: Whether only clients have the interfaces: then streams to them can be closed, and they send
            whatever can be iterated over. No handler that yields fits that, so a class that implements an interface
            has iterators.

    Raises:
        CannotBeWritten: something has no counterpart; the message is one line, which begins with file and line number.
            Or protoc would have refused the files.
    """
    check_sources(files)
    return "\n".join(_Writer(files, asked, for_loop, for_clients).write()) + "\n"
