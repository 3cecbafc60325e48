"""The ``.proto`` of a service."""

from __future__ import annotations

from collections.abc import Iterator

from .messages import EnumType, Field, Message
from .service import Rpc, ServiceMessages

__all__ = ["proto_text"]


def proto_text(service: ServiceMessages) -> str:
    """The service as protoc reads it: proto3, with the docstrings as comments."""
    lines = ['syntax = "proto3";', ""]
    if service.package:
        lines += [f"package {service.package};", ""]
    if service.builder.imports:
        lines += [*(f'import "{name}";' for name in sorted(service.builder.imports)), ""]
    lines += [*_comment(service.doc), f"service {service.name} {{"]
    for rpc in service.rpcs:
        lines += [f"  {line}" for line in _comment(rpc.method.doc)]
        lines.append(f"  {_rpc(service, rpc)}")
    lines.append("}")
    for message in service.messages:
        lines += ["", *_message(message)]
    for enum in service.builder.enums.values():
        lines += ["", *_enum(enum)]
    return "\n".join(lines) + "\n"


def _rpc(service: ServiceMessages, rpc: Rpc) -> str:
    methods = {rpc.name for rpc in service.rpcs}

    def named(place: int) -> str:
        name = service.builder.messages[place].proto_name
        # Within a service the name of a method hides a message of the same name.
        return f".{service.package}.{name}".replace("..", ".") if name in methods else name

    request = ("stream " if rpc.streams_in else "") + named(rpc.declared)
    response = ("stream " if rpc.method.streams_out else "") + named(rpc.response)
    declared = f"rpc {rpc.name}({request}) returns ({response})"
    if rpc.method.no_side_effects:
        # Clients of Connect can call such a method by GET.
        return f"{declared} {{ option idempotency_level = NO_SIDE_EFFECTS; }}"
    return f"{declared};"


def _message(message: Message) -> Iterator[str]:
    yield from _comment(message.doc)
    if not message.fields:
        yield f"message {message.proto_name} {{}}"
        return
    yield f"message {message.proto_name} {{"
    if message.form == "oneof":
        yield f"  oneof {message.oneof} {{"
        for field in message.fields:
            yield f"    {field.element.proto} {field.proto_name} = {field.number};{_note(field)}"
        yield "  }"
    else:
        for field in message.fields:
            yield f"  {field.declared}{_note(field)}"
    yield "}"


def _note(field: Field) -> str:
    return f"  // {field.element.note}" if field.element.note else ""


def _enum(enum: EnumType) -> Iterator[str]:
    yield from _comment(enum.doc)
    yield f"enum {enum.name} {{"
    for name, number in enum.values:
        yield f"  {name} = {number};"
    yield "}"


def _comment(doc: str | None) -> Iterator[str]:
    for line in (doc or "").splitlines():
        yield f"// {line}".rstrip()
