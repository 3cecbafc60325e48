"""The command line at servers of gRPC, which say by reflection what they serve: nearcall's, grpcio's, hostile ones."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import enum
import importlib.util
import json
import sys
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

import nearcall
from nearcall.cli import main
from nearcall.codec.protobuf.descriptor import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    OneofDescriptorProto,
    ServiceDescriptorProto,
    codec_of,
)
from nearcall.codec.protobuf.sources import FileSource
from nearcall.reflection import ReflectionRequest, ReflectionResponse, ServerReflection
from nearcall.reflection.asking import Described
from nearcall.reflection.service import ErrorResponse, FileDescriptorResponse, ListServiceResponse, ServiceResponse


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


@dataclasses.dataclass
class Item:
    name: str
    user_id: int = 0
    price: float = 0.0
    size: Size = Size.SMALL
    tags: dict[str, int] = dataclasses.field(default_factory=dict)
    since: datetime.datetime | None = None
    data: bytes = b""
    parts: list[Item] = dataclasses.field(default_factory=list)


@nearcall.service(name="shop.v1.Shop")
class Shop:
    def add(self, a: int, b: int) -> int:
        return a + b

    def echo(self, item: Item) -> Item:
        return item

    def total(self, xs: Iterator[int]) -> int:
        return sum(xs)

    def count(self, n: int) -> Iterator[int]:
        yield from range(n)

    def both(self, xs: Iterator[int]) -> Iterator[int]:
        yield from xs

    def fail(self) -> None:
        raise nearcall.NotFound("gone")

    def told(self) -> str:
        return str(nearcall.context().metadata.get("who"))


@nearcall.service
class Other:
    def add(self, a: int) -> int:
        return a


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with nearcall.Server(Shop(), Other(), "grpc://127.0.0.1:0") as server:
        yield server.urls[0]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Any:
    def call(*argv: str) -> tuple[int, str, str]:
        status = main(argv)
        out, err = capfd.readouterr()
        return status, out, err

    return call


def test_list(run: Any, url: str) -> None:
    status, out, err = run("list", url)
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert {"shop.v1.Shop", "Other", "grpc.health.v1.Health"} <= set(lines)
    assert "  count(request: ShopCountRequest) -> Iterator[ShopCountResponse]" in lines
    assert "  type ShopAddRequest(a: int = ..., b: int = ...)" in lines
    assert not any("reflection" in line for line in lines)
    status, out, _ = run("list", url, "--json")
    assert status == 0
    assert [each["name"] for each in json.loads(out)["services"]] == ["Other", "grpc.health.v1.Health", "shop.v1.Shop"]


@pytest.mark.parametrize(
    ("method", "message", "out"),
    [
        ("shop.v1.Shop.add", '{"a": 1, "b": "2"}', '{"value":3}\n'),
        ("Shop/Add", '{"a": 1}', '{"value":1}\n'),
        ("shop.v1.Shop/Count", '{"n": 2}', '{"value":0}\n{"value":1}\n'),
        ("total", '[{"xs": 1}, {"xs": 5}]', '{"value":6}\n'),
        ("both", "[]", ""),
        ("both", '[{"xs": 7}]', '{"value":7}\n'),
        ("Shop.told", "{}", '{"value":"ada"}\n'),
        ("Health/Check", "{}", '{"status":"SERVING"}\n'),
    ],
)
def test_call(run: Any, url: str, method: str, message: str, out: str) -> None:
    assert run("call", url, method, message, "-m", "who=ada") == (0, out, "")


def test_all_that_a_message_has(run: Any, url: str) -> None:
    item = {
        "name": "pen",
        "userId": "9007199254740993",
        "price": 1,
        "size": "LARGE",
        "tags": {"a": 1},
        "since": "2026-01-01T00:00:00Z",
        "data": {"base64": "/w=="},
        "parts": [{"name": "tip", "size": 1, "since": None}],
    }
    status, out, err = run("call", url, "echo", json.dumps(item))
    assert (status, err) == (0, "")
    assert json.loads(out) == {
        "name": "pen",
        "user_id": 9007199254740993,
        "price": 1.0,
        "size": "LARGE",
        "tags": {"a": 1},
        "since": "2026-01-01T00:00:00Z",
        "data": {"base64": "/w=="},
        "parts": [{"name": "tip", "user_id": 0, "price": 0.0, "size": "SMALL", "tags": {}, "data": "", "parts": []}],
    }


@pytest.mark.parametrize(
    ("method", "message", "words"),
    [
        ("Shop.add", '{"c": 1}', "ShopAddRequest has no field 'c': it has a, b"),
        ("Shop.add", "[1, 2]", "a method of gRPC takes one message: write it as an object, like '{\"a\": 1}'"),
        ("total", '{"xs": 1}', "the method takes a stream of messages: write a list, or leave it out"),
        ("total", "[1]", "ShopTotalRequest takes an object with fields, not 1"),
        ("echo", '{"parts": [{"nme": 1}]}', "Item.parts[0] has no field 'nme': did you mean 'name'?"),
        ("echo", '{"size": "HUGE"}', 'Item.size takes one of UNSPECIFIED, SMALL, LARGE, not "HUGE"'),
        ("echo", '{"size": 9}', "Item.size: 9 is not a valid Size"),
        ("echo", '{"tags": [1]}', "Item.tags takes an object, not [1]"),
        ("echo", '{"tags": {"a": "b"}}', "Item.tags['a']: Expected `int`, got `str`"),
        ("echo", '{"parts": 1}', "Item.parts takes a list, not 1"),
        ("echo", '{"since": "x"}', "Item.since: Invalid RFC3339"),
        ("echo", '{"data": {"base64": "?"}}', "Item.data: malformed base64"),
        ("add", '{"a": 1}', "several services have a method 'add': write one of "),
        ("Shop.ad", "{}", "the server has no method 'Shop.ad': did you mean shop.v1.Shop.add?"),
    ],
)
def test_mistakes_in_a_call(run: Any, url: str, method: str, message: str, words: str) -> None:
    status, out, err = run("call", url, method, message)
    assert (status, out) == (2, "")
    assert err.startswith(f"nearcall: {words}"), err
    assert err.count("\n") == 1


def test_a_failure_of_the_method(run: Any, url: str) -> None:
    assert run("call", url, "fail") == (1, "", "nearcall: NOT_FOUND: gone\n")


def test_ping(run: Any, url: str) -> None:
    status, out, err = run("ping", url, "-n", "2", "-i", "0")
    assert (status, err, len(out.splitlines())) == (0, "", 3)


def test_what_reflection_does_not_say(run: Any, url: str) -> None:
    words = "servers tell this only at nearcall's own URLs: give another of its URLs"
    assert run("top", url, "--once") == (2, "", f"nearcall: {url}: {words}\n")
    for command in ("stub", "list"):
        status, out, err = run(command, "http://127.0.0.1:1")
        assert (status, out) == (2, "")
        assert "grpc://" in err
    with nearcall.Server(Shop(), "grpc://127.0.0.1:0", reflection=False) as server:
        status, out, err = run("list", server.urls[0])
        assert (status, out) == (1, "")
        assert err == "nearcall: FAILED_PRECONDITION: the server does not say what it serves: it has no reflection\n"


def test_tokens_are_for_reflection_too(run: Any, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    guard = nearcall.auth.token("secret")
    with nearcall.Server(Shop(), "grpc://127.0.0.1:0", interceptors=[guard]) as server:
        status, _, err = run("list", server.urls[0])
        assert (status, "UNAUTHENTICATED" in err) == (1, True)
        flags = ("--token-file", str(tmp_path / "token"))
        assert run("call", server.urls[0], "Shop/Add", '{"a": 2}', *flags) == (0, '{"value":2}\n', "")


def test_a_stub_of_a_server_is_a_client_in_a_loop(
    run: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = stub_of(run, url, "--async", path=tmp_path, monkeypatch=monkeypatch)

    async def requests() -> AsyncIterator[Any]:
        for number in range(3):
            yield module.ShopTotalRequest(xs=number)

    async def call() -> None:
        async with nearcall.aio.connect(url, module.AsyncShop) as shop:
            assert (await shop.add(module.ShopAddRequest(a=1, b=2))).value == 3
            assert [reply.value async for reply in shop.count(module.ShopCountRequest(n=2))] == [0, 1]
            assert (await shop.total(requests())).value == 3

    asyncio.run(call())
    with pytest.raises(TypeError, match="AsyncShop is an interface for event loops"):
        nearcall.connect(url, module.AsyncShop)
    path = tmp_path / "made_of_a_server.py"
    assert run("stub", "--async", "--check", str(path), url)[0] == 0
    assert run("stub", "--check", str(path), url)[0] == 1


def stub_of(run: Any, *arguments: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module that the command writes, imported."""
    status, out, err = run("stub", *arguments)
    assert (status, err) == (0, "")
    assert "class Health" not in out, "everybody has it"
    (path / "made_of_a_server.py").write_text(out)
    spec = importlib.util.spec_from_file_location("made_of_a_server", path / "made_of_a_server.py")
    assert spec is not None
    assert spec.loader is not None
    module: Any = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "made_of_a_server", module)
    spec.loader.exec_module(module)
    return module


def test_a_stub_of_a_server_is_a_client(run: Any, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = stub_of(run, url, path=tmp_path, monkeypatch=monkeypatch)
    with nearcall.connect(url, module.Shop) as shop:
        assert shop.add(module.ShopAddRequest(a=1, b=2)).value == 3
        assert shop.echo(module.Item(name="x", size=module.Size.LARGE)).size is module.Size.LARGE


def test_a_server_of_grpcio(run: Any) -> None:
    server = grpc.server(ThreadPoolExecutor(2))
    servicer = health.HealthServicer()
    servicer.set("shop", health_pb2.HealthCheckResponse.NOT_SERVING)
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)  # type: ignore[no-untyped-call]
    reflection.enable_server_reflection(("grpc.health.v1.Health", reflection.SERVICE_NAME), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        url = f"grpc://127.0.0.1:{port}"
        status, out, err = run("list", url)
        assert (status, err) == (0, "")
        assert "  check(request: HealthCheckRequest) -> HealthCheckResponse" in out.splitlines()
        assert run("call", url, "check", '{"service": "shop"}') == (0, '{"status":"NOT_SERVING"}\n', "")
        status, out, err = run("call", url, "check", '{"service": "other"}')
        assert (status, out, "NOT_FOUND" in err) == (1, "", True)
        assert run("ping", url, "-n", "1")[0] == 0
    finally:
        server.stop(None)


# --- What a hostile server says must not become part of a program.

HARM = 'x"""\nraise SystemExit("harm")\n"""'


def described(**changes: Any) -> FileDescriptorProto:
    """A file with one of everything; ``changes`` are of its names."""
    name = {each: each for each in ("Ask", "Kind", "NONE", "text", "group", "Harm", "Do", "harm")} | changes
    message = DescriptorProto(
        name=name["Ask"],
        field=[
            FieldDescriptorProto(
                name=name["text"], number=changes.get("number", 1), type=9, oneof_index=changes.get("oneof", 0)
            ),
            FieldDescriptorProto(
                name="kind", number=2, type=changes.get("type", 14), type_name=changes.get("named", ".harm.Kind")
            ),
        ],
        oneof_decl=[OneofDescriptorProto(name["group"])],
    )
    ask = f".harm.{name['Ask']}"
    return FileDescriptorProto(
        name=changes.get("file", "harm.proto"),
        package=name["harm"],
        dependency=changes.get("imports", []),
        message_type=[message] * changes.get("times", 1),
        enum_type=[EnumDescriptorProto(name["Kind"], [EnumValueDescriptorProto(name["NONE"], 0)])],
        service=[ServiceDescriptorProto("Harm", [MethodDescriptorProto(name["Do"], changes.get("asked", ask), ask)])],
    )


class Hostile(ServerReflection):
    def __init__(self) -> None:
        self.files: list[bytes] = []
        self.listed = ["harm.Harm"]
        self.error: ErrorResponse | None = None

    def server_reflection_info(self, requests: Iterator[ReflectionRequest]) -> Iterator[ReflectionResponse]:
        for request in requests:
            if self.error is not None:
                yield ReflectionResponse(error_response=self.error)
            elif request.list_services is not None:
                services = [ServiceResponse(name) for name in self.listed]
                yield ReflectionResponse(list_services_response=ListServiceResponse(services))
            else:
                yield ReflectionResponse(file_descriptor_response=FileDescriptorResponse(self.files))


@pytest.fixture(scope="module")
def hostile() -> Iterator[tuple[Hostile, str]]:
    answering = Hostile()
    with nearcall.Server(answering, "grpc://127.0.0.1:0") as server:
        yield answering, server.urls[0]


def encoded(file: FileDescriptorProto) -> bytes:
    return codec_of(FileDescriptorProto).encode(file)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, None),
        ({"Ask": HARM}, 'a type in the file is called \'x"""'),
        ({"Kind": "K: pass"}, "a type in the file is called 'K: pass', which is no name"),
        ({"NONE": "A = 1; B"}, "a value of Kind is called 'A = 1; B', which is no name"),
        ({"text": "a: int\n    b"}, "a field of Ask is called 'a: int"),
        ({"NONE": "_ignore_", "text": "__class__", "Ask": "__init__", "Kind": "sum", "named": ".harm.sum"}, None),
        ({"text": "kind"}, "a field of Ask is called 'kind', and so is another one"),
        ({"text": "ﬁeld"}, "which is no name"),
        ({"group": HARM}, "a oneof of Ask is called"),
        ({"Do": "Do(self): pass"}, "a method of Harm is called 'Do(self): pass', which is no name"),
        ({"file": HARM}, "a file is called"),
        ({"oneof": 7}, "Ask.text is in a oneof that is missing"),
        ({"oneof": -1}, "Ask.text is in a oneof that is missing"),
        ({"type": 99}, "Ask.kind has a type of the number 99, which nobody knows"),
        ({"named": ".harm.Ask"}, "Ask.kind names a type '.harm.Ask', which is missing"),
        ({"type": 11}, "Ask.kind names a type '.harm.Kind', which is missing"),
        ({"asked": ".harm.No\x1b"}, "Harm.Do names a message '.harm.No\\x1b', which is missing"),
        ({"times": 2}, "a type in the file is called 'Ask', and so is another one"),
        ({"number": 19_000}, "Ask.text has the number 19000, which no field may have"),
        ({"number": -1}, "Ask.text has the number -1, which no field may have"),
        ({"number": 2}, "two fields of Ask have the number 2"),
    ],
)
def test_names_that_are_none(
    run: Any, hostile: tuple[Hostile, str], changes: dict[str, Any], words: str | None
) -> None:
    answering, url = hostile
    answering.files = [encoded(described(**changes))]
    status, out, err = run("list", url)
    assert status == 0
    if words is None:
        ask = changes.get("Ask", "Ask").replace("__init__", "Harm__init__")  # after its package
        assert (out.startswith(f"harm.Harm\n  do(request: {ask}) -> {ask}"), err) == (True, "")
        return
    assert out == ""
    assert words in err
    assert err.startswith(f"nearcall: {url}: harm.Harm left out: ")
    assert err.count("\n") == 1
    assert "\x1b" not in err
    status, out, err = run("stub", url)
    assert (status, out, words in err) == (1, "", True)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([b"\xff\xff"], "describes a file that is none"),
        ([], "lists a service that it does not describe"),
        ([encoded(described(imports=["other.proto"]))], "does not describe a file that is imported"),
    ],
)
def test_answers_that_are_none(run: Any, hostile: tuple[Hostile, str], files: list[bytes], words: str) -> None:
    answering, url = hostile
    answering.files = files
    status, out, err = run("list", url)
    assert (status, out) == (1, "")
    assert words in err


def test_a_file_is_made_of_what_it_imports_alone() -> None:
    files = [
        FileSource(name="c"),
        FileSource(name="wrong"),
        FileSource(name="b", dependency=["c"]),
        FileSource(name="a", dependency=["b"]),
    ]
    described = Described({"A": "a", "W": "wrong"}, files, {})
    assert [file.name for file in described.with_imports("a")] == ["c", "b", "a"]
    assert [file.name for file in described.with_imports("wrong")] == ["wrong"]


def test_files_that_import_each_other_end(run: Any, hostile: tuple[Hostile, str]) -> None:
    answering, url = hostile
    other = FileDescriptorProto(name="other.proto", dependency=["harm.proto", "other.proto"])
    answering.files = [encoded(described(imports=["other.proto"])), encoded(other)]
    assert run("list", url)[0] == 0


def test_services_that_import_too_much_are_refused(run: Any, hostile: tuple[Hostile, str]) -> None:
    """Each module is made of all that its file imports, which is read again for each of them."""
    answering, url = hostile
    names = [f"s{number}" for number in range(40)]
    large = FileDescriptorProto(name="large.proto", message_type=[DescriptorProto(name="A" * (2 << 20))])
    files = [large]
    for name in names:
        method = MethodDescriptorProto("Do", f".{name}.Ask", f".{name}.Ask")
        files.append(
            FileDescriptorProto(
                name=f"{name}.proto",
                package=name,
                dependency=["large.proto"],
                message_type=[DescriptorProto(name="Ask")],
                service=[ServiceDescriptorProto("Harm", [method])],
            )
        )
    answering.files = [encoded(file) for file in files]
    answering.listed = [f"{name}.Harm" for name in names]
    try:
        status, out, err = run("list", url)
    finally:
        answering.listed = ["harm.Harm"]
    assert (status, out) == (1, "")
    assert "import each other too often: its services need more than 64 MiB" in err
    assert err.count("\n") == 1


def test_a_service_without_methods_leaves_the_others(run: Any, hostile: tuple[Hostile, str]) -> None:
    answering, url = hostile
    file = described()
    file.service.append(ServiceDescriptorProto("Empty", []))
    answering.files = [encoded(file)]
    answering.listed = ["harm.Harm", "harm.Empty"]
    try:
        status, out, err = run("list", url)
    finally:
        answering.listed = ["harm.Harm"]
    assert (status, out.startswith("harm.Harm\n")) == (0, True)
    assert err == f"nearcall: {url}: harm.Empty left out: it has no methods\n"


def test_an_error_of_reflection_is_told(run: Any, hostile: tuple[Hostile, str]) -> None:
    answering, url = hostile
    answering.error = ErrorResponse(14, "later\x1b[2J")
    try:
        status, out, err = run("list", url)
    finally:
        answering.error = None
    assert (status, out) == (1, "")
    assert err == "nearcall: FAILED_PRECONDITION: the server's reflection answers with UNAVAILABLE: later\\x1b[2J\n"
