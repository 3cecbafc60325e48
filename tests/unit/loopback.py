"""Calls without a transport: does with the plans what the compiled core does with them, in plain Python."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from nearcall.codec.msgpack.wide import or_again
from nearcall.codec.protocol import BUFFER_FORMS, CODED, NOTHING, PARTS
from nearcall.service.agreement import agree
from nearcall.service.describing import describe
from nearcall.service.dynamic import described_services
from nearcall.service.plan import ArgumentsPlan, MethodPlan, ServicePlan, ValuePlan
from nearcall.service.reading import read_description
from nearcall.service.service import plan_of

ARRIVES_AS: dict[str, type] = {"bytes": bytes, "bytearray": bytearray, "memoryview": memoryview}


def send_value(plan: ValuePlan, value: Any) -> tuple[bytes, list[memoryview]]:
    if type(value) not in plan.accepts and plan.check is not None:
        plan.check(value)
    if plan.coding.form == NOTHING:
        return b"", []
    if plan.coding.form in BUFFER_FORMS:
        return bytes(memoryview(value)), []
    assert plan.coding.encode is not None
    try:
        encoded = or_again(plan.coding.encode, plan.coding.encode_again)(value)
    except Exception as error:
        raise plan.coding.encode_error(error) from error
    return (encoded, []) if plan.coding.form == CODED else carry(encoded)


def receive_value(plan: ValuePlan, body: bytes, buffers: list[memoryview]) -> Any:
    if plan.coding.form == NOTHING:
        return None
    if plan.coding.form in BUFFER_FORMS:
        return ARRIVES_AS[plan.coding.form](body)
    assert plan.coding.decode is not None
    try:
        given = (body,) if plan.coding.form == CODED else (body, buffers)
        return or_again(plan.coding.decode, plan.coding.decode_again)(*given)
    except Exception as error:
        raise plan.coding.decode_error(error) from error


def carry(parts: tuple[bytes, list[memoryview]]) -> tuple[bytes, list[memoryview]]:
    """What the far side gets: copies, as flat bytes."""
    return parts[0], [memoryview(bytes(buffer)) for buffer in parts[1]]


def carry_arguments(
    client: ArgumentsPlan, server: ArgumentsPlan, bound: tuple[Any, ...] | dict[str, Any], *, named: bool = False
) -> tuple[Any, ...]:
    """Encodes arguments as the client would and decodes them as the server would."""
    values = bound if isinstance(bound, dict) else dict(zip(client.names, bound, strict=True))
    for index, name in enumerate(client.names):
        if name in values and type(values[name]) not in client.accepts[index]:
            client.check_at(index, values[name])
    if named or isinstance(bound, dict):
        assert client.encode_named is not None
        assert server.coding.decode_named is not None
        try:
            body, buffers = carry(client.encode_named(values))
        except Exception as error:
            raise client.coding.encode_error(error, values) from error
        try:
            return server.coding.decode_named(body, buffers)
        except Exception as error:
            raise server.coding.decode_error(error) from error
    if not client.names:
        return ()
    coded = tuple(value for value, form in zip(bound, client.coding.forms, strict=True) if form not in BUFFER_FORMS)
    body, nested = b"", []
    if coded:
        try:
            encoded = or_again(client.coding.encode, client.coding.encode_again)(coded)
        except Exception as error:
            raise client.coding.encode_error(error, coded) from error
        body, nested = carry(encoded) if PARTS in client.coding.forms else (encoded, [])
        try:
            given = (body, nested) if PARTS in server.coding.forms else (body,)
            coded = or_again(server.coding.decode, server.coding.decode_again)(*given)
        except Exception as error:
            raise server.coding.decode_error(error) from error
    decoded = iter(coded)
    return tuple(
        next(decoded) if form not in BUFFER_FORMS else ARRIVES_AS[form](bytes(memoryview(value)))
        for value, form in zip(bound, server.coding.forms, strict=True)
    )


class Loopback:
    """A client of an object in the same process. Without a class it is a dynamic client."""

    def __init__(self, served: object, cls: type | None = None) -> None:
        self._served = served
        self._server: ServicePlan = plan_of(type(served))
        self.description: dict[str, Any] = json.loads(json.dumps(describe([self._server])))
        self._client = (
            described_services(read_description(self.description))[0].whole() if cls is None else plan_of(cls)
        )
        self._agreed = agree(self._client, read_description(self.description))

    def __getattr__(self, name: str) -> Any:
        for plan in self._client.methods:
            if plan.name == name:
                return lambda *args, **kwargs: self._call(plan, args, kwargs)
        raise AttributeError(name)

    def _call(self, plan: MethodPlan, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        number, plan, *_ = self._agreed[plan.name]
        server = self._server.methods[number]
        bound, stream = plan.split(args, kwargs)
        values = list(carry_arguments(plan.arguments, server.arguments, bound, named=plan.always_named))
        if plan.request_item is not None and server.request_item is not None:
            values.insert(server.stream_position, _carried(plan.request_item, server.request_item, stream))
        result = server.adapt(getattr(self._served, server.name))(*values)
        if plan.kind in ("server_stream", "bidi_stream"):
            return _carried(server.reply, plan.reply, result)
        return None if plan.kind == "oneway" else next(_carried(server.reply, plan.reply, [result]))


def _carried(sender: ValuePlan, receiver: ValuePlan, values: Any) -> Iterator[Any]:
    for value in values:
        body, buffers = send_value(sender, value)
        if sender.coding.form == PARTS and receiver.coding.form == CODED:
            assert not buffers
        yield receive_value(receiver, body, buffers)
