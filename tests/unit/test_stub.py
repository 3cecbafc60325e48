"""Modules that ``nearcall stub`` writes say the same on the wire as the files that they are made of."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from pathlib import Path
from types import ModuleType
from typing import Annotated, Any

import msgspec
import pytest

import nearcall
from nearcall import cli
from nearcall.codec.protobuf.descriptor import codec_of
from nearcall.codec.protobuf.service import ServiceMessages
from nearcall.codec.protobuf.text import proto_text
from nearcall.service.service import plan_of

from .protoc import compiled, compiled_files

message_factory: Any = pytest.importorskip("google.protobuf.message_factory")

EXAMPLE = Path(__file__).parents[2] / "examples/schema_first"
EVERYTHING = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/timestamp.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/wrappers.proto";

// Sizes there are.
enum Size {
  SIZE_UNSPECIFIED = 0;
  SIZE_SMALL = 1;  // the "small" one
  SIZE_LARGE = 5;
}

// An item.
// With two lines, and a \\ in them.
message Item {
  message Part {
    enum Kind { NONE = 0; SOME = 1; }
    Kind kind = 1;
    repeated Part parts = 2;
  }
  reserved 9, 20 to 30;
  reserved "old";
  int32 i32 = 1; int64 i64 = 2; uint32 u32 = 3; uint64 u64 = 4; sint32 s32 = 5; sint64 s64 = 6;
  fixed32 f32 = 7; fixed64 f64 = 8; sfixed32 sf32 = 10; sfixed64 sf64 = 11;
  float f = 12; double d = 13; bool b = 14; string s = 15; bytes data = 16;
  optional int32 oi = 17; optional string os = 18; optional Size osize = 19;
  Size size = 31;
  Part part = 32;
  repeated Part parts = 33;
  repeated int32 numbers = 34;
  repeated Size sizes = 35;
  map<string, int32> counts = 36;
  map<uint32, Part> by_number = 37;
  google.protobuf.Timestamp at = 38;
  google.protobuf.Duration took = 39;
  google.protobuf.Value any = 40;
  google.protobuf.Struct struct = 41;
  google.protobuf.Int64Value wrapped = 42;
  oneof price {
    int64 cents = 43;
    Part in_kind = 44;
    string text = 45;
  }
  string from = 47;
  repeated string list = 48;
  repeated google.protobuf.Timestamp times = 49;
  optional bytes int = 50;
  Item self = 51;
  Part ItemPart = 52;
  map<string, google.protobuf.Value> values = 53;
}
message Part { string name = 1; }

// The shop.
service Shop {
  // Finds one.
  rpc Find(Item) returns (Item) { option idempotency_level = NO_SIDE_EFFECTS; }
  rpc GetURL(google.protobuf.Empty) returns (Part);
  rpc List(Item.Part) returns (stream Item);
  rpc Put(stream Item) returns (google.protobuf.Empty);
  rpc Chat(stream Item) returns (stream Item);
}
"""
LEGACY = """
syntax = "proto2";
package legacy;
message Request {
  required int32 must = 1;
  optional string may = 2 [default = "here"];
  repeated int32 many = 3;
}
service Old { rpc Ask(Request) returns (Request); }
"""
EDITION = """
edition = "2023";
package edition;
message Request {
  int32 told = 1;
  int32 untold = 2 [features.field_presence = IMPLICIT];
  string text = 3;
}
service New { rpc Ask(Request) returns (Request); }
"""
NAMES = """
syntax = "proto2";
package names;
enum Odd { mro = 0; None = 1; _missing_ = 2; __hidden = 3; value = 4; _order = 5; }
message sum { optional int32 a = 1; }
message ValueError { optional int32 a = 1; }
message __debug__ { message None { optional int32 a = 1; } optional None none = 1; }
message _ { message _x { optional Odd odd = 1 [default = mro]; } optional _x _ = 1; }
message int_ { optional int32 a = 1; }
message Request {
  optional int32 int = 1;
  optional int32 class = 3;
  optional int32 __dict__ = 5;
  optional int32 __private = 6;
  optional int32 _ = 7;
  oneof choice { int32 __post_init__ = 8; string __doc__ = 9; }
  optional sum total = 10;
  optional ValueError error = 11;
  optional __debug__ debug = 12;
  optional _._x x = 13;
  optional Odd odd = 14;
  optional int_ other = 15;
}
service Names { rpc Ask(Request) returns (Request); }
"""
_numbers = itertools.count()


def stub(proto: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> ModuleType:
    """The module that the command prints, imported."""
    (folder / "file.proto").write_text(proto, encoding="utf-8")
    assert cli.main(["stub", str(folder / "file.proto")]) == 0
    return imported(capsys.readouterr().out, folder)


def imported(text: str, folder: Path) -> ModuleType:
    """A module of this text."""
    path = folder / f"stub_{next(_numbers)}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look for it
    spec.loader.exec_module(module)
    return module


def printed(service: type) -> str:
    plan = plan_of(service)
    return proto_text(
        ServiceMessages(plan.name, [method.types for method in plan.methods if method.types is not None], plan.doc)
    )


def on_the_wire(proto: str) -> dict[str, Any]:
    """What of a file is seen on the wire: each method, with the shapes of its messages."""
    types: dict[str, Any] = {}
    services: list[tuple[str, Any]] = []

    def collect(scope: str, messages: Any) -> None:
        for message in messages:
            types[f"{scope}.{message.name}"] = message
            collect(f"{scope}.{message.name}", message.nested_type)

    for file in compiled_files(proto).file:
        scope = f".{file.package}" if file.package else ""
        collect(scope, file.message_type)
        services += [(f"{scope}.{service.name}"[1:], service) for service in file.service]

    def shape(name: str, inside: tuple[str, ...]) -> Any:
        if name == ".google.protobuf.Value":  # it is one for both
            return name
        if name in inside:
            return inside.index(name)
        found = {}
        for field in types[name].field:
            inner = shape(field.type_name, (*inside, name)) if field.type == field.TYPE_MESSAGE else None
            told = field.proto3_optional or field.HasField("oneof_index") or field.type == field.TYPE_MESSAGE
            found[field.number] = (field.name, field.type, field.label, bool(told), inner)
        return found

    return {
        f"/{name}/{method.name}": (
            method.client_streaming,
            method.server_streaming,
            method.options.idempotency_level,
            shape(method.input_type, ()),
            shape(method.output_type, ()),
        )
        for name, service in services
        for method in service.method
    }


def test_what_it_declares_is_the_same_on_the_wire(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = stub(EVERYTHING, tmp_path, capsys)
    theirs, ours = on_the_wire(EVERYTHING), on_the_wire(printed(module.Shop))
    assert list(ours) == list(theirs)
    for path, expected in theirs.items():
        assert ours[path] == expected, path


def test_values_go_there_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = stub(EVERYTHING, tmp_path, capsys)
    found: Any = compiled(EVERYTHING).FindMessageTypeByName("shop.v1.Item")  # type: ignore[no-untyped-call]
    theirs: Any = message_factory.GetMessageClass(found)
    codec = codec_of(module.Item)
    assert codec.encode(module.Item()) == b""
    assert codec.decode(b"", 100) == module.Item()
    item = module.Item(
        i32=-1, u64=2**64 - 1, f=0.5, s="ü", oi=0, os="", osize=module.Size.UNSPECIFIED, size=module.Size.LARGE,
        part=module.ItemPart(kind=module.ItemPartKind.SOME, parts=[module.ItemPart()]), numbers=[0, -5],
        counts={"a": 1}, by_number={7: module.ItemPart()}, any={"a": [None, True]}, cents=0, from_="here",
        list_=["x"], self_=module.Item(b=True), ItemPart_=module.ItemPart(), wrapped=module.Int64Value(value=9),
    )  # fmt: skip
    body = codec.encode(item)
    message = theirs.FromString(body)
    assert message.WhichOneof("price") == "cents"
    assert [message.HasField(name) for name in ("oi", "osize", "ItemPart", "part")] == [True] * 4
    assert getattr(message, "from") == "here"
    assert codec.decode(message.SerializeToString(), 1000) == item


def test_streams_are_a_clients_if_only_clients_have_the_module(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.proto"
    file.write_text(EVERYTHING, encoding="utf-8")
    for flags, item, taken in (
        ([], "collections.abc.Iterator[Item]", "collections.abc.Iterator[Item]"),
        (["--async"], "collections.abc.AsyncIterator[Item]", "collections.abc.AsyncIterator[Item]"),
        (["--client"], "nearcall.Stream[Item]", "collections.abc.Iterable[Item]"),
        (
            ["--async", "--client"],
            "nearcall.aio.AsyncStream[Item]",
            "collections.abc.AsyncIterable[Item] | collections.abc.Iterable[Item]",
        ),
    ):
        assert cli.main(["stub", *flags, str(file)]) == 0
        text = capsys.readouterr().out
        assert (
            text.splitlines()[0]
            == f'"""Made by ``{" ".join(["nearcall stub", *flags])}`` of file.proto; do not edit."""'
        )
        assert f"def list(self, request: ItemPart) -> {item}: ..." in text
        assert f"def put(self, requests: {taken}) -> Empty: ..." in text
        assert f"def chat(self, requests: {taken}) -> {item}: ..." in text
        module = imported(text, tmp_path)
        assert plan_of(module.AsyncShop if "--async" in flags else module.Shop).methods[2].kind == "server_stream"


def test_a_oneof_has_one_member_at_most(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = stub(EVERYTHING, tmp_path, capsys)
    with pytest.raises(ValueError, match="Item: more than one of price is set"):
        module.Item(cents=1, text="one")


def test_comments_are_docstrings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = stub(EVERYTHING, tmp_path, capsys)
    assert module.Shop.__doc__ == "The shop."
    assert module.Shop.find.__doc__ == "Finds one."
    assert module.Size.__doc__ == "Sizes there are."
    assert "With two lines, and a \\ in them." in module.Item.__doc__
    assert "No field may have the numbers 9, 20 to 30." in module.Item.__doc__


@pytest.mark.parametrize(("proto", "name"), [(LEGACY, "Old"), (EDITION, "New")])
def test_files_of_proto2_and_of_editions(
    proto: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = stub(proto, tmp_path, capsys)
    codec = codec_of(module.Request)
    package = name.lower().replace("old", "legacy").replace("new", "edition")
    found: Any = compiled(proto).FindMessageTypeByName(f"{package}.Request")  # type: ignore[no-untyped-call]
    theirs: Any = message_factory.GetMessageClass(found)
    if name == "Old":
        value = module.Request(must=0, many=[1, 2])
        message = theirs.FromString(codec.encode(value))
        assert (message.must, message.HasField("may"), list(message.many)) == (0, False, [1, 2])
        with pytest.raises(TypeError):
            module.Request()
    else:
        value = module.Request(told=0)
        message = theirs.FromString(codec.encode(value))
        assert (message.HasField("told"), message.HasField("text"), message.untold) == (True, False, 0)
        assert module.Request().untold == 0
    assert codec.decode(message.SerializeToString(), 100) == value


def test_names_that_python_has_a_use_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    module = stub(NAMES, tmp_path, capsys)
    found: Any = compiled(NAMES).FindMessageTypeByName("names.Request")  # type: ignore[no-untyped-call]
    theirs: Any = message_factory.GetMessageClass(found)
    message = theirs()
    for number, field in enumerate(found.fields):
        if field.message_type is not None:
            getattr(message, field.name).SetInParent()
        elif field.name != "__doc__":  # of the oneof one is set
            setattr(message, field.name, 1 + number % 5)
    codec = codec_of(module.Request)
    request = codec.decode(message.SerializeToString(), 1000)
    assert theirs.FromString(codec.encode(request)) == message
    names = [(field.encode_name, field.name) for field in msgspec.structs.fields(module.Request)]
    assert names == [
        *(("int", "int__"), ("class", "class_")),
        *(("__dict__", "field__dict__"), ("__private", "field__private"), ("_", "field_")),
        *(("__post_init__", "field__post_init__"), ("__doc__", "field__doc__"), ("total", "total")),
        *(("error", "error"), ("debug", "debug"), ("x", "x"), ("odd", "odd"), ("other", "other")),
    ]
    assert [*module.Odd.__members__] == ["mro_", "None_", "value_missing_", "value__hidden", "value", "_order"]
    with pytest.raises(ValueError, match="Request: more than one of choice is set"):
        module.Request(field__post_init__=1, field__doc__="")


def test_options_of_a_file_are_passed_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = """
    syntax = "proto3";
    import "google/protobuf/descriptor.proto";
    extend google.protobuf.MethodOptions { string role = 50001; }
    message A {
      extend google.protobuf.FieldOptions { Rule rule = 50002; }
      int32 a = 1 [(A.rule) = { most: 3 }];
    }
    message Rule { int32 most = 1; }
    service S { rpc Get(A) returns (A) { option (role) = "reader"; } }
    """
    module = stub(proto, tmp_path, capsys)
    assert module.__all__ == ["A", "Rule", "S"]


def test_a_service_without_methods_leaves_the_messages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = """
    syntax = "proto3";
    message A { int32 a = 1; }
    service Later {}
    service int {}
    service Now { rpc Get(A) returns (A); }
    """
    module = stub(proto, tmp_path, capsys)
    assert module.__all__ == ["A", "Now"]
    assert module.A(a=1).a == 1
    assert [plan.name for plan in plan_of(module.Now).methods] == ["get"]
    text = Path(str(module.__file__)).read_text(encoding="utf-8")
    assert text.endswith("\n\n# The service int has no methods, so there is no interface for it.\n")


@pytest.mark.parametrize(
    ("proto", "problem"),
    [
        (
            'syntax = "proto3";\nmessage A {}\nservice int { rpc Get(A) returns (A); }',
            "file.proto:3: Python needs the name of the service 'int': rename it",
        ),
        (
            'syntax = "proto2";\nmessage A {\n  optional group B = 1 { optional int32 c = 1; }\n}',
            "file.proto:3: the group 'b' has no counterpart: make it a message",
        ),
        (
            'syntax = "proto2";\nmessage A { extensions 100 to 200; }\nextend A { optional int32 b = 100; }',
            "file.proto:3: the extension 'b' has no counterpart: remove it",
        ),
        (
            'syntax = "proto3";\nmessage A {}\nservice S {\n  rpc get(A) returns (A);\n}',
            "file.proto:4: the method 'get' must be written in CamelCase",
        ),
        (
            'syntax = "proto3";\nimport "google/protobuf/timestamp.proto";\nmessage A {}\n'
            "service S {\n  rpc Get(A) returns (google.protobuf.Timestamp);\n}",
            "file.proto:5: google.protobuf.Timestamp cannot be a request or a response: put it into a message",
        ),
        (
            'edition = "2023";\nmessage A {}\nmessage B {\n  A a = 1 [features.message_encoding = DELIMITED];\n}',
            "file.proto:4: the group 'a' has no counterpart: make it a message",
        ),
        ('syntax = "proto3";\nmessage A { int32 a = 0; }', "protoc refuses: file.proto:2:"),
    ],
)
def test_what_cannot_be_is_refused_with_its_place(
    proto: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.proto").write_text(proto, encoding="utf-8")
    assert cli.main(["stub", str(tmp_path / "file.proto")]) != 0
    said = capsys.readouterr().err.replace(f"{tmp_path}/", "")
    assert said.startswith(f"nearcall: {problem}")


def test_imports_come_with_what_is_used_of_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other/things.proto").write_text(
        'syntax = "proto3";\npackage other;\nmessage Thing { Deep deep = 1; }\nmessage Deep {}\nmessage Unused {}\n'
        "message Mine { int32 a = 1; }",
        encoding="utf-8",
    )
    module = stub(
        'syntax = "proto3";\npackage mine;\nimport "other/things.proto";\n'
        "message Mine { other.Thing thing = 1; other.Mine theirs = 2; }\n"
        "service S { rpc Get(Mine) returns (other.Thing); }",
        tmp_path,
        capsys,
    )
    assert set(module.__all__) == {"Deep", "Mine", "OtherMine", "S", "Thing"}


def test_the_examples_module_is_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["stub", str(EXAMPLE / "weather.proto")]) == 0
    assert capsys.readouterr().out == (EXAMPLE / "weather.py").read_text(encoding="utf-8")


def test_a_default_that_is_not_zero_cannot_be_implicit() -> None:
    @nearcall.service
    class Wrong:
        def ask(self, number: Annotated[int, nearcall.field(implicit=True)] = 1) -> int: ...

    with pytest.raises(TypeError, match="implicit=True is for fields of a single value whose default is zero"):
        printed(Wrong)
