"""The OpenAPI document of a service is one, and says what ``http://`` serves."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray

import nearcall
from nearcall import cli

jsonschema: Any = pytest.importorskip("jsonschema")
openapi_spec_validator: Any = pytest.importorskip("openapi_spec_validator")

Whole = Annotated[int, nearcall.field(type="int32"), msgspec.Meta(ge=0, lt=10)]
TARGET = f"{__name__}:Shop"


class Size(enum.Enum):
    """Sizes there are."""

    SMALL = "small"
    LARGE = "large"


@dataclass
class Part:
    """A part."""

    name: str
    parts: list[Part] = field(default_factory=list["Part"])


@dataclass
class Item:
    """An item.

    With a second paragraph.
    """

    text: Annotated[str, msgspec.Meta(min_length=1, max_length=5)]
    big: int
    small: Whole
    rate: float
    yes: bool
    data: bytes
    at: datetime.datetime
    took: datetime.timedelta
    day: datetime.date
    id: uuid.UUID
    price: decimal.Decimal
    size: Size
    part: Part
    parts: list[Part]
    numbers: set[int]
    counts: dict[str, float]
    place: tuple[int, str]
    either: Part | str
    anything: Any
    letter: Literal["a", "b"]
    number: Literal[1, 2]
    array: NDArray[np.float64]
    perhaps: Part | None = None
    later: int | None = None
    words: str = "no words"
    many: int = 3
    ratio: float = 0.5


ITEM = Item(
    text="abc",
    big=1 << 60,
    small=3,
    rate=float("inf"),
    yes=True,
    data=b"\0\1\2",
    at=datetime.datetime(2024, 2, 29, 1, 2, 3, 4000, datetime.timezone.utc),
    took=datetime.timedelta(-1, 5),
    day=datetime.date(2024, 2, 29),
    id=uuid.UUID(int=7),
    price=decimal.Decimal("1.50"),
    size=Size.LARGE,
    part=Part("a", [Part("b")]),
    parts=[Part("c")],
    numbers={1, 2},
    counts={"a": 1.0},
    place=(1, "b"),
    either="c",
    anything=[{"a": None}],
    letter="b",
    number=2,
    array=np.ones(2),
)


@nearcall.service(name="shop.v1.Shop")
class Shop:
    """A shop."""

    def keep(self, item: Item) -> Item:
        """Keeps an item.

        And gives it back.
        """
        return item

    @nearcall.no_side_effects
    def add(self, a: Whole, b: Whole = 2, *, note: str | None = None) -> int:
        return a + b

    def nothing(self) -> None: ...

    def fail(self, why: str) -> None:
        raise nearcall.NotFound(why, details={"a": 1})

    def either(self, which: Part | str) -> list[Part | str]:
        return [which]

    def count(self, to: int) -> Iterator[int]:
        yield from range(to)


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """What the command prints."""

    def run(*arguments: str) -> Any:
        assert cli.main(["openapi", *arguments]) == 0, capsys.readouterr().err
        return json.loads(capsys.readouterr().out)

    return run


@pytest.fixture
def connection() -> Iterator[HTTPConnection]:
    with nearcall.Server(Shop(), "http://127.0.0.1:0") as server:
        host, port = server.urls[0].removeprefix("http://").split(":")
        with closing(HTTPConnection(host, int(port))) as opened:
            yield opened


def check(document: Any, schema: Any, value: Any) -> None:
    """Raises an error if a value does not fit a schema of the document."""
    whole = {"components": document["components"], **schema}
    jsonschema.Draft202012Validator(whole, format_checker=jsonschema.FormatChecker()).validate(value)


def content(of: Any) -> Any:
    return of["content"]["application/json"]["schema"]


def call(connection: HTTPConnection, document: Any, method: str, arguments: Any) -> tuple[int, Any]:
    """A call whose request and response fit what the document says of them."""
    path = f"/shop.v1.Shop/{method}"
    post = document["paths"][path]["post"]
    check(document, content(post["requestBody"]), arguments)
    connection.request("POST", path, json.dumps(arguments), {"content-type": "application/json"})
    response = connection.getresponse()
    found = json.loads(response.read())
    said = post["responses"]["200"] if response.status == 200 else document["components"]["responses"]["Error"]
    check(document, content(said), found)
    return response.status, found


def test_it_is_a_document(printed: Any) -> None:
    document = printed(TARGET, "--api-version", "1.2")
    openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)
    assert (document["openapi"], document["info"]["title"], document["info"]["version"]) == (
        "3.1.0",
        "shop.v1.Shop",
        "1.2",
    )
    assert [path.rpartition("/")[2] for path in document["paths"]] == ["Keep", "Add", "Nothing", "Fail", "Either"]
    assert "left out: shop.v1.Shop/Count." in document["info"]["description"]
    keep = document["paths"]["/shop.v1.Shop/Keep"]["post"]
    assert (keep["summary"], keep["description"]) == ("Keeps an item.", "Keeps an item.\n\nAnd gives it back.")
    assert keep["requestBody"]["required"]
    assert not document["paths"]["/shop.v1.Shop/Nothing"]["post"]["requestBody"]["required"]
    names = {each["$ref"].rpartition("/")[2] for each in keep["parameters"]}
    headers = {document["components"]["parameters"][name]["name"] for name in names}
    assert headers == {"connect-timeout-ms", "connect-protocol-version"}
    # openapi-python-client leaves out a method with a header that has no type.
    schemas = [each["schema"] for each in document["components"]["parameters"].values()]
    assert all("type" in schema for schema in schemas)
    assert {"type": "string", "enum": ["1"]} in schemas


def test_calls_are_as_it_says(printed: Any, connection: HTTPConnection) -> None:
    document = printed(TARGET)
    url = f"http://{connection.host}:{connection.port}"
    with nearcall.connect(url, Shop, codec="json") as shop:
        assert shop.keep(ITEM).big == ITEM.big
    status, first = call(connection, document, "Keep", as_json(ITEM))
    assert status == 200
    assert (first["big"], first["small"], first["many"], first["words"]) == (str(1 << 60), 3, "3", "no words")
    assert call(connection, document, "Keep", first) == (200, first)
    assert call(connection, document, "Add", {"a": 1}) == (200, {"value": "3"})
    assert call(connection, document, "Nothing", {}) == (200, {})
    assert call(connection, document, "Either", {"which": {"part": {"name": "a"}}})[0] == 200
    status, failure = call(connection, document, "Fail", {"why": "gone"})
    assert (status, failure["code"], failure["message"]) == (404, "not_found", "gone")


@pytest.mark.parametrize(
    "wrong",
    [
        *({"a": each} for each in (10, -1, "x", 1.5, None)),
        {},
        {"a": 1, "unknown": 2},
        {"a": 1, "note": 3},
    ],
)
def test_what_it_refuses_the_server_refuses(printed: Any, connection: HTTPConnection, wrong: Any) -> None:
    document = printed(TARGET)
    path = "/shop.v1.Shop/Add"
    with pytest.raises(jsonschema.ValidationError):
        check(document, content(document["paths"][path]["post"]["requestBody"]), wrong)
    connection.request("POST", path, json.dumps(wrong), {"content-type": "application/json"})
    response = connection.getresponse()
    assert (response.status, json.loads(response.read())["code"]) == (400, "invalid_argument")


def test_a_call_by_get(printed: Any, connection: HTTPConnection) -> None:
    asked = printed(TARGET)["paths"]["/shop.v1.Shop/Add"]["get"]["parameters"]
    assert [each["name"] for each in asked if "name" in each] == ["encoding", "message"]
    connection.request("GET", "/shop.v1.Shop/Add?encoding=json&message=%7B%22a%22%3A1%7D")
    assert json.loads(connection.getresponse().read()) == {"value": "3"}


def test_of_a_server_of_grpc(printed: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with nearcall.Server(Shop(), "grpc://127.0.0.1:0", "shm://openapi", reflection=True) as server:
        document = printed(server.urls[0])
        openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)
        of_class = printed(TARGET)
        assert document["paths"].keys() == of_class["paths"].keys()
        for name, schema in of_class["components"]["schemas"].items():
            described = document["components"]["schemas"][name]
            assert described.get("properties", {}).keys() == schema.get("properties", {}).keys()
        assert cli.main(["openapi", server.urls[1]]) == 2
        assert "only servers of gRPC say what their .proto says" in capsys.readouterr().err


def test_messages_of_google_have_their_own_forms(tmp_path: Path, printed: Any, capsys: Any) -> None:
    pytest.importorskip("grpc_tools")
    imports = "".join(f'import "google/protobuf/{name}.proto";' for name in ("any", "field_mask", "struct", "wrappers"))
    fields = "FieldMask mask = 1; Struct struct = 2; ListValue list = 3; Int64Value whole = 4; Any any = 5;"
    fields = fields.replace("; ", "; google.protobuf.")
    proto = f"""syntax = "proto3"; {imports} message Held {{ google.protobuf.{fields} }}
        service Keeper {{ rpc Keep(Held) returns (Held); }}"""
    (tmp_path / "keeper.proto").write_text(proto)
    assert cli.main(["stub", str(tmp_path / "keeper.proto")]) == 0
    module = tmp_path / "openapi_keeper.py"
    module.write_text(capsys.readouterr().out)
    document = printed(f"{module}:Keeper")
    openapi_spec_validator.validate(document, cls=openapi_spec_validator.OpenAPIV31SpecValidator)
    held = {"mask": "a,b", "struct": {"a": 1}, "list": [1, "b"], "whole": str(1 << 60), "any": {"@type": "x/y", "z": 1}}
    check(document, {"$ref": "#/components/schemas/Held"}, held)
    for name, wrong in (("mask", ["a"]), ("struct", []), ("list", {}), ("whole", {"value": 1}), ("any", {"z": 1})):
        with pytest.raises(jsonschema.ValidationError):
            check(document, {"$ref": "#/components/schemas/Held"}, {name: wrong})


def as_json(item: Item) -> Any:
    """The item as the server would write it, but for what has other spellings as well."""
    from nearcall.codec.protobuf.building import codec_by_itself

    return json.loads(codec_by_itself(Item, "json").encode(item))
