"""The schemas of ``nearcall openapi`` take what the server takes, and refuse what it refuses, posted or in a GET."""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import enum
import json
import math
import uuid
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from typing import Annotated, Any, Literal
from urllib.parse import urlencode

import msgspec
import pytest

import nearcall
from nearcall import cli
from nearcall.cli.check import service_messages
from nearcall.codec.protobuf.openapi import openapi_document

from .test_openapi import Part, Shop, check, content, openapi_spec_validator

jsonschema: Any = pytest.importorskip("jsonschema")
TARGET = f"{__name__}:Exact"
Few = Annotated[list[int], msgspec.Meta(min_length=1, max_length=2)]
Short = Annotated[list[int], msgspec.Meta(max_length=1)]
Small = Annotated[int, nearcall.field(type="int32")]


class Size(enum.Enum):
    SMALL = "small"
    LARGE = "large"


class Level(enum.IntEnum):
    LOW = -1
    HIGH = 1


@dataclass(frozen=True)
class Cat:
    name: str


@dataclass(frozen=True)
class Dog:
    name: str
    lives: int = 1


TOM = Cat("Tom")


@dataclass(frozen=True)
class Owner:
    """Who has one."""

    pet: Cat | Dog = TOM
    age: int = 40


OWNER = Owner(Dog("Rex"))
NUMBER = uuid.UUID(int=7)


@nearcall.service(name="shop.v1.Exact")
class Exact:
    @nearcall.no_side_effects
    def few(self, a: Few) -> int:
        return len(a)

    @nearcall.no_side_effects
    def nested(self, a: list[Short], b: list[list[int]]) -> int:
        return len(a) + len(b)

    @nearcall.no_side_effects
    def single(self, a: Annotated[dict[str, int], msgspec.Meta(min_length=1, max_length=1)]) -> int:
        return len(a)

    @nearcall.no_side_effects
    def several(self, a: Annotated[set[str], msgspec.Meta(max_length=2)]) -> int:
        return len(a)

    @nearcall.no_side_effects
    def fixed(self, a: tuple[int, str]) -> tuple[int, str]:
        return a

    @nearcall.no_side_effects
    def by_number(self, a: dict[int, int], b: dict[Small, int]) -> dict[int, int]:
        return a | b

    @nearcall.no_side_effects
    def by_flag(self, a: dict[bool, int]) -> dict[bool, int]:
        return a

    @nearcall.no_side_effects
    def by_name(self, a: dict[Annotated[str, msgspec.Meta(max_length=2, pattern="^[a-z]*$")], int]) -> int:
        return len(a)

    @nearcall.no_side_effects
    def rate(self, a: Annotated[float, msgspec.Meta(ge=0)]) -> float:
        return a

    @nearcall.no_side_effects
    def pet(self, a: Cat | Dog, b: list[str | bytes]) -> Cat | Dog:
        return a

    @nearcall.no_side_effects
    def owner(self, owner: Owner) -> Owner:
        return owner

    @nearcall.no_side_effects
    def sum(self, a: Small, b: int = 2) -> int:
        return a + b

    @nearcall.no_side_effects
    def defaults(
        self,
        *,
        size: Size = Size.LARGE,
        level: Level = Level.LOW,
        data: bytes = b"\0\1\2",
        at: datetime.datetime = datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc),
        took: datetime.timedelta = datetime.timedelta(seconds=-1.5),
        day: datetime.date = datetime.date(2024, 2, 29),
        number: uuid.UUID = NUMBER,
        price: decimal.Decimal = decimal.Decimal("1.50"),
        rate: float = math.inf,
        big: int = 1 << 60,
        small: Small = 3,
        text: str = "é",
        yes: bool = True,
        letter: Literal["a", "b"] = "b",
        owner: Owner = OWNER,
        pet: Cat | Dog = TOM,
        words: tuple[str, ...] = ("a", "b"),
        none: tuple[str, ...] = (),
        anything: Any = None,
        perhaps: int | None = None,
    ) -> str:
        return repr((size, level, data, at, took, day, number, price, rate, big, small, text, yes, letter)) + repr(
            (owner, pet, words, none, anything, perhaps)
        )


@pytest.fixture(scope="module")
def connection() -> Iterator[HTTPConnection]:
    with nearcall.Server(Exact(), "http://127.0.0.1:0") as server:
        host, port = server.urls[0].removeprefix("http://").split(":")
        with closing(HTTPConnection(host, int(port))) as opened:
            yield opened


def answer(connection: HTTPConnection) -> tuple[int, Any]:
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def described(*targets: str) -> Any:
    return openapi_document([service_messages(each) for each in targets], "1")


def fits(document: Any, schema: Any, value: Any) -> bool:
    try:
        check(document, schema, value)
    except jsonschema.ValidationError:
        return False
    return True


@pytest.mark.parametrize(
    ("method", "arguments", "is_right"),
    [
        *(("Few", {"a": ["1"] * count}, count in (1, 2)) for count in range(4)),
        ("Few", {}, False),
        ("Nested", {"a": [{"value": ["1"]}], "b": [{"value": ["1", "2"]}]}, True),
        ("Nested", {"a": [{"value": ["1", "2"]}], "b": []}, False),
        *(("Single", {"a": dict.fromkeys("abc"[:count], "1")}, count == 1) for count in range(3)),
        *(("Several", {"a": list("abc"[:count])}, count < 3) for count in range(4)),
        ("Fixed", {"a": {"item1": "1", "item2": "b"}}, True),
        ("Fixed", {"a": {"item1": "1"}}, False),
        ("Fixed", {"a": {"item1": "1", "item2": "b", "item3": "c"}}, False),
        ("Fixed", {"a": ["1", "b"]}, False),
        ("ByNumber", {"a": {"-7": "1", str(1 << 62): "2"}, "b": {str(-(1 << 31)): "1"}}, True),
        *(("ByNumber", {"a": {key: "1"}, "b": {}}, False) for key in ("x", "", "1.5", "true", "9" * 20)),
        ("ByNumber", {"a": {}, "b": {"99999999999": "1"}}, False),
        ("ByFlag", {"a": {"true": "1", "false": "2"}}, True),
        *(("ByFlag", {"a": {key: "1"}}, False) for key in ("yes", "True", "1")),
        *(("ByName", {"a": {key: "1"}}, key in ("", "ab")) for key in ("", "ab", "abc", "A")),
        *(("Rate", {"a": value}, value in (0.5, "Infinity")) for value in (0.5, -0.5, "Infinity", "-Infinity", "x")),
        ("Pet", {"a": {"cat": {"name": "a"}}, "b": [{"string": "a"}, {"bytes": "AA=="}]}, True),
        ("Pet", {"a": {"dog": {"name": "a"}}, "b": []}, True),
        ("Pet", {"a": {}, "b": []}, False),
        ("Pet", {"a": {"cat": {"name": "a"}, "dog": {"name": "b"}}, "b": []}, False),
        ("Pet", {"a": {"Cat": {"name": "a"}}, "b": []}, False),
        ("Pet", {"a": {"name": "a"}, "b": []}, False),
        ("Pet", {"a": {"cat": {"name": "a"}}, "b": [{}]}, False),
        ("Owner", {}, True),
        ("Owner", {"pet": {"dog": {"name": "a", "lives": "2"}}, "age": "3"}, True),
        ("Owner", {"pet": {}}, False),
        ("Sum", {"a": 1}, True),
        ("Sum", {"b": "1"}, False),
        ("Sum", {"a": 1, "c": 1}, False),
    ],
)
def test_server_and_schema_agree(connection: HTTPConnection, method: str, arguments: Any, is_right: bool) -> None:
    document = described(TARGET)
    path = f"/shop.v1.Exact/{method}"
    of_post, of_get = (document["paths"][path][each] for each in ("post", "get"))
    asked = next(each for each in of_get["parameters"] if each.get("name") == "message")
    for schema in (content(of_post["requestBody"]), content(asked)):
        assert fits(document, schema, arguments) == is_right
    connection.request("POST", path, json.dumps(arguments), {"content-type": "application/json"})
    posted = answer(connection)
    connection.request("GET", f"{path}?{urlencode({'encoding': 'json', 'message': json.dumps(arguments)})}")
    assert answer(connection) == posted
    if is_right:
        assert posted[0] == 200
        check(document, content(of_post["responses"]["200"]), posted[1])
    else:
        assert (posted[0], posted[1]["code"]) == (400, "invalid_argument")


def test_a_get_of_connects_may_have_more_and_less(connection: HTTPConnection) -> None:
    get = described(TARGET)["paths"]["/shop.v1.Exact/Sum"]["get"]
    assert {"$ref": "#/components/parameters/connect"} in get["parameters"]
    query = {"encoding": "json", "message": '{"b": "3", "later": 1}'}
    connection.request("GET", f"/shop.v1.Exact/Sum?{urlencode(query | {'connect': 'v1'})}")
    assert answer(connection) == (200, {"value": "3"})


def test_defaults_are_as_the_server_has_them(connection: HTTPConnection) -> None:
    document = described(TARGET)
    schemas = document["components"]["schemas"]
    request = schemas["shop.v1.ExactDefaultsRequest"]["properties"]
    defaults = {name: schema["default"] for name, schema in request.items() if "default" in schema}
    assert request.keys() - defaults.keys() == {"perhaps", "rate"}
    # Generators of clients write the text "Infinity" into their code, as if it were a number.
    assert request["rate"]["description"] == "default Infinity"
    assert (defaults["size"], defaults["level"], defaults["data"]) == ("SIZE_LARGE", "LEVEL_LOW", "AAEC")
    assert (defaults["at"], defaults["big"]) == ("2024-02-29T00:00:00Z", str(1 << 60))
    assert (defaults["pet"], defaults["none"], defaults["small"]) == ({"cat": {"name": "Tom"}}, [], 3)
    for name, default in defaults.items():
        check(document, request[name], default)
    owner = schemas["shop.v1.Owner"]
    assert owner["properties"]["pet"]["default"] == {"cat": {"name": "Tom"}}
    assert (owner["properties"]["age"]["default"], owner["description"]) == ("40", "Who has one.")
    results: list[Any] = []
    for arguments in ({}, defaults):
        connection.request("POST", "/shop.v1.Exact/Defaults", json.dumps(arguments))
        results.append(answer(connection))
    assert results[0][0] == 200
    assert results[0] == results[1]


OtherPart = dataclasses.make_dataclass("Part", [("size", int)])


@nearcall.service(name="shop.v1.Stall")
class Stall:
    """A stall."""

    def keep(self, part: OtherPart) -> OtherPart:  # type: ignore[valid-type]
        return part


@nearcall.service(name="shop.v1.Till")
class Till:
    def open(self, part: Part) -> Part:
        return part


def test_several_services_are_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(*arguments: str) -> Any:
        assert cli.main(["openapi", *arguments]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    services = Shop(), Stall(), Till()
    with nearcall.Server(*services, "http://127.0.0.1:0", "grpc://127.0.0.1:0", reflection=True) as server:
        of_classes = printed("tests.unit.test_openapi:Shop", f"{__name__}:Stall", f"{__name__}:Till")
        for document in (of_classes, printed(server.urls[1])):
            openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)
            assert {tag["name"] for tag in document["tags"]} == {"shop.v1.Shop", "shop.v1.Stall", "shop.v1.Till"}
        document = of_classes
        assert document["info"]["title"] == "shop.v1.Shop, shop.v1.Stall, shop.v1.Till"
        # One type is there once, and two of one name are two.
        assert [name for name in document["components"]["schemas"] if name.endswith("Part")] == [
            "shop.v1.Part",
            "shop.v1.Stall.Part",
        ]
        host, port = server.urls[0].removeprefix("http://").split(":")
        with closing(HTTPConnection(host, int(port))) as connection:
            for path, arguments in (
                ("/shop.v1.Stall/Keep", {"size": "3"}),
                ("/shop.v1.Till/Open", {"name": "a", "parts": []}),
            ):
                post = document["paths"][path]["post"]
                check(document, content(post["requestBody"]), arguments)
                connection.request("POST", path, json.dumps(arguments))
                assert answer(connection) == (200, arguments)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([TARGET, TARGET], "another of the services is called shop.v1.Exact"),
        ([TARGET, "grpc://127.0.0.1:1"], "grpc://127.0.0.1:1: give classes, or one URL"),
        ([f"{__name__}:Cat"], "is not a service's class"),
    ],
)
def test_mistakes(capsys: pytest.CaptureFixture[str], arguments: list[str], says: str) -> None:
    assert cli.main(["openapi", *arguments]) == 2
    assert says in capsys.readouterr().err
