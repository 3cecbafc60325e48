"""The interfaces that ``nearcall stub`` writes of a service, for threads and for event loops."""

from __future__ import annotations

import asyncio
import dataclasses
import datetime
import importlib.util
import inspect
import json
import math
import os
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
import pytest
import tvm_ffi
from numpy.typing import NDArray

import nearcall
from nearcall.cli import main
from nearcall.cli.described import described_text
from nearcall.cli.interfaces import interfaces_text
from nearcall.cli.module_text import CannotBeWritten
from nearcall.service.agreement import Sides, service_findings
from nearcall.service.describing import describe
from nearcall.service.description import MethodInfo, ParameterInfo
from nearcall.service.reading import read_description
from nearcall.service.references import services_passed
from nearcall.service.service import plan_of

from .coloured_services import Dog, Item, OutOfStock, Place, Renamed, Shop, Size

ROOT = Path(__file__).parents[2]
TARGET = f"{Shop.__module__}:Shop"
COLOURS = pytest.mark.parametrize("flags", [[], ["--async"]], ids=["threads", "loops"])


@pytest.fixture
def stub(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Runs the command, which must succeed."""

    def run(*arguments: str) -> str:
        assert main(["stub", *arguments]) == 0, capsys.readouterr().err
        return capsys.readouterr().out

    return run


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Imports the text of a module."""

    def run(text: str) -> Any:
        name = f"written_{uuid.uuid4().hex}"
        path = tmp_path / f"{name}.py"
        path.write_text(text, encoding="utf-8")
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    return run


def parameters(method: MethodInfo) -> list[ParameterInfo]:
    """The parameters of a method; types have the names that they have in the module."""
    return [msgspec.structs.replace(each, type="") for each in method.parameters]


@COLOURS
def test_it_says_what_the_service_says(stub: Any, load: Any, flags: list[str]) -> None:
    module = load(stub(*flags, TARGET))
    interface = module.AsyncShop if flags else module.Shop
    ours, theirs = (
        read_description(describe([plan], None, services_passed([plan]))) for plan in map(plan_of, (interface, Shop))
    )
    for one, other in ((ours, theirs), (theirs, ours)):
        for mine, others in zip(one.services, other.services, strict=True):
            assert mine.doc == others.doc
            assert [method.doc for method in mine.methods] == [method.doc for method in others.methods]
            assert [method.idempotent for method in mine.methods] == [method.idempotent for method in others.methods]
            assert [*map(parameters, mine.methods)] == [*map(parameters, others.methods)]
        passed = [{service.name: service for service in each.passed} for each in (one, other)]
        assert passed[0].keys() == passed[1].keys() == {"Listener", "Basket"}
        pairs = [
            *zip(one.services, other.services, strict=True),
            *((passed[0][name], passed[1][name]) for name in passed[0]),
        ]
        for mine, others in pairs:
            assert service_findings(mine, others, Sides()) == []


def test_threads_call(stub: Any, load: Any, new_url: str) -> None:
    module = load(stub(TARGET))

    class Ear(module.Listener):  # type: ignore[misc,name-defined]
        def sold(self, item: Item) -> str:
            return f"sold {item.name}"

        def bye(self) -> None: ...

    with nearcall.Server(Shop(), new_url) as server, nearcall.connect(server.urls[0], module.Shop) as shop:
        assert shop.find("a", limit=2) == [Item("a", Size.LARGE)] * 2
        assert shop.price(Item("abc")) == 3
        assert shop.feed(Dog("w")) == Dog("w")
        assert shop.picture(np.ones(2, np.uint8)).tolist() == [1.0, 1.0]
        assert [item.name for item in shop.sold(2)] == ["0", "1"]
        assert list(shop.sold_in_loop(2)) == [0, 1]
        assert shop.total([1, 2], by=2) == 6
        assert list(shop.each(iter([1, 2]))) == [1, 2]
        assert shop.log("line") is None
        assert shop.listen(Ear()) == "sold pen"
        assert (shop.basket().weigh(), shop.basket().add(Item("ab"))) == (1.5, 2)
        with shop.basket().names() as names, shop.sold(10**9) as sold:
            assert (next(names), next(sold).name) == ("pen", "0")
        assert list(sold) == []
        assert shop.given(1) == 4
        assert shop.list(["a"]) == ["a"]
        with pytest.raises(OutOfStock, match="pen"):
            shop.fail()


def test_event_loops_call(stub: Any, load: Any, new_url: str) -> None:
    module = load(stub("--async", TARGET))

    class Ear(module.AsyncListener):  # type: ignore[misc,name-defined]
        async def sold(self, item: Item) -> str:
            await asyncio.sleep(0)
            return f"sold {item.name}"

        async def bye(self) -> None: ...

    async def numbers() -> AsyncIterator[int]:
        yield 1
        yield 2

    async def call(url: str) -> None:
        async with nearcall.aio.connect(url, module.AsyncShop) as shop:
            assert await shop.find("a", limit=2) == [Item("a", Size.LARGE)] * 2
            assert await shop.move(Place(1.0)) == (Place(1.0),)
            assert [item.name async for item in shop.sold(2)] == ["0", "1"]
            assert [number async for number in shop.sold_in_loop(2)] == [0, 1]
            assert await shop.total([1, 2], by=2) == 6
            assert await shop.total(numbers()) == 3
            assert [number async for number in shop.each(numbers())] == [1, 2]
            assert [number async for number in shop.each([1, 2])] == [1, 2]
            assert await shop.log("line") is None
            assert await shop.listen(Ear()) == "sold pen"
            basket = await shop.basket()
            assert (await basket.weigh(), await basket.add(Item("ab"))) == (1.5, 2)
            with pytest.raises(OutOfStock, match="pen"):
                await shop.fail()

    with nearcall.Server(Shop(), new_url) as server:
        asyncio.run(call(server.urls[0]))


def test_of_a_url(stub: Any, load: Any, new_url: str) -> None:
    with nearcall.Server(Shop(), new_url) as server:
        url = server.urls[0]
        module, in_loop = load(stub(url)), load(stub("--async", url))
        with nearcall.connect(url, module.Shop) as shop:
            (item,) = shop.find("a")
            assert (type(item), item.size, item.parent) == (module.Item, "large", None)
            assert shop.price(module.Item(name="abc")) == 3
            assert shop.feed(module.Dog(bark="w")).bark == "w"
            assert shop.move(module.Place(x=1.0, y=2.0), module.Extra(colour="red")) == [module.Place(x=1.0, y=2.0)]
            assert shop.rename(module.Renamed(field_1="ada")).field_2 == Renamed("ada").last_name
            assert shop.picture(np.ones(2, np.uint8)).tolist() == [1.0, 1.0]
            assert bytes(shop.view(memoryview(b"ab"))) == b"ab"
            assert shop.anything([1], {uuid.uuid4(): {1}}) == [1]
            assert shop.total([1, 2]) == 3
            assert shop.basket().weigh() == 1.5
            assert shop.list(["a"]) == ["a"]

        async def call() -> None:
            async with nearcall.aio.connect(url, in_loop.AsyncShop) as shop:
                assert (await shop.find("a"))[0].name == "a"
                assert [number async for number in shop.each([1, 2])] == [1, 2]

        asyncio.run(call())


def test_defaults_of_a_url_are_those_that_anybody_can_write(stub: Any, load: Any, new_url: str) -> None:
    with nearcall.Server(Defaults(), new_url) as server:
        method = load(stub(server.urls[0])).Defaults.all
    written = {name: each.default for name, each in inspect.signature(method).parameters.items() if name != "self"}
    assert written == {
        "item": inspect.Parameter.empty,
        "count": 3,
        "rate": -0.5,
        "text": "it's \n\"",
        "note": None,
        "yes": True,
        "size": "large",
        "endless": ...,
        "day": ...,
        "names": ...,
        "point": ...,
    }


@nearcall.service
class Defaults:
    def all(
        self,
        item: str,
        count: int = 3,
        rate: float = -0.5,
        text: str = "it's \n\"",
        note: str | None = None,
        *,
        yes: bool = True,
        size: Size = Size.LARGE,
        endless: float | None = math.inf,
        day: datetime.date = datetime.date(2024, 2, 29),
        names: list[str] = [],  # noqa: B006
        point: Place = Place(1.0, 2.0),  # noqa: B008
    ) -> None: ...


def test_both_checkers_know_them(stub: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    with nearcall.Server(Shop(), "inproc://written") as server:
        for name, source in (("of_class", TARGET), ("of_url", server.urls[0])):
            (tmp_path / f"{name}.py").write_text(stub(source), encoding="utf-8")
            (tmp_path / f"{name}_in_loop.py").write_text(stub("--async", source), encoding="utf-8")
    assert_both_find(USE, tmp_path)


def test_both_checkers_know_what_a_client_of_a_proto_may_send(stub: Any, tmp_path: Path) -> None:
    pytest.importorskip("pyright")
    pytest.importorskip("grpc_tools")
    proto = tmp_path / "log.proto"
    proto.write_text(PROTO, encoding="utf-8")
    for name, flags in (("of_proto", ["--client"]), ("of_proto_in_loop", ["--async", "--client"])):
        (tmp_path / f"{name}.py").write_text(stub(*flags, str(proto)), encoding="utf-8")
    assert_both_find(USE_OF_PROTO, tmp_path)


def assert_both_find(use: str, tmp_path: Path) -> None:
    """mypy and pyright, both strict, refuse the lines that end with ``# error``, and no others."""
    (tmp_path / "use.py").write_text(use, encoding="utf-8")
    wrong = {number for number, line in enumerate(use.splitlines(), 1) if line.endswith("# error")}
    paths = sorted(map(str, tmp_path.glob("*.py")))
    settings = {"include": [str(tmp_path)], "extraPaths": [str(ROOT), str(ROOT / "python")], "pythonVersion": "3.10"}
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings | {"typeCheckingMode": "strict"}))
    # With the settings of `make lint`: what that has looked at is not looked at again.
    environment = os.environ | {"MYPYPATH": str(tmp_path)}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=55,
            check=False,
        )
        assert done.returncode == 1, done.stdout + done.stderr
        return done.stdout

    shown = run("pyright", "--outputjson", "--pythonpath", sys.executable, "-p", str(tmp_path))
    problems = [each for each in json.loads(shown)["generalDiagnostics"] if each["severity"] == "error"]
    assert {(Path(each["file"]).name, each["range"]["start"]["line"] + 1) for each in problems} == {
        ("use.py", line) for line in wrong
    }, shown
    shown = run("mypy", "--no-error-summary", "--show-absolute-path", *paths)
    found = {tuple(line.split(":")[:2]) for line in shown.splitlines() if ": error:" in line}
    assert {(Path(name).name, int(line)) for name, line in found} == {("use.py", line) for line in wrong}, shown


USE = """
from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, closing

from typing_extensions import assert_type

import nearcall
import of_class
import of_class_in_loop
import of_url
import of_url_in_loop
from tests.e2e.coloured_services import Item


class Ear(of_class.Listener):
    def sold(self, item: Item) -> str:
        return item.name

    def wishes(self) -> Iterator[str]:  # a handler yields: it has no stream that a client could close
        yield "pen"

    def bye(self) -> None: ...


class EarOfUrl(of_url.Listener):
    def sold(self, item: of_url.Item) -> str:
        return item.name

    def wishes(self) -> Iterator[str]:
        yield "pen"

    def bye(self) -> None: ...


class AsyncEar(of_class_in_loop.AsyncListener):
    async def sold(self, item: Item) -> str:
        return item.name

    async def wishes(self) -> AsyncIterator[str]:
        yield "pen"

    async def bye(self) -> None: ...


def threads() -> None:
    with nearcall.connect("shm://shop", of_class.Shop) as shop:
        assert_type(shop.find("a", limit=3), list[Item])
        assert_type([item for item in shop.sold(1)], list[Item])
        with closing(shop.sold(1)) as sold, shop.each([1]) as each:
            assert_type(next(sold), Item)
            assert_type(next(each), int)
        with shop.basket().names() as names:
            assert_type(next(names), str)
        shop.listen(Ear())
        assert_type(shop.total([1], by=2), int)
        assert_type(shop.basket().weigh(), float)
        assert_type(shop.list(["a"]), list[str])
        shop.total(["1"])  # error
        shop.price(item=Item("a"))  # error
    with nearcall.connect("shm://shop", of_url.Shop) as shop2:
        assert_type(shop2.find("a"), list[of_url.Item])
        with shop2.each([1]) as each, shop2.basket().names() as names:
            assert_type((next(each), next(names)), tuple[int, str])
        shop2.listen(EarOfUrl())
        shop2.find(1)  # error


async def loops() -> None:
    async with nearcall.aio.connect("shm://shop", of_class_in_loop.AsyncShop) as shop:
        assert_type(await shop.find("a", limit=3), list[Item])
        assert_type([item async for item in shop.sold(1)], list[Item])
        async with aclosing(shop.sold(1)) as sold, shop.each([1]) as each:
            assert_type(await anext(sold), Item)
            assert_type(await anext(each), int)
        async with (await shop.basket()).names() as names:
            assert_type(await anext(names), str)
        await shop.listen(AsyncEar())
        assert_type(await shop.total([1], by=2), int)
        assert_type(await (await shop.basket()).weigh(), float)
        await shop.total(["1"])  # error
        await shop.sold(1)  # error
        shop.log("line")  # error
    async with nearcall.aio.connect("shm://shop", of_url_in_loop.AsyncShop) as shop2:
        assert_type(await shop2.find("a"), list[of_url_in_loop.Item])
        await shop2.find(1)  # error
"""


PROTO = """
syntax = "proto3";
message Line { string text = 1; }
service Log {
  rpc Put(stream Line) returns (Line);
  rpc Chat(stream Line) returns (stream Line);
}
"""
USE_OF_PROTO = """
from __future__ import annotations

from collections.abc import AsyncIterator

from typing_extensions import assert_type

import nearcall
import of_proto
import of_proto_in_loop


async def later() -> AsyncIterator[of_proto_in_loop.Line]:
    yield of_proto_in_loop.Line()


async def later_in_threads() -> AsyncIterator[of_proto.Line]:
    yield of_proto.Line()


def threads() -> None:
    lines = [of_proto.Line(text="a")]
    with nearcall.connect("grpc://there:1", of_proto.Log) as log:
        assert_type(log.put(lines), of_proto.Line)
        log.put(iter(lines))
        log.put(line for line in lines)
        with log.chat(lines) as replies:
            assert_type(next(replies), of_proto.Line)
        log.put(["a"])  # error
        log.put(later_in_threads())  # error


async def loops() -> None:
    lines = [of_proto_in_loop.Line(text="a")]
    async with nearcall.aio.connect("grpc://there:1", of_proto_in_loop.AsyncLog) as log:
        assert_type(await log.put(lines), of_proto_in_loop.Line)
        assert_type(await log.put(later()), of_proto_in_loop.Line)
        async with log.chat(iter(lines)) as replies:
            assert_type(await anext(replies), of_proto_in_loop.Line)
        assert_type([line async for line in log.chat(later())], list[of_proto_in_loop.Line])
        await log.put(["a"])  # error
"""


@COLOURS
def test_check(stub: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], flags: list[str]) -> None:
    written = tmp_path / "client.py"
    text = stub(*flags, TARGET)
    written.write_text(text)
    assert stub(*flags, "--check", str(written), TARGET) == f"{written} says what the service says\n"
    laid_out = text.replace(", limit: int", ",\n        limit: int").replace("import decimal\n", "")
    written.write_text(laid_out.replace("import uuid\n", "import uuid\nimport decimal  # as a formatter likes it\n"))
    assert stub(*flags, "--check", str(written), TARGET)
    old = "def given(self, n: str) -> int:"
    written.write_text(text.replace("def given(self, n: int) -> int:", old))
    assert main(["stub", *flags, "--check", str(written), TARGET]) == 1
    lines = capsys.readouterr().out.splitlines()
    kind = "async def" if flags else "def"
    assert [line for line in lines if line.startswith(("-", "+")) and not line.startswith(("---", "+++"))] == [
        f"-    {kind} given(self, n: str) -> int:",
        f"+    {kind} given(self, n: int) -> int:",
    ]
    assert main(["stub", *([] if flags else ["--async"]), "--check", str(written), TARGET]) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([f"{Shop.__module__}:Item"], "is not a service's class: decorate it with @nearcall.service"),
        ([TARGET, "a.proto"], "give one class or URL, or .proto files"),
        (["--check", "none.py", TARGET], "none.py cannot be read: No such file or directory"),
        (["--check", str(ROOT / "README.md"), TARGET], "README.md is no module of Python"),
        (["http://127.0.0.1:1"], "only servers of gRPC say what their .proto says"),
        (["stub"], "'stub' is not MODULE:CLASS"),
    ],
)
def test_mistakes_are_one_line(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(["stub", *arguments]) != 0
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert "Errno" not in line


def test_an_interface_of_the_wrong_colour(stub: Any, load: Any) -> None:
    module = load(stub("--async", TARGET))
    with nearcall.Server(Shop(), "inproc://colours"):
        with pytest.raises(TypeError, match=r"AsyncShop is an interface for event loops: use nearcall\.aio there"):
            nearcall.connect("inproc://colours", module.AsyncShop)
        with (
            nearcall.Channel("inproc://colours") as channel,
            pytest.raises(TypeError, match="interface for event loops"),
        ):
            channel.client(module.AsyncShop)
    with pytest.raises(TypeError, match="interface for event loops"):
        nearcall.spawn([sys.executable, "-c", ""], module.AsyncShop)
    with pytest.raises(TypeError, match=r"Adder\.add\(\) is for threads, but Adder is a nearcall\.aio\.Interface"):

        @nearcall.service
        class Adder(nearcall.aio.Interface, Protocol):
            def add(self, a: int) -> int: ...


def test_a_class_with_handlers_for_a_loop_is_for_both() -> None:
    @nearcall.service
    class Pages(nearcall.aio.Interface):
        async def fetch(self, number: int) -> str:
            return f"page {number}"

    async def call() -> str:
        async with nearcall.aio.connect("inproc://pages", Pages) as pages:
            return await pages.fetch(2)

    with nearcall.Server(Pages(), "inproc://pages"):
        with nearcall.connect("inproc://pages", Pages) as pages:
            got: Any = pages.fetch(1)
        assert (got, asyncio.run(call())) == ("page 1", "page 2")


def test_a_class_that_no_module_has() -> None:
    class Inner(msgspec.Struct):
        x: int

    @nearcall.service
    class Local:
        def f(self, x: Inner) -> None: ...

    with pytest.raises(CannotBeWritten, match=r"no module can import .*Inner"):
        interfaces_text(Local, "x:Local", for_loop=False)


def described(**changes: Any) -> Any:
    """A description as a server may send it: of one method, with changes."""
    value = {"type": "int", "form": "coded", "schema": "int"}
    method = {"name": "f", "kind": "unary", "parameters": [], "returns": value, "doc": None} | changes.pop("method", {})
    service: dict[str, Any] = {"name": "S", "methods": [method], "types": {}}
    service |= changes
    return read_description({"nearcall": 1, "services": [service]})


def struct(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"layout": "map", "fields": list(fields), **more}


def with_field(*fields: dict[str, Any], **more: Any) -> Any:
    returns = {"type": "Point", "form": "coded", "schema": {"ref": "Point"}}
    return described(types={"Point": struct(*fields, **more)}, method={"returns": returns})


ODD = "x: int = __import__('os')._exit(9)"
EVIL = '"""\nimport os; os._exit(9)\n"""'


@pytest.mark.parametrize(
    ("description", "said"),
    [
        (described(method={"name": "class"}), "the name 'class', which Python needs"),
        (described(method={"kind": "teleport"}), "only a newer nearcall knows"),
        (read_description({"nearcall": 1, "services": []}), "the server has no services"),
        (with_field({"name": EVIL, "required": True, "type": "int"}), "a field that no class can have"),
        (with_field(tag=[EVIL, "x"]), "a field that no class can have"),
        (with_field(tag=["x", None]), "a tag that is neither a number nor a text"),
    ],
    ids=["keyword", "kind", "nothing", "field", "tag", "tag's value"],
)
def test_what_a_server_says_that_has_no_counterpart(description: Any, said: str) -> None:
    with pytest.raises(CannotBeWritten, match=said):
        described_text(description, for_loop=False)


@pytest.mark.parametrize("for_loop", [False, True])
def test_what_a_server_says_is_never_run(load: Any, for_loop: bool) -> None:
    evil = struct(
        {"name": ODD, "required": False, "type": "int", "default": 1},
        {"name": "int", "required": False, "type": {"list": "int"}, "default": []},
        {"name": "Evil", "required": False, "type": "str", "default": EVIL},
        {"name": "choice", "required": True, "type": {"values": [EVIL, 1]}},
        {"name": "wrong", "required": False, "type": "int", "default": EVIL},
        {"name": "far", "required": False, "type": "float", "default": float("inf")},
        {"name": "new", "required": True, "type": {EVIL: EVIL}},
        {"name": "array", "required": True, "type": {"array": EVIL}},
        tag=["pass; x", EVIL],
    )
    name = f"Evil{EVIL}"
    returns = {"type": EVIL, "form": "coded", "schema": {"union": [{"ref": name}, "none"]}}
    method = {"returns": returns, "doc": EVIL + "\\", "signature": EVIL}
    module = load(described_text(described(types={name: evil}, doc=EVIL + '"', method=method), for_loop=for_loop))
    interface = module.AsyncS if for_loop else module.S
    assert "import os" in interface.__doc__
    made: type[msgspec.Struct] = module.Evilimportosos_exit9
    fields = {field.encode_name: field for field in msgspec.structs.fields(made)}
    assert fields[ODD].name == "field_1"
    assert fields["Evil"].default == EVIL
    assert plan_of(interface).methods[0].name == "f"


@dataclasses.dataclass
class Layer:
    weights: NDArray[np.float32]
    steps: list[NDArray[np.int64]]
    mask: NDArray[np.bool_] | None = None
    named: dict[str, np.ndarray[Any, Any]] = dataclasses.field(default_factory=dict)
    tensor: tvm_ffi.Tensor | None = None


@nearcall.service
class Layers:
    def turned(self, layer: Layer, tensor: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
        return tensor


def test_arrays_keep_their_dtypes_and_tensors_their_class(stub: Any, load: Any, new_url: str) -> None:
    with nearcall.Server(Layers(), new_url) as server:
        text = stub(server.urls[0])
        for line in (
            "weights: numpy.typing.NDArray[numpy.float32]",
            "steps: list[numpy.typing.NDArray[numpy.int64]]",
            "mask: numpy.typing.NDArray[numpy.bool_] | None = None",
            "named: dict[str, numpy.typing.NDArray[typing.Any]]",
            "tensor: tvm_ffi.Tensor | None = None",
            "def turned(self, layer: Layer, tensor: tvm_ffi.Tensor) -> tvm_ffi.Tensor",
        ):
            assert line in text
        module = load(text)
        tensor = tvm_ffi.from_dlpack(np.arange(3, dtype=np.float32))
        layer = module.Layer(weights=np.ones(2, np.float32), steps=[np.arange(2)], tensor=tensor)
        with nearcall.connect(server.urls[0], module.Layers) as layers:
            assert np.from_dlpack(layers.turned(layer, tensor)).tolist() == [0.0, 1.0, 2.0]
            layer.weights = np.ones(2)
            with pytest.raises(nearcall.InvalidArgument, match="expected an array of float32, got one of float64"):
                layers.turned(layer, tensor)


def test_a_class_that_is_none_of_a_known_library_is_plain_data() -> None:
    returns = {"type": "X", "form": "coded", "schema": {"carried": "tensor", "as": "str", "class": "os.system"}}
    text = described_text(described(method={"returns": returns}), for_loop=False)
    assert "import os" not in text
    assert "-> typing.Any" in text


def test_types_of_one_name_that_differ_are_two_classes(load: Any) -> None:
    def service(name: str, kind: str) -> dict[str, Any]:
        returns = {"type": "Point", "form": "coded", "schema": {"ref": "Point"}}
        types = {"Point": struct({"name": "x", "required": True, "type": kind})}
        return {
            "name": name,
            "methods": [{"name": "f", "kind": "unary", "parameters": [], "returns": returns}],
            "types": types,
        }

    services = [service("A", "int"), service("B", "str"), service("C", "int")]
    module = load(described_text(read_description({"nearcall": 1, "services": services}), for_loop=False))
    results = {name: plan_of(getattr(module, name)).methods[0].signature for name in "ABC"}
    assert results == {"A": "f() -> Point", "B": "f() -> Point2", "C": "f() -> Point"}
