"""Reflection, asked by grpcio's own client, by grpcurl and by hand."""

from __future__ import annotations

import dataclasses
import datetime
import enum
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

import nearcall
from nearcall.reflection import ReflectionRequest, ServerReflection

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""
GRPCURL = shutil.which("grpcurl", path=os.pathsep.join((os.environ["PATH"], str(Path.home() / "go/bin"))))
OWN = [
    "grpc.health.v1.Health",
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
]


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Item:
    name: str
    price: float = 1.0
    size: Size = Size.SMALL
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    since: datetime.datetime | None = None


@nearcall.service(name="shop.v1.Shop")
class Shop:
    def find(self, name: str) -> Item:
        return Item(name, 2.5, Size.LARGE, {"n": 1}, datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc))

    def all(self, n: int) -> Iterator[Item]:
        for number in range(n):
            yield Item(str(number))


@nearcall.service(name="shop.v1.Stock")
class Stock:
    def put(self, item: Item, count: int | str) -> None: ...


@nearcall.service
class Other:
    async def echo(self, text: str) -> str:
        return text


def target(server: nearcall.Server) -> str:
    return server.urls[0].removeprefix("grpc://")


@pytest.fixture(params=["threads", "loop"])
def server(request: pytest.FixtureRequest) -> Iterator[nearcall.Server]:
    services = [Shop(), Stock()] + ([Other()] if request.param == "loop" else [])
    with nearcall.Server(*services, "grpc://127.0.0.1:0") as server:
        yield server


@pytest.fixture
def channel(server: nearcall.Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(target(server)) as channel:
        yield channel


def test_services_are_listed(channel: grpc.Channel) -> None:
    database: Any = ProtoReflectionDescriptorDatabase(channel)
    served = [name for name in database.get_services() if name != "Other"]
    assert served == [*OWN, "shop.v1.Shop", "shop.v1.Stock"]


def test_a_client_without_any_proto_can_call(channel: grpc.Channel) -> None:
    """As grpcurl does: all that it knows of the messages comes from the server."""
    database: Any = ProtoReflectionDescriptorDatabase(channel)
    pool = descriptor_pool.DescriptorPool(database)  # type: ignore[no-untyped-call]
    service = pool.FindServiceByName("shop.v1.Shop")  # type: ignore[no-untyped-call]
    method = service.methods_by_name["Find"]
    request: Any = message_factory.GetMessageClass(method.input_type)
    reply: Any = message_factory.GetMessageClass(method.output_type)
    find = channel.unary_unary(
        "/shop.v1.Shop/Find", request_serializer=request.SerializeToString, response_deserializer=reply.FromString
    )
    found = find(request(name="pen"), timeout=PATIENCE)
    assert (found.name, found.price, dict(found.tags), found.since.seconds) == ("pen", 2.5, {"n": 1}, 1767225600)
    assert method.output_type.fields_by_name["size"].enum_type.values_by_number[found.size].name == "SIZE_LARGE"
    assert found.HasField("price")


def test_everything_that_is_declared_is_found(channel: grpc.Channel) -> None:
    database: Any = ProtoReflectionDescriptorDatabase(channel)
    file = database.FindFileContainingSymbol("shop.v1.Shop")
    assert file.name == "shop/v1/Shop.proto"
    assert [service.name for service in file.service] == ["Shop", "Stock"], "they share their messages"
    assert [message.name for message in file.message_type].count("Item") == 1
    for symbol in ("Stock", "Stock.Put", "Item", "Item.price", "Item.TagsEntry", "Item.TagsEntry.key", "Size"):
        assert database.FindFileContainingSymbol(f"shop.v1.{symbol}").name == file.name, symbol
    assert database.FindFileContainingSymbol("shop.v1.SIZE_LARGE").name == file.name
    for symbol in (*OWN, "google.protobuf.Timestamp", "grpc.health.v1.HealthCheckResponse.ServingStatus"):
        assert database.FindFileContainingSymbol(symbol)
    assert database.FindFileByName("google/protobuf/timestamp.proto").package == "google.protobuf"
    for unknown in ("shop.v1.Nothing", "", "shop", "x" * 100_000):
        with pytest.raises(KeyError):
            database.FindFileContainingSymbol(unknown)
    with pytest.raises(KeyError):
        database.FindFileByName("shop/v1/nothing.proto")


def asked(channel: grpc.Channel, *requests: reflection_pb2.ServerReflectionRequest) -> list[Any]:
    stub: Any = reflection_pb2_grpc.ServerReflectionStub(channel)
    return list(stub.ServerReflectionInfo(iter(requests), timeout=PATIENCE))


def test_each_question_of_a_stream_has_its_answer(channel: grpc.Channel) -> None:
    ask: Any = reflection_pb2.ServerReflectionRequest
    extension = reflection_pb2.ExtensionRequest(containing_type="shop.v1.Item", extension_number=7)
    questions = [
        ask(host="here", file_containing_symbol="shop.v1.Shop"),
        ask(file_containing_symbol="shop.v1.Shop"),
        ask(file_by_filename="nothing"),
        ask(file_containing_extension=extension),
        ask(all_extension_numbers_of_type="shop.v1.Item"),
        ask(all_extension_numbers_of_type="nothing"),
        ask(),
        ask(list_services=""),
    ]
    answers = asked(channel, *questions)
    assert [answer.original_request for answer in answers] == questions
    kinds = [answer.WhichOneof("message_response") for answer in answers]
    files, error, numbers = "file_descriptor_response", "error_response", "all_extension_numbers_response"
    assert kinds == [files, files, error, error, numbers, error, error, "list_services_response"]
    assert answers[0].valid_host == "here"
    # Imports come with a file, once.
    assert [len(answer.file_descriptor_response.file_descriptor_proto) for answer in answers[:2]] == [2, 1]
    assert [answer.error_response.error_code for answer in answers if answer.HasField(error)] == [5, 5, 5, 3]
    assert answers[4].all_extension_numbers_response.base_type_name == "shop.v1.Item"


def test_our_client_asks_any_server(server: nearcall.Server) -> None:
    with nearcall.connect(server.urls[0], ServerReflection) as reflection:
        (answer,) = reflection.server_reflection_info(iter([ReflectionRequest(list_services="")]))
        assert answer.list_services_response is not None
        assert "shop.v1.Shop" in [service.name for service in answer.list_services_response.service]


def test_it_can_be_switched_off() -> None:
    with nearcall.Server(Shop(), "grpc://127.0.0.1:0", reflection=False) as server:
        with grpc.insecure_channel(target(server)) as channel, pytest.raises(grpc.RpcError) as caught:
            asked(channel, reflection_pb2.ServerReflectionRequest(list_services=""))
        error: Any = caught.value
        assert error.code() is grpc.StatusCode.UNIMPLEMENTED


def test_interceptors_are_around_it() -> None:
    def refuse(call: Any, proceed: Any) -> Any:
        raise nearcall.Unauthenticated("no token")

    async def refuse_in_loop(call: Any, proceed: Any) -> Any:
        raise nearcall.Unauthenticated("no token")

    for service, interceptor in ((Shop(), refuse), (Other(), refuse), (Other(), refuse_in_loop)):
        with nearcall.Server(service, "grpc://127.0.0.1:0", interceptors=[interceptor]) as server:
            with grpc.insecure_channel(target(server)) as channel, pytest.raises(grpc.RpcError) as caught:
                asked(channel, reflection_pb2.ServerReflectionRequest(list_services=""))
            error: Any = caught.value
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED


def test_services_whose_messages_are_others_have_files_of_their_own() -> None:
    def made(name: str, fields: dict[str, type]) -> object:
        item = dataclasses.make_dataclass("Item", fields.items())

        def get(self: object) -> Any: ...

        get.__annotations__ = {"return": item}
        return nearcall.service(name=name)(type(name.rpartition(".")[2], (), {"get": get}))()

    services = [made("shop.A", {"a": int}), made("shop.B", {"b": str}), made("shop.C", {"a": int})]
    with nearcall.Server(*services, "grpc://127.0.0.1:0") as server, grpc.insecure_channel(target(server)) as channel:
        databases: list[Any] = [ProtoReflectionDescriptorDatabase(channel) for _ in "ABC"]
        files = [each.FindFileContainingSymbol(f"shop.{name}") for name, each in zip("ABC", databases, strict=True)]
        assert [file.name for file in files] == ["shop/A.proto", "shop/B.proto", "shop/A.proto"]
        (message,) = (message for message in files[1].message_type if message.name == "Item")
        assert (message.name, message.field[0].name) == ("Item", "b")


@pytest.mark.skipif(GRPCURL is None, reason="go install github.com/fullstorydev/grpcurl/cmd/grpcurl@latest")
def test_grpcurl(server: nearcall.Server) -> None:
    def grpcurl(*arguments: str) -> str:
        command = [str(GRPCURL), "-plaintext", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
        assert done.returncode == 0, done.stderr
        return done.stdout

    listed = grpcurl(target(server), "list").split()
    assert {*OWN, "shop.v1.Shop", "shop.v1.Stock"} <= set(listed)
    assert "rpc Find ( .shop.v1.ShopFindRequest ) returns ( .shop.v1.Item );" in grpcurl(
        target(server), "describe", "shop.v1.Shop"
    )
    for name in listed:
        assert grpcurl(target(server), "describe", name)
    found = json.loads(grpcurl("-d", '{"name": "pen"}', target(server), "shop.v1.Shop/Find"))
    assert found == {
        "name": "pen",
        "price": 2.5,
        "size": "SIZE_LARGE",
        "tags": {"n": "1"},
        "since": "2026-01-01T00:00:00Z",
    }
    assert json.loads(grpcurl(target(server), "grpc.health.v1.Health/Check")) == {"status": "SERVING"}
