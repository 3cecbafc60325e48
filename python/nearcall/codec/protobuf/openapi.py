"""Services as OpenAPI describes them: what ``http://`` serves in JSON, for tools of other worlds.

Its schemas are those of Protobuf's JSON, made of the same messages as the ``.proto``
(:mod:`nearcall.codec.protobuf.text`). What msgspec says of the same types would be another JSON: there an ``int`` is a
number, and a field is called as in Python.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

from ...status import StatusCode
from .messages import Element, EnumType, Field, Message
from .service import Rpc, ServiceMessages
from .well_known import FULL_NAME

__all__ = ["openapi_document"]

_DIGITS: Final = "^-?(0|[1-9][0-9]*)$"
_INFINITE: Final = ["NaN", "Infinity", "-Infinity"]
_INT32: Final = {"type": "integer", "format": "int32", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}
_UINT32: Final = {"type": "integer", "minimum": 0, "maximum": (1 << 32) - 1}
_INT64: Final = {"type": "string", "format": "int64", "pattern": _DIGITS}
_UINT64: Final = {"type": "string", "format": "uint64", "pattern": "^(0|[1-9][0-9]*)$"}
_FLOAT: Final = {"anyOf": [{"type": "number"}, {"enum": _INFINITE}]}
_KINDS: Final[dict[str, dict[str, Any]]] = {
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INT32),
    **dict.fromkeys(("uint32", "fixed32"), _UINT32),
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
of JavaScript are exact up to 53 bits only; in a request they may be numbers as well. A request has no names that are \
unknown here, unless it says connect-protocol-version. Zeros are written; what is absent is left out."""
_ERROR: Final = """\
The call failed. The code decides the status: 400 for invalid_argument, failed_precondition and out_of_range, 401 for \
unauthenticated, 403 for permission_denied, 404 for not_found, 409 for aborted and already_exists, 429 for \
resource_exhausted, 499 for canceled, 501 for unimplemented, 503 for unavailable, 504 for deadline_exceeded, else \
500. A request that is no call has another body, in words: 404, 405 or 415."""


def openapi_document(services: Sequence[ServiceMessages], version: str) -> dict[str, Any]:
    """The document, of OpenAPI 3.1, as plain data.

    Args:
        services: The services.
        version: What it says of the version of the services.

    Raises:
        TypeError: two services have different types of one name.
    """
    paths: dict[str, Any] = {}
    schemas: dict[str, Any] = {}
    streams: list[str] = []
    for service in services:
        writer = _Writer(service)
        for rpc in service.rpcs:
            if rpc.streams_in or rpc.method.streams_out:
                streams.append(f"{service.full_name}/{rpc.name}")
            else:
                paths[f"/{service.full_name}/{rpc.name}"] = writer.path(rpc)
        for name, schema in writer.schemas.items():
            if schemas.setdefault(name, schema) != schema:
                raise TypeError(
                    f"two services have different types of the name {name}: describe each service by itself"
                )
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
                "timeout": _header(
                    "connect-timeout-ms", "The deadline: milliseconds that the call may take.", _TIMEOUT
                ),
                "protocol": _header(
                    "connect-protocol-version", "Unknown names in the request are skipped.", {"const": "1"}
                ),
            },
        },
    }


_TIMEOUT: Final = {"type": "integer", "minimum": 0, "maximum": 9_999_999_999}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "description": description, "schema": schema}


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
    """Writes the methods of a service, and collects the schemas that they name."""

    def __init__(self, service: ServiceMessages) -> None:
        self._service = service
        self._prefix = f"{service.package}." if service.package else ""
        self._enums = {enum.name: enum for enum in service.builder.enums.values()}
        self.schemas: dict[str, Any] = {}

    def path(self, rpc: Rpc) -> dict[str, Any]:
        """What can be asked of the path of a method."""
        place = rpc.request
        request = self._message(place)
        name = f"{self._service.full_name}.{rpc.name}"
        shared: dict[str, Any] = {
            "tags": [self._service.full_name],
            **_described(rpc.method.doc),
            "responses": {
                "200": {"description": "The result.", "content": _json(self._message(rpc.response))},
                "default": {"$ref": "#/components/responses/Error"},
            },
        }
        headers = [{"$ref": f"#/components/parameters/{each}"} for each in ("timeout", "protocol")]
        post = {
            "operationId": name,
            **shared,
            "parameters": headers,
            "requestBody": {"content": _json(request), "required": "required" in self.schemas[request]},
        }
        if not rpc.method.no_side_effects:
            return {"post": post}
        asked: list[Any] = [
            {"name": "encoding", "in": "query", "required": True, "schema": {"const": "json"}},
            {"name": "message", "in": "query", "required": True, "content": _json(request)},
        ]
        return {"get": {"operationId": f"{name}.get", **shared, "parameters": [*asked, headers[0]]}, "post": post}

    def _message(self, place: int) -> str:
        """The name of the schema of a message."""
        message = self._service.builder.messages[place]
        name = self._prefix + message.proto_name
        if name not in self.schemas:
            self.schemas[name] = {}  # it may refer to itself
            self.schemas[name] = self._schema_of(message) | ({"description": message.doc} if message.doc else {})
        return name

    def _schema_of(self, message: Message) -> dict[str, Any]:
        if message.in_json is not None:
            own = _OWN_FORMS.get(str(getattr(message.cls, FULL_NAME)).rpartition(".")[2])
            return self._of_field(message.fields[0]) if own is None else own
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
        schema = self._of_element(field.element)
        if field.key is not None:
            return {"type": "object", "additionalProperties": schema}
        if field.shape in ("list", "tuple"):
            return {"type": "array", "items": schema}
        if field.shape in ("set", "frozenset"):
            return {"type": "array", "items": schema, "uniqueItems": True}
        return schema | dict(_default(field))

    def _of_element(self, element: Element) -> dict[str, Any]:
        kind = element.kind
        if isinstance(kind, int):
            message = _ref(self._message(kind))
            return message if element.from_list is None else {"anyOf": [message, {"type": "array"}]}
        if isinstance(kind, dict):
            return _ref(self._enum(self._enums[element.proto], is_open=element.open_class is not None))
        schema = dict(_KINDS[kind])
        if element.name in _FORMATS:
            schema["format"] = _FORMATS[element.name]
        is_text = schema.get("type") == "string"
        if element.values:
            schema["enum"] = [str(each) for each in element.values] if is_text else list(element.values)
        limits = {_LIMITS[name]: limit for name, limit in element.limits.items()}
        if is_text and kind != "string":
            # The text of a number, or base64: no limit of the value is one of the text.
            notes = [f"{name} {limit}" for name, limit in limits.items()]
        else:
            notes = [] if element.note is None else [element.note]
            schema |= limits
        return schema | ({"description": ", ".join(notes)} if notes else {})

    def _enum(self, enum: EnumType, *, is_open: bool) -> str:
        name = self._prefix + enum.name
        names: dict[str, Any] = {"type": "string", "enum": [each for each, _ in enum.values]}
        schema: dict[str, Any] = {"anyOf": [names, _INT32]} if is_open else names
        self.schemas[name] = schema | ({"description": enum.doc} if enum.doc else {})
        return name


def _described(doc: str | None) -> dict[str, str]:
    if not doc:
        return {}
    first, _, rest = doc.strip().partition("\n\n")
    summary = " ".join(first.split())
    return {"summary": summary, "description": doc.strip()} if rest else {"summary": summary}


def _default(field: Field) -> Iterator[tuple[str, Any]]:
    """What a reader takes an absent value for, where JSON can say it."""
    kind, value = field.absent
    if kind != "value" or not isinstance(field.element.kind, str) or field.element.to is not None:
        return
    if isinstance(value, bool | str) or (isinstance(value, float) and math.isfinite(value)):
        yield "default", value
    elif isinstance(value, int):
        yield "default", str(value) if field.element.kind.endswith("64") else value
