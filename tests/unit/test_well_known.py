"""JSON of the messages of ``google.protobuf`` that have forms of their own, beside Google's own reader and writer."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import sys
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nearcall import ProtobufAny, cli
from nearcall.codec.protobuf.building import codec_by_itself
from nearcall.codec.protobuf.errors import CodingError

from ..turns import examples
from .protoc import compiled

json_format: Any = pytest.importorskip("google.protobuf.json_format")
message_factory: Any = pytest.importorskip("google.protobuf.message_factory")

MANY = 1_000_000
PROTO = """
syntax = "proto3";
package shop.v1;
import "google/protobuf/any.proto";
import "google/protobuf/duration.proto";
import "google/protobuf/empty.proto";
import "google/protobuf/field_mask.proto";
import "google/protobuf/struct.proto";
import "google/protobuf/timestamp.proto";
import "google/protobuf/wrappers.proto";

enum Colour {
  option allow_alias = true;
  COLOUR_NONE = 0;
  crimson = 1;
  CRIMSON = 1;
}

message Part {
  enum Kind { NONE = 0; SOME = 3; }
  int64 number = 1;
  string its_name = 2;
  repeated google.protobuf.Any within = 3;
  Kind kind = 4;
  Colour colour = 5;
  int32 odd = 6 [json_name = "@odd"];
}

message All {
  google.protobuf.Any any = 1;
  repeated google.protobuf.Any anys = 2;
  map<string, google.protobuf.Any> by_name = 3;
  google.protobuf.DoubleValue double = 4;
  google.protobuf.FloatValue float = 5;
  google.protobuf.Int64Value int64 = 6;
  google.protobuf.UInt64Value uint64 = 7;
  google.protobuf.Int32Value int32 = 8;
  google.protobuf.UInt32Value uint32 = 9;
  google.protobuf.BoolValue bool = 10;
  google.protobuf.StringValue text = 11;
  google.protobuf.BytesValue bytes = 12;
  google.protobuf.FieldMask mask = 13;
  google.protobuf.Struct struct = 14;
  google.protobuf.ListValue list = 15;
  google.protobuf.Empty empty = 16;
  repeated google.protobuf.Int64Value numbers = 17;
  google.protobuf.Timestamp at = 18;
  google.protobuf.Duration lasts = 19;
  google.protobuf.Value value = 20;
}
"""
TYPES = "type.googleapis.com/"
REST = {"kind": "NONE", "colour": "COLOUR_NONE", "@odd": 0}
WITHIN_ANY: dict[str, dict[str, Any]] = {
    "shop.v1.Part": {"number": "7", "itsName": "x", "kind": "SOME", "colour": "crimson", "@odd": 3},
    "google.protobuf.Timestamp": {"value": "2024-02-29T12:00:00.500Z"},
    "google.protobuf.Duration": {"value": "-3.500s"},
    "google.protobuf.Value": {"value": [1, None]},
    "google.protobuf.Struct": {"value": {"a": [True]}},
    "google.protobuf.ListValue": {"value": ["a", {"b": 1}]},
    "google.protobuf.FieldMask": {"value": "a,bC.dE"},
    "google.protobuf.Int64Value": {"value": "-9223372036854775808"},
    "google.protobuf.UInt32Value": {"value": 4294967295},
    "google.protobuf.DoubleValue": {"value": "NaN"},
    "google.protobuf.BoolValue": {"value": True},
    "google.protobuf.BytesValue": {"value": "AP8="},
    "google.protobuf.StringValue": {"value": "ü"},
    "google.protobuf.Empty": {},
    "google.protobuf.Any": {
        "value": {"@type": f"{TYPES}shop.v1.Part", "number": "7", "itsName": "", "within": [], **REST}
    },
}


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    """The module that `nearcall stub` writes."""
    folder = tmp_path_factory.mktemp("well_known")
    source, written = folder / "all.proto", folder / "well_known_stub.py"
    source.write_text(PROTO, encoding="utf-8")
    with written.open("w", encoding="utf-8") as out, contextlib.redirect_stdout(out):
        assert cli.main(["stub", str(source)]) == 0
    spec = importlib.util.spec_from_file_location("well_known_stub", written)
    assert spec is not None
    assert spec.loader is not None
    found = importlib.util.module_from_spec(spec)
    sys.modules[found.__name__] = found
    spec.loader.exec_module(found)
    return found


@pytest.fixture(scope="module")
def theirs() -> Any:
    """Google's class of the message, and its pool."""
    pool: Any = compiled(PROTO)
    found: Any = pool.FindMessageTypeByName("shop.v1.All")
    return message_factory.GetMessageClass(found), pool


def google(theirs: Any, text: str) -> Any:
    cls, pool = theirs
    return json_format.Parse(text, cls(), descriptor_pool=pool)


def both(module: ModuleType, theirs: Any, given: dict[str, Any]) -> Any:
    """Reads a text as Google does, writes it as Google does, and comes back."""
    cls, pool = theirs
    text = json.dumps(given)
    value = codec_by_itself(module.All, "json").decode(text.encode(), MANY)
    body = codec_by_itself(module.All, "binary").encode(value)
    assert cls.FromString(body) == google(theirs, text)
    assert codec_by_itself(module.All, "binary").decode(body, MANY) == value
    ours = codec_by_itself(module.All, "json").encode(value).decode()
    assert google(theirs, ours) == cls.FromString(body)
    written = json_format.MessageToJson(cls.FromString(body), descriptor_pool=pool)
    assert codec_by_itself(module.All, "json").decode(written.encode(), MANY) == value
    return json.loads(ours)


@pytest.mark.parametrize("full", WITHIN_ANY)
def test_an_any_has_its_message_and_type(full: str, module: ModuleType, theirs: Any) -> None:
    given = {"@type": f"{TYPES}{full}", **WITHIN_ANY[full]}
    written = both(module, theirs, {"any": given, "anys": [given, {}], "byName": {"a": given}})
    assert written["any"].items() >= given.items()
    assert written["anys"][1] == {}


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("double", "-Infinity"),
        ("float", 0.5),
        ("int64", "9007199254740993"),
        ("uint64", "18446744073709551615"),
        ("int32", -5),
        ("uint32", 0),
        ("bool", False),
        ("text", ""),
        ("bytes", "AAE="),
        ("mask", ""),
        ("mask", "fooBar,baz.quuxQ"),
        ("struct", {}),
        ("struct", {"a": {"b": [1.5, None, "c"]}}),
        ("list", [1, [], {}]),
        ("empty", {}),
        ("numbers", ["1", "0"]),
        ("at", "1970-01-01T00:00:00Z"),
    ],
)
def test_a_form_of_its_own(field: str, value: Any, module: ModuleType, theirs: Any) -> None:
    assert both(module, theirs, {field: value}).get(field) == value


numbers = st.integers(-(2**63), 2**63 - 1).map(str) | st.integers(-(2**31), 2**31 - 1)
plain = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=5,
)
anys = st.recursive(
    st.sampled_from([{"@type": f"{TYPES}{full}", **fields} for full, fields in WITHIN_ANY.items()]) | st.just({}),
    lambda inner: st.builds(
        lambda within, number: {"@type": f"{TYPES}shop.v1.Part", "within": within, "number": number},
        st.lists(inner, max_size=2),
        numbers,
    ),
    max_leaves=4,
)
messages = st.fixed_dictionaries(
    {},
    optional={
        "any": anys,
        "anys": st.lists(anys, max_size=2),
        "by_name": st.dictionaries(st.text(max_size=2), anys, max_size=2),
        "double": st.floats(allow_nan=False, allow_infinity=False),
        "int64": numbers,
        "bool": st.booleans(),
        "text": st.text(max_size=3),
        "mask": st.lists(st.sampled_from(["a", "aB", "a.bC", "x1"]), max_size=3).map(",".join),
        "struct": st.dictionaries(st.text(max_size=2), plain, max_size=2),
        "list": st.lists(plain, max_size=2),
        "numbers": st.lists(numbers, max_size=2),
        "value": plain.filter(lambda value: value is not None),  # is not told from absence
    },
)


@pytest.mark.slow
@settings(max_examples=examples(80), deadline=None)
@given(given_=messages)
def test_random_messages(given_: dict[str, Any], module: ModuleType, theirs: Any) -> None:
    both(module, theirs, given_)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"any": {"number": "7"}}, "an Any has no '@type'"),
        ({"any": {"@type": "shop.v1.Part"}}, "an Any needs a type such as type.googleapis.com/shop.v1.Item"),
        ({"any": {"@type": f"{TYPES}shop.v1.Gone"}}, "for which well_known_stub has no class"),
        ({"any": {"@type": f"{TYPES}shop.v1.Part", "nothing": 1}}, None),
        ({"any": {"@type": f"{TYPES}google.protobuf.Duration"}}, "has '@type' and 'value', and nothing else"),
        ({"any": {"@type": f"{TYPES}google.protobuf.Duration", "value": "x"}}, "the text is no duration such as 1.5s"),
        ({"any": 5}, "expected an object with '@type', got 5"),
        ({"anys": [None]}, "expected a message, got null"),
        ({"mask": "a_b"}, "has an underscore: JSON has camelCase"),
        ({"mask": 7}, "expected a text such as 'a,bC', got 7"),
        ({"struct": [1]}, "expected an object, got [1]"),
        ({"list": {}}, "expected a list, got {}"),
        ({"int32": 2**31}, "not within"),
        ({"bool": "true"}, "expected bool"),
    ],
)  # fmt: skip
def test_what_is_no_such_form_is_refused(given: dict[str, Any], words: str | None, module: ModuleType) -> None:
    codec = codec_by_itself(module.All, "json")
    if words is None:
        codec.decode(json.dumps(given).encode(), MANY)  # unknown names are skipped, as everywhere
        return
    with pytest.raises(CodingError) as caught:
        codec.decode(json.dumps(given).encode(), MANY)
    assert words in str(caught.value)
    assert str(caught.value).startswith(f"at {next(iter(given))}")


def test_a_wrapped_number_is_exactly_what_was_written(module: ModuleType) -> None:
    codec = codec_by_itself(module.All, "json")
    found = codec.decode(b'{"int64": 9007199254740993.0, "int32": "1e2", "numbers": [900719925474099.3e1]}', MANY)
    wrapped = module.Int64Value(value=2**53 + 1)
    assert found == module.All(int64=wrapped, int32=module.Int32Value(value=100), numbers=[wrapped])
    with pytest.raises(CodingError, match=r"at int64: expected int, got '1\.00000000000000000001'"):
        codec.decode(b'{"int64": 1.00000000000000000001}', MANY)


def test_anys_within_anys_have_an_end(module: ModuleType) -> None:
    """A peer sends bytes; the text of them would be made without an end."""
    packed = module.Any.pack(module.Part(number=1))
    for _ in range(200):
        packed = module.Any.pack(module.Part(within=[packed]))
    codec = codec_by_itself(module.All, "json")
    with pytest.raises(CodingError, match="an Any lies in more than 32 others"):
        codec.encode(module.All(any=packed))
    text = '{"@type": "type.googleapis.com/google.protobuf.Empty"}'
    for _ in range(90):
        text = f'{{"@type": "type.googleapis.com/google.protobuf.Any", "value": {text}}}'
    with pytest.raises(CodingError):
        codec.decode(f'{{"any": {text}}}'.encode(), MANY)


def test_programs_pack_and_unpack(module: ModuleType) -> None:
    part = module.Part(number=7, its_name="x")
    packed = module.Any.pack(part)
    assert isinstance(packed, ProtobufAny)
    assert packed.type_url == f"{TYPES}shop.v1.Part"
    assert packed.holds(module.Part)
    assert packed.unpack(module.Part) == part
    assert not packed.holds(module.All)
    with pytest.raises(TypeError, match=r"this Any holds a shop\.v1\.Part, not All"):
        packed.unpack(module.All)
    with pytest.raises(TypeError, match="int is no message of a module that nearcall stub has written"):
        module.Any.pack(5)
    with pytest.raises(TypeError, match="holds a message without a type"):
        module.Any().unpack(module.Part)


@pytest.mark.parametrize("paths", [[""], ["a,b"], ["aB"], ["a__b"], ["a_1"]])
def test_a_mask_that_json_would_change_is_refused(paths: list[str], module: ModuleType) -> None:
    within = codec_by_itself(module.All, "json").decode(b'{"mask": "a"}', MANY)
    within.mask.paths[:] = paths
    with pytest.raises(ValueError, match="of a FieldMask cannot be written in JSON"):
        codec_by_itself(module.All, "json").encode(within)
