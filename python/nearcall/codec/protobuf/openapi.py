"""Services as OpenAPI describes them: what ``http://`` serves in JSON, for tools of other worlds.

Its schemas are those of Protobuf's JSON, made of the same messages as the ``.proto``
(:mod:`nearcall.codec.protobuf.text`). What msgspec says of the same types would be another JSON: there an ``int`` is a
number, and a field is called as in Python.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from typing import Any, Final

from ..._core import ProtobufMessages
from ...status import StatusCode
from .errors import CodingError
from .hooks import bounded
from .messages import Element, EnumType, Field, Message
from .service import Rpc, ServiceMessages
from .well_known import FULL_NAME

__all__ = ["openapi_document"]


def _digits(most: int, sign: str = "") -> str:
    """The pattern of a whole number with at most so many digits."""
    return f"^{sign}(0|[1-9][0-9]{{0,{most - 1}}})$"


_INFINITE: Final = ["NaN", "Infinity", "-Infinity"]
_INT32: Final = {"type": "integer", "format": "int32", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}
_UINT32: Final = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
_INT64: Final = {"type": "string", "format": "int64", "pattern": _digits(19, "-?")}
_UINT64: Final = {"type": "string", "format": "uint64", "pattern": _digits(20)}
_FLOAT: Final = {"anyOf": [{"type": "number"}, {"enum": _INFINITE}]}
_SIGNED: Final = ("int32", "sint32", "sfixed32")
_UNSIGNED: Final = ("uint32", "fixed32")
_KINDS: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(_SIGNED, _INT32),
    **dict.fromkeys(_UNSIGNED, _UINT32),
    **dict.fromkeys(("int64", "sint64", "sfixed64"), _INT64),
    **dict.fromkeys(("uint64", "fixed64"), _UINT64),
    **dict.fromkeys(("float", "double"), _FLOAT),
    "bool": {"type": "boolean"},
    "string": {"type": "string"},
    "bytes": {"type": "string", "contentEncoding": "base64"},
    "timestamp": {"type": "string", "format": "date-time"},
    "duration": {"type": "string", "pattern": r"^-?[0-9]+(\.[0-9]+)?s$"},
    "any": {},
}
"""What JSON has for a single value."""
_KEYS: Final[dict[str, dict[str, Any]]] = {
    **{kind: {"type": "string", "pattern": _digits(10, "-?")} for kind in _SIGNED},
    **{kind: {"type": "string", "pattern": _digits(10)} for kind in _UNSIGNED},
    "bool": {"type": "string", "enum": ["true", "false"]},
}
"""What JSON has for the key of a map, where that is another text than the value."""
_FORMATS: Final = {"date": "date", "UUID": "uuid"}
"""Those of texts, by the name of Python's type."""
_LIMITS: Final = {
    "gt": "exclusiveMinimum",
    "ge": "minimum",
    "lt": "exclusiveMaximum",
    "le": "maximum",
    "multiple_of": "multipleOf",
    "min_length": "minLength",
    "max_length": "maxLength",
    "pattern": "pattern",
}
_OWN_FORMS: Final[dict[str, dict[str, Any]]] = {
    "FieldMask": {"type": "string"},
    "Struct": {"type": "object"},
    "ListValue": {"type": "array"},
    "Any": {"type": "object", "properties": {"@type": {"type": "string"}}, "required": ["@type"]},
}
"""Messages of ``google.protobuf`` that are no objects of their fields."""
_LEFT_OUT: Final = "Methods with streams have no counterpart in OpenAPI and are left out: "
_ABOUT: Final = """\
Each call is a JSON object that is posted, by Connect's protocol. Integers of 64 bits are texts, because the numbers \
of JavaScript are exact up to 53 bits only; in a request they may be numbers as well. A request has all names that are \
required here and none that are unknown, unless it says that it is Connect's: by connect-protocol-version, or in a GET \
by connect=v1. Zeros are written; what is absent is left out."""
_ERROR: Final = """\
The call failed. The code decides the status: 400 for invalid_argument, failed_precondition and out_of_range, 401 for \
unauthenticated, 403 for permission_denied, 404 for not_found, 409 for aborted and already_exists, 429 for \
resource_exhausted, 499 for canceled, 501 for unimplemented, 503 for unavailable, 504 for deadline_exceeded, else \
500. A request that is no call has another body, in words: 404, 405 or 415."""
_OF_CONNECT: Final = "Unknown names in the request are skipped, and what is missing is zero."


def openapi_document(services: Sequence[ServiceMessages], version: str) -> dict[str, Any]:
    """The document, of OpenAPI 3.1, as plain data.

    Args:
        services: The services, which one server can serve: each has a name of its own.
        version: What it says of the version of the services.
    """
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    streams: list[str] = []
    for service in services:
        writer = _Writer(service)
        if any(schemas.get(name, schema) != schema for name, schema in writer.schemas.items()):
            # Two services have different types of one name.
            writer = _Writer(service, apart=True)
        paths |= writer.paths
        schemas |= writer.schemas
        streams += writer.streams
    about = [_ABOUT, *([f"{_LEFT_OUT}{', '.join(streams)}."] if streams else [])]
    if len(services) == 1 and services[0].doc:
        about.insert(0, services[0].doc)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": ", ".join(service.full_name for service in services),
            "version": version,
            "description": "\n\n".join(about),
        },
        "tags": [
            {"name": service.full_name, **({"description": service.doc} if service.doc else {})} for service in services
        ],
        "paths": paths,
        "components": {
            "schemas": {**schemas, "connect.Error": _error()},
            "responses": {"Error": {"description": _ERROR, "content": _json("connect.Error")}},
            "parameters": {
                "timeout": _parameter(
                    "header", "connect-timeout-ms", "The deadline: milliseconds that the call may take.", _TIMEOUT
                ),
                "protocol": _parameter("header", "connect-protocol-version", _OF_CONNECT, _only("1")),
                "connect": _parameter("query", "connect", _OF_CONNECT, _only("v1")),
            },
        },
    }


_TIMEOUT: Final = {"type": "integer", "minimum": 0, "maximum": 9_999_999_999}


def _parameter(place: str, name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": place, "description": description, "schema": schema}


def _only(text: str) -> dict[str, Any]:
    # Generators of clients leave out a method with a header that has no type.
    return {"type": "string", "enum": [text]}


def _error() -> dict[str, Any]:
    # Connect writes one of them in another way than gRPC.
    codes = [code.name.lower().replace("cancelled", "canceled") for code in StatusCode if code.name != "OK"]
    detail = {"type": "object", "properties": {"type": {"type": "string"}, "value": _KINDS["bytes"]}}
    properties = {
        "code": {"type": "string", "enum": codes},
        "message": {"type": "string"},
        "details": {"type": "array", "items": detail},
    }
    return {"type": "object", "properties": properties, "required": ["code"]}


def _json(schema: str) -> dict[str, Any]:
    return {"application/json": {"schema": _ref(schema)}}


def _ref(schema: str) -> dict[str, Any]:
    return {"$ref": f"#/components/schemas/{schema}"}


class _Writer:
    """Writes the methods of a service, and the schemas that they name.

    Args:
        service: The service.
        apart: Whether the names of schemas begin with the service's, and not with the package's alone.
    """

    def __init__(self, service: ServiceMessages, *, apart: bool = False) -> None:
        self._service = service
        scope = service.full_name if apart else service.package
        self._prefix = f"{scope}." if scope else ""
        self._enums = {enum.name: enum for enum in service.builder.enums.values()}
        self._defaults = _defaults(service.builder.messages)
        self._names: dict[int, str] = {}
        """The names of the messages' schemas, by their places."""
        self.schemas: dict[str, Any] = {}
        self.paths: dict[str, Any] = {}
        self.streams: list[str] = []
        """The methods that are left out."""
        for rpc in service.rpcs:
            if rpc.streams_in or rpc.method.streams_out:
                self.streams.append(f"{service.full_name}/{rpc.name}")
            else:
                self.paths[f"/{service.full_name}/{rpc.name}"] = self._path(rpc)

    def _path(self, rpc: Rpc) -> dict[str, Any]:
        """What can be asked of the path of a method."""
        request = self._message(rpc.request)
        name = f"{self._service.full_name}.{rpc.name}"
        shared: dict[str, Any] = {
            "tags": [self._service.full_name],
            **_described(rpc.method.doc),
            "responses": {
                "200": {"description": "The result.", "content": _json(self._message(rpc.response))},
                "default": {"$ref": "#/components/responses/Error"},
            },
        }
        timeout, protocol, connect = (
            {"$ref": f"#/components/parameters/{each}"} for each in ("timeout", "protocol", "connect")
        )
        post = {
            "operationId": name,
            **shared,
            "parameters": [timeout, protocol],
            "requestBody": {"content": _json(request), "required": "required" in self.schemas[request]},
        }
        if not rpc.method.no_side_effects:
            return {"post": post}
        asked: list[Any] = [
            {"name": "encoding", "in": "query", "required": True, "schema": _only("json")},
            {"name": "message", "in": "query", "required": True, "content": _json(request)},
        ]
        get = {"operationId": f"{name}.get", **shared, "parameters": [*asked, connect, timeout]}
        return {"get": get, "post": post}

    def _message(self, place: int) -> str:
        """The name of the schema of a message."""
        if place in self._names:
            return self._names[place]
        message = self._service.builder.messages[place]
        # Types that differ in their limits are one message in Protobuf, and here they are two.
        name = base = self._prefix + message.proto_name
        number = 2
        while name in self.schemas:
            name, number = f"{base}_{number}", number + 1
        self._names[place] = name
        self.schemas[name] = {}  # it may refer to itself
        self.schemas[name] = self._schema_of(message) | ({"description": message.doc} if message.doc else {})
        alike = (base, *(f"{base}_{each}" for each in range(2, number - 1)))
        same = next((each for each in alike if self.schemas.get(each) == self.schemas[name]), name)
        if same != name:
            del self.schemas[name]
            self._names[place] = same
        return same

    def _schema_of(self, message: Message) -> dict[str, Any]:
        if message.in_json is not None:
            own = _OWN_FORMS.get(str(getattr(message.cls, FULL_NAME)).rpartition(".")[2])
            return self._of_shape(message.fields[0]) if own is None else own
        found: dict[str, Any] = {
            "type": "object",
            "properties": {field.json_name: self._of_field(field) for field in message.fields},
            "additionalProperties": False,
        }
        if message.form == "oneof":
            return found | {"minProperties": 1, "maxProperties": 1}
        required = [field.json_name for field in message.fields if field.required]
        return found | ({"required": required} if required else {})

    def _of_field(self, field: Field) -> dict[str, Any]:
        schema = self._of_shape(field)
        if field not in self._defaults:
            return schema
        default = self._defaults[field]
        if field.element.kind not in ("float", "double") or not isinstance(default, str):
            return schema | {"default": default}
        # It is infinite or NaN. Generators of clients write the text into their code as if it were a number.
        told = [schema["description"]] if "description" in schema else []
        return schema | {"description": ", ".join([*told, f"default {default}"])}

    def _of_shape(self, field: Field) -> dict[str, Any]:
        schema = self._of_element(field.element)
        if field.key is not None:
            names = _single(field.key, _KEYS.get(str(field.key.kind), _KINDS[str(field.key.kind)]))
            schema = {
                "type": "object",
                **({} if names == _KINDS["string"] else {"propertyNames": names}),
                "additionalProperties": schema,
                **_counts(field, "Properties"),
            }
        elif field.shape in ("list", "tuple"):
            schema = {"type": "array", "items": schema, **_counts(field, "Items")}
        elif field.shape in ("set", "frozenset"):
            schema = {"type": "array", "items": schema, "uniqueItems": True, **_counts(field, "Items")}
        return schema

    def _of_element(self, element: Element) -> dict[str, Any]:
        kind = element.kind
        if isinstance(kind, int):
            message = _ref(self._message(kind))
            return message if element.from_list is None else {"anyOf": [message, {"type": "array"}]}
        if isinstance(kind, dict):
            return _ref(self._enum(self._enums[element.proto], is_open=element.open_class is not None))
        return _single(element, _KINDS[kind])

    def _enum(self, enum: EnumType, *, is_open: bool) -> str:
        name = self._prefix + enum.name
        names: dict[str, Any] = {"type": "string", "enum": [each for each, _ in enum.values]}
        schema: dict[str, Any] = {"anyOf": [names, _INT32]} if is_open else names
        self.schemas[name] = schema | ({"description": enum.doc} if enum.doc else {})
        return name


def _single(element: Element, form: dict[str, Any]) -> dict[str, Any]:
    """The schema of a single value, which JSON has in this form."""
    limits = {_LIMITS[name]: limit for name, limit in element.limits.items()}
    notes = [] if element.note is None or element.values else [element.note]
    schema = dict(form)
    if element.name in _FORMATS:
        schema["format"] = _FORMATS[element.name]
    is_text = schema.get("type") == "string"
    if element.values:
        schema["enum"] = [str(each) for each in element.values] if is_text else list(element.values)
    if is_text and element.kind != "string":
        # The text of a number, or base64: no limit of the value is one of the text.
        notes += [f"{name} {limit}" for name, limit in limits.items()]
    elif form is _FLOAT and limits:
        schema = _limited(element, limits)
    else:
        schema |= limits
    return schema | ({"description": ", ".join(notes)} if notes else {})


def _limited(element: Element, limits: dict[str, Any]) -> dict[str, Any]:
    """The schema of a float with limits. They are for the floats, too, that are no numbers in JSON."""
    check = bounded(float, element.limits)
    others: list[str] = []
    for each in _INFINITE:
        with contextlib.suppress(ValueError):
            check(float(each))
            others.append(each)
    number = {"type": "number", **limits}
    return {"anyOf": [number, {"enum": others}]} if others else number


def _counts(field: Field, what: str) -> dict[str, int]:
    """The limits of how many a field holds: ``minItems``, or ``minProperties``."""
    return {f"{name.partition('_')[0]}{what}": limit for name, limit in field.limits.items()}


def _described(doc: str | None) -> dict[str, str]:
    if not doc:
        return {}
    first, _, rest = doc.strip().partition("\n\n")
    summary = " ".join(first.split())
    return {"summary": summary, "description": doc.strip()} if rest else {"summary": summary}


def _defaults(messages: Sequence[Message]) -> dict[Field, Any]:
    """What readers take absent fields for, as JSON has it. What a function makes may be another each time."""
    found: dict[Field, Any] = {}
    fields: list[Field] = []
    for field in (field for message in messages for field in message.fields if not field.required):
        if field.absent[0] == "value":
            fields.append(field)
        elif field.absent[0] == "zero" and field.shape not in ("implicit", "presence"):
            found[field] = [] if field.key is None else {}
    alone = [Message("", field.name, "only", [field]) for field in fields]
    compiled = ProtobufMessages([*messages, *alone], CodingError)
    for place, field in enumerate(fields, len(messages)):
        try:
            written = json.loads(compiled.codec(place, format="json").encode(field.absent[1]))
        except Exception:  # of any class: a default need not be of its type, and may be of the user's
            continue
        if written:  # some are sent by leaving the field out
            found[field] = written[field.json_name]
    return found
