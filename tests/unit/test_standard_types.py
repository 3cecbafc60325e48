"""Classes of Python's library, of numpy, attrs and pydantic travel without being registered."""

from __future__ import annotations

import functools
import ipaddress
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path, PurePath, PurePosixPath, PureWindowsPath
from typing import Any, cast
from zoneinfo import ZoneInfo

import attrs
import numpy as np
import pydantic
import pytest

import nearcall
from nearcall.errors import InvalidArgument

from .loopback import Loopback

Paths = dict[Path, list[PurePosixPath]]


@attrs.define
class Rate:
    percent: int = attrs.field(validator=attrs.validators.gt(0))
    source: Path | None = None
    _private: str = "p"


class Item(pydantic.BaseModel):
    name: str = pydantic.Field(alias="title")
    count: int = pydantic.Field(default=1, gt=0)
    where: Path | None = None
    parts: list[Item] = []
    _seen: int = pydantic.PrivateAttr(default=0)

    @pydantic.field_validator("name")
    @classmethod
    def upper(cls, name: str) -> str:
        if name == "bad":
            raise ValueError("a bad name")
        return name.upper()

    @functools.cached_property
    def length(self) -> int:
        return len(self.name)


class Locked(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")
    _lock: Any = pydantic.PrivateAttr(default_factory=threading.Lock)


VALUES: list[tuple[Any, Any]] = [
    (Path, Path("a/../b")),
    (PurePath, PurePosixPath("/x")),
    (PureWindowsPath, PureWindowsPath("c:/x")),
    (Paths, {Path("a"): [PurePosixPath("b")]}),
    (ipaddress.IPv4Address, ipaddress.ip_address("127.0.0.1")),
    (ipaddress.IPv6Address, ipaddress.ip_address("fe80::1%eth0")),
    (ipaddress.IPv4Network, ipaddress.ip_network("10.0.0.0/8")),
    (ipaddress.IPv6Network, ipaddress.ip_network("fe80::/64")),
    (ipaddress.IPv4Interface, ipaddress.ip_interface("10.1.2.3/8")),
    (ipaddress.IPv6Interface, ipaddress.ip_interface("fe80::1/64")),
    (Fraction, Fraction(-(7**100), 3)),
    (complex, complex(-0.0, float("inf"))),
    (range, range(9, -3, -2)),
    (deque[int], deque([1, 2], 5)),
    (deque[Path], deque([Path("a")])),
    (OrderedDict[str, int], OrderedDict(b=1, a=2)),
    (Counter[str], Counter("aab")),
    (defaultdict[str, list[Fraction]], defaultdict(list, {"a": [Fraction(1, 3)]})),
    (defaultdict[str, int], defaultdict(None, {"a": 1})),
    (ZoneInfo, ZoneInfo("Europe/Berlin")),
    (np.float32, np.float32(0.1)),
    (np.float64, np.float64(0.1)),
    (np.float16, np.float16("nan")),
    (np.uint64, np.uint64(2**63 - 1)),
    (np.int8, np.int8(-128)),
    (np.bool_, np.bool_(True)),
    (np.complex64, np.complex64(0.1 + 1j)),
    (list[np.int16], [np.int16(1), np.int16(2)]),
    (Rate, Rate(3, Path("a"), "q")),
    (Item, Item(title="a")),
]


def echoing(annotation: Any) -> Any:
    def echo(self: object, value: Any) -> Any:
        return value

    echo.__annotations__ = {"value": annotation, "return": annotation}
    return nearcall.service(type("Echo", (), {"echo": echo, "__module__": __name__}))


@pytest.fixture(params=["msgpack", "json"])
def call(request: pytest.FixtureRequest) -> Callable[[Any, Any], Any]:
    def call(annotation: Any, value: Any) -> Any:
        cls = echoing(annotation)
        if request.param == "msgpack":
            return Loopback(cls(), cls).echo(value)
        url = "inproc://standard-types"
        with nearcall.Server(cls(), url, codecs=["json"]), nearcall.connect(url, cls, codec="json") as client:
            return cast(Any, client).echo(value)

    return call


@pytest.mark.parametrize(("annotation", "value"), VALUES, ids=[f"{kind}-{value!r:.20}" for kind, value in VALUES])
def test_they_arrive_as_they_left(call: Any, annotation: Any, value: Any) -> None:
    arrived = call(annotation, value)
    assert type(arrived) is type(value)
    assert arrived == value or (value != value and arrived != arrived)
    for name in ("maxlen", "default_factory"):
        assert getattr(arrived, name, None) == getattr(value, name, None)
    assert list(arrived) == list(value) if isinstance(value, OrderedDict) else True


@pytest.mark.parametrize(
    ("annotation", "value", "message"),
    [
        (list[PurePath], [Path("a")], "at [0]: expected PurePath, got pathlib.PosixPath, a subclass"),
        (list[Path], ["a"], "at [0]: expected Path, got str"),
        (Path, Path("\udcff"), "a str holds a lone surrogate"),
        (defaultdict[str, int], defaultdict(lambda: 3), "is none of bool, bytes, dict"),
        (np.float32, 0.1, "must be float32, got float"),
        (deque[int], deque(["a"]), "deque"),
    ],
)
def test_what_would_be_lost_is_refused(annotation: Any, value: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Loopback(echoing(annotation)(), echoing(annotation)).echo(value)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("annotation", "sent", "message"),
    [
        (Fraction, "1e999999999", "a fraction is written as two ints, such as 1/3"),
        (Fraction, "1/0", "no Fraction can be made of '1/0': a fraction is written as two ints"),
        (np.float32, 0.1, "no float32 equals it"),
        (np.float16, 1e30, "no float16 equals it"),
        (np.complex64, (1e300, 0.0), "no complex64 equals it"),
        (np.int8, 200, "no int8 can be made of 200: no int8 equals it"),
        (deque[int], ([1, 2], 1), "it has 2 items, and its longest length is 1"),
        (deque[int], ([], 1 << 63), "its longest length, 9223372036854775808, is more than memory can hold"),
        (defaultdict[str, int], ("eval", {}), "its factory 'eval' is none of bool, bytes, dict"),
        (ipaddress.IPv4Address, "1.2.3", "no IPv4Address can be made of '1.2.3'"),
        (ZoneInfo, "../../etc/passwd", "no ZoneInfo can be made of"),
        (ZoneInfo, "Europe", "no time zone of this name is known here"),
        (ZoneInfo, "No/Where", "no time zone of this name is known here"),
        (range, (0, 1, 0), "no range can be made of (0, 1, 0)"),
        (Item, {"name": "bad"}, "title: Value error, a bad name"),
        (Item, {"name": "a", "count": 0, "unset": ["count"]}, "count: Input should be greater than 0"),
        (
            Item,
            {"name": "a", "parts": [{"name": "b", "unset": ["x"]}]},
            "what was not set is no field, at .parts[0] of it",
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_peer_makes_no_other_objects(annotation: Any, sent: Any, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        Loopback(echoing(annotation)()).echo(sent)
    assert message in str(caught.value)


def test_a_model_arrives_with_what_it_held(call: Any) -> None:
    item = Item(title="a", count=2, where=Path("x"), parts=[Item(title="b")])
    item.name = "as it was set afterwards"
    assert item.length == 24
    arrived = call(Item, item)
    assert (arrived.name, arrived.count, arrived.where) == ("as it was set afterwards", 2, Path("x"))
    assert arrived.model_fields_set == {"name", "count", "where", "parts"}
    assert arrived.parts[0].model_fields_set == {"name"}
    assert arrived._seen == 0
    assert arrived.length == 24
    item._seen = 3
    with pytest.raises(InvalidArgument, match="Item cannot be sent: it holds '_seen', which is no field"):
        call(Item, item)
    for locked in (Locked(), Locked(more=1)):  # type: ignore[call-arg]
        with pytest.raises(InvalidArgument, match=r"it holds '(_lock|more)'"):
            call(Locked, locked)
    item._seen, item.count = 0, -1
    with pytest.raises(InvalidArgument, match="count: Input should be greater than 0"):
        call(Item, item)


def test_nothing_is_imported_for_them() -> None:
    code = """
import sys, nearcall
from pathlib import Path

@nearcall.service
class Files:
    def size(self, path: Path) -> int:
        return len(str(path))

with nearcall.Server(Files(), "inproc://import"), nearcall.connect("inproc://import", Files) as files:
    assert files.size(Path("abc")) == 3
print([name for name in ("numpy", "pydantic", "attr", "pyarrow", "pandas", "polars") if name in sys.modules])
"""
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "[]\n"
