"""Reads and checks a description that arrived: a server may send anything, and may mean harm.

Whatever a later version of nearcall may add is accepted: unknown fields, and methods and schemas of an unknown kind.
Only calls of such a method are refused.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from typing import Any, TypeGuard

import msgspec

from ..codec.decoders import make_decoder
from ..errors import FailedPrecondition
from ..types.guards import is_list
from ..types.shown import shown
from ..types.special import SERVED
from .description import VERSION, Description, MethodInfo, ParameterInfo, StreamInfo
from .plan import BIDI_STREAM, CLIENT_STREAM, KINDS

__all__ = ["Malformed", "check_limits", "read_description", "read_of_server"]

MOST_METHODS = 4096
"""Methods of all services of a description. A client goes through all of them each time it connects."""
MOST_VALUES = 200_000
"""Values in a description: everything in its JSON but the names in objects."""
LONGEST = 4 << 20
"""Bytes of a description."""
MOST_MEMBERS = 256
"""Members of a union, which are tried one by one."""
_MOST_REMEMBERED = 64 * 1024
"""Bytes of the longest description that :func:`read_of_server` remembers."""
LONGEST_NAME = 1000
"""Characters of a name of a service, method or parameter."""
DEEPEST = 64
"""How deep lists and objects of a description may lie in each other."""

make_decoder(Description)  # so that msgspec knows it before several threads convert to it

_STREAMING = frozenset({CLIENT_STREAM, BIDI_STREAM})


class Malformed(Exception):
    """A description is malformed; the message says where and how, in one line that is safe to show."""


def read_description(data: Mapping[str, Any] | bytes) -> Description:
    """Reads a description that arrived, as JSON or already as plain data.

    Raises:
        FailedPrecondition: the description is malformed, or of a version that this library does not know.
    """
    try:
        if isinstance(data, bytes):
            _check_length(len(data))
            data = msgspec.json.decode(data, type=dict[str, Any])
        _check_size(data)
        version = data.get("nearcall")
        if isinstance(version, int) and VERSION < version < 1 << 32:
            raise FailedPrecondition(
                f"the server describes itself in format {version}, and this nearcall knows format {VERSION}: "
                "update the client"
            )
        read = msgspec.convert(data, Description)
        _check(read)
        return read
    except (Malformed, msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
        raise FailedPrecondition(f"the server's description of itself is malformed: {shown(str(problem))}") from None


_remembered = functools.lru_cache(maxsize=16)(read_description)  # a refused description is not remembered


def read_of_server(text: str) -> Description:
    """The same for a client. Its next connection usually gets the same description, so short ones are remembered."""
    data = text.encode()
    return _remembered(data) if len(data) <= _MOST_REMEMBERED else read_description(data)


def check_limits(data: dict[str, Any], length: int) -> None:
    """Makes sure that clients accept this server's own description, given as plain data and as its length in JSON,
    bytes.

    Raises:
        Malformed: there is too much of it.
    """
    _check_length(length)
    _check_size(data)
    _check_methods(msgspec.convert(data, Description))


def _check_length(length: int) -> None:
    if length > LONGEST:
        raise Malformed(f"it is {length:,} bytes long, and the most are {LONGEST:,}")


def _check_methods(description: Description) -> None:
    services = [*description.services, *description.passed]
    if description.introspection is not msgspec.UNSET:
        services.append(description.introspection)
    count = sum(len(service.methods) for service in services)
    if count > MOST_METHODS:
        raise Malformed(f"it has {count:,} methods, and the most are {MOST_METHODS:,}")


def _check_size(data: Any) -> None:
    """Makes sure that plain data is neither too deep nor too large, even for recursive functions."""
    level: list[Any] = [data]
    count = 1
    for _ in range(DEEPEST):
        inside: list[Any] = []
        for outer in level:
            if _is_object(outer):
                inside += outer.values()
            elif is_list(outer):
                inside += outer
        if not inside:
            return
        count += len(inside)
        if count > MOST_VALUES:
            raise Malformed(f"it has more than {MOST_VALUES:,} values")
        level = inside
    raise Malformed(f"it is more than {DEEPEST} levels deep")


def _check(description: Description) -> None:
    """Makes sure that a client can work with a description whose fields have the right types."""
    services = list(description.services)
    _distinct("services", (service.name for service in services))
    _distinct("services of references", (service.name for service in description.passed))
    services += description.passed
    if description.introspection is not msgspec.UNSET:
        services.append(description.introspection)
    _check_methods(description)
    codecs = {} if description.codecs is msgspec.UNSET else description.codecs
    for name, first in codecs.items():
        if not name.isprintable() or len(name) > LONGEST_NAME or not 0 <= first < 1 << 16:
            raise Malformed(f"the codec '{shown(name, 80)}' has a name or a number that none can have")
    for service in services:
        if not all(map(str.isidentifier, service.name.split("."))):
            raise Malformed(f"'{shown(service.name, 80)}' is no name of a service")
        if service.name.startswith(("__", "_nearcall")) or len(service.name) > LONGEST_NAME:
            raise Malformed(f"a service is called '{shown(service.name, 80)}', which none may be")
        _distinct(f"methods of {service.name}", (method.name for method in service.methods))
        for name, described in service.types.items():
            _check_type(f"type '{shown(name, 80)}' of {service.name}", described)
        for method in service.methods:
            _check_method(service.name, method)


def _check_method(service: str, method: MethodInfo) -> None:
    is_name = method.name.isidentifier() and not method.name.startswith("_") and len(method.name) <= LONGEST_NAME
    if not is_name and method.name not in SERVED:
        raise Malformed(f"a method of {service} is called '{shown(method.name, 80)}', which none can be")
    where = f"{service}.{method.name}"
    if method.kind in KINDS and (method.kind in _STREAMING) != (method.stream is not None):
        raise Malformed(f"{where} is {method.kind} and has {'a' if method.stream else 'no'} streaming parameter")
    named: list[ParameterInfo | StreamInfo] = [*method.parameters]
    if method.stream is not None:
        named.append(method.stream)
    for parameter in named:
        if not parameter.name.isidentifier() or len(parameter.name) > LONGEST_NAME:
            raise Malformed(f"a parameter of {where} is called '{shown(parameter.name, 80)}', which none can be")
        if not (parameter.by_position or parameter.by_name):
            raise Malformed(f"parameter '{parameter.name}' of {where} can be given neither by position nor by name")
        _check_schema(f"parameter '{parameter.name}' of {where}", parameter.schema)
    _distinct(f"parameters of {where}", (parameter.name for parameter in named))
    _check_schema(f"the result of {where}", method.returns.schema)


def _distinct(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise Malformed(f"two {what} are called '{shown(name, 80)}'")
        seen.add(name)


def _check_type(where: str, described: Any) -> None:
    """Checks a type with fields. A type without fields, or of another layout, comes from a later version, and is
    accepted.
    """
    if not _is_object(described):
        raise Malformed(f"{where} is described by {_kind_of(described)}")
    fields, tag = described.get("fields"), described.get("tag")
    if fields is None:
        return
    if not isinstance(described.get("layout"), str):
        raise Malformed(f"{where} has no layout")
    if tag is not None and not (is_list(tag) and len(tag) == 2 and isinstance(tag[0], str)):
        raise Malformed(f"{where} has a tag that is none")
    if not is_list(fields):
        raise Malformed(f"{where} has no list of fields")
    for field in fields:
        well = _is_object(field) and isinstance(field.get("name"), str) and isinstance(field.get("required"), bool)
        if not well or "type" not in field:
            raise Malformed(f"{where} has a field without name, type, or whether it is required")
        _check_schema(where, field["type"])
    _distinct(f"fields of {where}", (field["name"] for field in fields))


def _check_schema(where: str, schema: Any) -> None:
    if isinstance(schema, str):
        return
    if not _is_object(schema) or not schema:
        raise Malformed(f"{where} has a schema that is {_kind_of(schema)}")
    kind, inner = next(iter(schema.items()))
    if kind in ("list", "set"):
        _check_schema(where, inner)
    elif kind in ("tuple", "union", "dict"):
        if not is_list(inner) or (kind == "dict" and len(inner) != 2):
            raise Malformed(f"{where} has a schema whose '{kind}' has no list of schemas")
        if kind == "union" and len(inner) > MOST_MEMBERS:
            raise Malformed(f"{where} has a schema whose 'union' has more than {MOST_MEMBERS} members")
        for item in inner:
            if kind == "union" and _is_object(item) and "union" in item:
                raise Malformed(f"{where} has a schema whose 'union' has another one as a member")
            _check_schema(where, item)
    elif kind == "carried":
        if not isinstance(inner, str):
            raise Malformed(f"{where} has a schema whose 'carried' is no name")
        _check_schema(where, schema.get("as"))
    elif kind == "values" and not is_list(inner):
        raise Malformed(f"{where} has a schema whose 'values' are no list")
    elif not isinstance(inner, str) and (kind in ("ref", "reference") or (kind == "array" and inner is not None)):
        raise Malformed(f"{where} has a schema whose '{kind}' is no name")


def _kind_of(value: Any) -> str:
    return "empty" if value == {} else f"a {type(value).__name__}"


def _is_object(value: Any) -> TypeGuard[dict[str, Any]]:
    return isinstance(value, dict)
