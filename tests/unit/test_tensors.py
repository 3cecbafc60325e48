"""Tensors of libraries that speak DLPack: what arrives is what left, nobody can change what others see, and what a peer
may not send.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import nearcall
from nearcall.cli.annotations import Annotations
from nearcall.errors import InvalidArgument
from nearcall.types import tensors

from .loopback import Loopback

xp: Any = pytest.importorskip("array_api_strict")
tvm_ffi: Any = pytest.importorskip("tvm_ffi")

Strict = type(xp.asarray([1]))
KNOWS_THE_FLAG = tuple(map(int, np.__version__.split(".")[:2])) >= (2, 1)
"""Whether arrays of this numpy, of which one library's tensors are made, can be lent read-only."""
LONG = 100_000


class Plain:
    """A tensor of a library that knows nothing of memory that must not be written to."""

    device: tuple[int, int] = (1, 0)
    requires_grad = False

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self) -> Any:
        return self.array.__dlpack__()

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and bool(np.array_equal(self.array, other.array))

    __hash__ = None  # type: ignore[assignment]


class Narrow(Plain):
    """Of a library that has no 64 bits."""


class Other(Plain):
    """Of a library whose tensors are of another class."""


class Lost(Plain):
    """Of a library that makes none."""


def library(name: str, cls: Any, make: Callable[[Any], Any] | None) -> None:
    """Puts a class into a library of its own."""
    module: Any = ModuleType(name)
    module.__dict__.update({cls.__name__: cls} if make is None else {cls.__name__: cls, "from_dlpack": make})
    sys.modules[name] = module
    cls.__module__ = name


def writable(lent: Any) -> Any:
    """The memory that was lent, which this library takes for its own; older versions of numpy make read-only arrays."""
    array = np.from_dlpack(lent)
    if array.flags.writeable:
        return array
    return tensors._as_writable(array) if array.nbytes else array.copy()  # pyright: ignore[reportPrivateUsage]


def narrow(lent: Any) -> Narrow:
    array = writable(lent)
    return Narrow(array.astype(array.dtype.str.replace("8", "4")))


library("plain_tensors", Plain, lambda lent: Plain(writable(lent)))
library("narrow_tensors", Narrow, narrow)
library("other_tensors", Other, lambda lent: Plain(writable(lent)))
library("lost_tensors", Lost, None)


@nearcall.service
class Model:
    def strict(self, tensor: Strict) -> Strict:  # type: ignore[valid-type]
        return tensor

    def tvm(self, tensor: tvm_ffi.Tensor) -> tvm_ffi.Tensor:
        return tensor

    def plain(self, tensor: Plain | None) -> Plain | None:
        return tensor

    def many(self, tensors: dict[str, list[Plain]]) -> dict[str, list[Plain]]:
        return tensors

    def either(self, tensor: Plain | str) -> Plain | str:
        return tensor

    def other(self, tensor: Other) -> None: ...

    def narrow(self, tensor: Narrow) -> Narrow:
        return tensor

    def written(self, tensor: Plain) -> float:
        tensor.array[:] = 7
        return float(tensor.array.sum())

    def where(self, tensor: Strict) -> tuple[bool, int, bool]:  # type: ignore[valid-type]
        """Whether a tensor lies in memory that both sides see, how it is aligned, and whether it can be written to."""
        array = np.from_dlpack(tensor)
        return mapped(array), array.ctypes.data % 64, array.flags.writeable

    def where_tvm(self, tensor: tvm_ffi.Tensor) -> bool:
        return mapped(np.from_dlpack(tensor))


@nearcall.service(name="Model")
class OfAnotherLibrary:
    """The same service, seen with tensors of another library."""

    def tvm(self, tensor: Plain) -> Plain: ...

    def strict(self, tensor: tvm_ffi.Tensor) -> tvm_ffi.Tensor: ...


def mapped(array: Any) -> bool:
    ranges = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "memfd" in line]
    bounds = [[int(bound, 16) for bound in line[0].split("-")] for line in ranges]
    return any(start <= array.ctypes.data < end for start, end in bounds)


@pytest.fixture(scope="module", params=["msgpack", "json", "grpc"])
def model(request: pytest.FixtureRequest) -> Iterator[Any]:
    if request.param == "grpc":
        with (
            nearcall.Server(Model(), "grpc://127.0.0.1:0") as server,
            nearcall.connect(server.urls[0], Model) as client,
        ):
            yield client
        return
    url = f"inproc://tensors-{request.param}"
    with nearcall.Server(Model(), url, codecs=["json"]), nearcall.connect(url, Model, codec=request.param) as client:
        yield client


ARRAYS = {
    **{
        name: np.arange(24).reshape(2, 3, 4).astype(name)
        for name in ("int8", "uint16", "int32", "int64", "uint64", "float16", "float32", "float64", "complex64", "bool")
    },
    "complex128": np.array([1 + 2j, np.nan]),
    "long": np.arange(LONG),
    "transposed": np.arange(12).reshape(3, 4).T,
    "every other": np.arange(12)[::2],
    "backwards": np.arange(12)[::-1],
    "one for all": np.lib.stride_tricks.as_strided(np.full(1, 3.5), (5, 7), (0, 0)),
    "a number": np.array(3.5),
    "empty": np.zeros((0, 3), np.float32),
    "empty, later": np.zeros((3, 0)),
}


@pytest.mark.parametrize("name", ARRAYS)
def test_tensors(model: Any, name: str) -> None:
    array = ARRAYS[name]
    arrived = model.plain(Plain(array))
    assert type(arrived) is Plain
    assert arrived.array.dtype == array.dtype
    assert arrived.array.shape == array.shape
    np.testing.assert_array_equal(arrived.array, array)
    if array.dtype != np.float16 and KNOWS_THE_FLAG:  # this library does not have the former
        strict = model.strict(xp.asarray(array))
        np.testing.assert_array_equal(np.from_dlpack(strict), array)


def of_bits(name: str, bits: Any) -> Any:
    """A tensor of a dtype that numpy does not have."""
    kind = tensors._KINDS[name]  # pyright: ignore[reportPrivateUsage]
    return tvm_ffi.from_dlpack(tensors._Lent(bits, kind))  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_dtypes_that_numpy_does_not_have(model: Any, name: str) -> None:
    bits = np.arange(60000, dtype=np.uint16 if name == "bfloat16" else np.uint8)
    tensor = of_bits(name, bits.reshape(-1, 5))
    assert str(tensor.dtype) == name
    arrived = model.tvm(tensor)
    assert str(arrived.dtype) == str(tensor.dtype) == name, "the sender's own is as it was"
    assert tuple(arrived.shape) == (12000, 5)
    sent = tensors._Read(arrived)  # pyright: ignore[reportPrivateUsage]
    np.testing.assert_array_equal(np.from_dlpack(sent).reshape(-1), bits)


def test_sides_may_have_tensors_of_different_libraries() -> None:
    url = "inproc://tensors-of-others"
    with nearcall.Server(Model(), url), nearcall.connect(url, OfAnotherLibrary) as model:
        arrived = model.tvm(Plain(np.arange(6.0).reshape(2, 3)))
        assert arrived == Plain(np.arange(6.0).reshape(2, 3))
        with pytest.raises(InvalidArgument, match="array_api_strict takes none of bfloat16 here"):
            model.strict(of_bits("bfloat16", np.arange(3, dtype=np.uint16)))


@pytest.mark.parametrize(("name", "cls"), [("torch", "Tensor"), ("jax", "Array")])
def test_libraries_that_are_too_large_for_every_day(name: str, cls: str) -> None:
    library: Any = pytest.importorskip(name)
    numpy_like: Any = library if name == "torch" else library.numpy

    def same(self: Any, tensor: Any) -> Any:
        return tensor

    same.__annotations__ = dict.fromkeys(("tensor", "return"), getattr(library, cls))
    service = nearcall.service(type("Same", (), {"same": same}))
    url = f"inproc://tensors-of-{name}"
    with nearcall.Server(service(), url), nearcall.connect(url, service) as model:
        call: Any = model
        for dtype in ("int8", "int32", "float16", "float32", "bfloat16", "complex64"):
            tensor = numpy_like.ones((2, 5000), dtype=getattr(numpy_like, dtype)) * 3
            arrived = call.same(tensor)
            assert type(arrived) is type(tensor)
            assert (arrived.dtype, arrived.shape) == (tensor.dtype, tensor.shape)
            assert bool((arrived == tensor).all())
        assert call.same(numpy_like.ones(())).shape == ()
        assert tuple(call.same(numpy_like.zeros((0, 3))).shape) == (0, 3)
        if name == "torch":
            number = library.tensor([1 + 2j]).conj()
            assert call.same(number) == number
            assert call.same(number.imag) == -2
            with pytest.raises(InvalidArgument, match=r"pass tensor\.detach\(\)"):
                call.same(library.ones(2, requires_grad=True))


def test_within_other_types(model: Any) -> None:
    sent = {"a": [Plain(np.arange(5.0)), Plain(np.zeros((2, 0)))], "b": []}
    assert model.many(sent) == sent
    assert model.plain(None) is None
    assert model.either("text") == "text"
    assert model.either(Plain(np.arange(3))) == Plain(np.arange(3))


@pytest.mark.skipif(not KNOWS_THE_FLAG, reason="numpy knows no read-only tensors before 2.1")
def test_what_cannot_be_written_to_is_read_where_it_lies() -> None:
    url = f"shm://tensors-{os.getpid()}"
    with nearcall.Server(Model(), url), nearcall.connect(url, Model) as model:
        assert model.where(xp.arange(LONG)) == (True, 0, False)
        assert model.where(xp.arange(LONG) % 2 == 0)[0] is False, "bools are checked, and must not change then"
        # These libraries would write to it: a copy, which may be written to.
        assert model.where_tvm(tvm_ffi.from_dlpack(np.arange(LONG))) is False
        sent = Plain(np.zeros(LONG))
        assert model.written(sent) == 7.0 * LONG
        assert not sent.array.any()
        arrived = model.strict(xp.arange(LONG))
        with pytest.raises(ValueError, match="read-only"):
            arrived[0] = 1
    assert int(arrived[-1]) == LONG - 1, "a view keeps its memory"


def test_tensors_that_never_change_are_read_where_they_lie(monkeypatch: pytest.MonkeyPatch) -> None:
    class Array:
        """As that of jax: abstract, and its objects are of another class."""

    class ArrayImpl(Array):
        def __init__(self, array: Any) -> None:
            self.array = array

        def __dlpack__(self) -> Any:
            return self.array.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return self.array.__dlpack_device__()  # type: ignore[no-any-return]

    fake: Any = ModuleType("jax")
    fake.numpy = ModuleType("jax.numpy")
    fake.numpy.from_dlpack = lambda lent: ArrayImpl(writable(lent))
    monkeypatch.setitem(sys.modules, "jax", fake)
    monkeypatch.setitem(sys.modules, "jax.numpy", fake.numpy)
    fake.Array = Array
    Array.__module__ = "jax"
    Array.__name__ = Array.__qualname__ = "jaxlib._jax.Array"  # as it is there
    assert Annotations(str, for_loop=False).name(Array) == "jax.Array"

    def where(self: Any, array: Any) -> tuple[bool, float]:
        assert type(array) is ArrayImpl
        return mapped(array.array), float(array.array.sum())

    where.__annotations__ = {"array": Array, "return": tuple[bool, float]}
    service = nearcall.service(type("Learning", (), {"where": where}))
    url = f"shm://tensors-of-jax-{os.getpid()}"
    with nearcall.Server(service(), url), nearcall.connect(url, service) as model:
        call: Any = model
        assert call.where(ArrayImpl(np.ones(LONG))) == (True, LONG)
        assert call.where(ArrayImpl(np.ones(0))) == (False, 0)
        with pytest.raises(InvalidArgument, match="must be Array, got ndarray of float64"):
            call.where(np.ones(3))


class Special(Plain):
    """A subclass, whose objects may have more than a tensor."""


def plainly(**attributes: Any) -> Plain:
    """A tensor with something of its own."""
    tensor = Plain(np.ones(3))
    for name, value in attributes.items():
        setattr(tensor, name, value)
    return tensor


def giving(what: Any) -> Plain:
    """A tensor whose library gives this."""

    def give(**_: Any) -> Any:
        if isinstance(what, Exception):
            raise what
        return what

    return plainly(__dlpack__=give)


def of_kind(code: int, bits: int, lanes: int = 1) -> Plain:
    """A tensor of elements of another type of DLPack's."""
    lent = tensors._Lent(np.ones(3), tensors._Kind(code, bits, lanes))  # pyright: ignore[reportPrivateUsage]
    return plainly(__dlpack__=lent.__dlpack__)


REFUSED: dict[str, tuple[Callable[[], Any], str]] = {
    "cuda": (
        lambda: plainly(device=(2, 0)),
        "it is on a CUDA device, and only tensors in the CPU's memory travel: move it",
    ),
    "with cpu()": (lambda: plainly(device=(9, 0), cpu=None), "it is on a device, and only tensors in the CPU's"),
    "its remedy": (lambda: plainly(device=(9, 0), cpu=None), "pass tensor.cpu()"),
    "a gradient": (lambda: plainly(requires_grad=True), "pass tensor.detach()"),
    "an array": (lambda: np.ones(3), "must be Plain | None, got ndarray of float64"),
    "a subclass": (lambda: Special(np.ones(3)), "got tests.Special"),
    "no capsule": (lambda: giving("text"), "its __dlpack__() has returned str"),
    "another capsule": (lambda: giving(np.random.default_rng(1).bit_generator.capsule), "something else than a tensor"),
    "what the library says": (lambda: giving(RuntimeError("there are no strides")), "there are no strides"),
    "four bits": (lambda: of_kind(0, 4), "elements of 1 times 4 bits, of DLPack's type 0, do not travel"),
    "lanes": (lambda: of_kind(2, 16, 4), "elements of 4 times 16 bits, of DLPack's type 2, do not travel"),
    "handles": (lambda: of_kind(3, 64), "of DLPack's type 3, do not travel"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_arrive_as_it_is_is_refused(name: str) -> None:
    make, message = REFUSED[name]
    with pytest.raises(InvalidArgument) as caught:
        Loopback(Model(), Model).plain(make())
    assert message in str(caught.value)


def test_a_library_that_makes_something_else_is_refused() -> None:
    loopback = Loopback(Model(), Model)
    assert loopback.narrow(Narrow(np.ones(3, np.float32))).array.dtype == np.float32
    with pytest.raises(InvalidArgument, match="narrow_tensors makes float32 of float64"):
        loopback.narrow(Narrow(np.ones(3)))
    with pytest.raises(
        InvalidArgument, match=r"from_dlpack\(\) of other_tensors makes plain_tensors.Plain: declare that"
    ):
        loopback.other(Other(np.ones(3)))


def test_a_class_whose_library_makes_none_is_refused_when_it_is_declared() -> None:
    with pytest.raises(TypeError, match="Lost cannot be encoded"):

        @nearcall.service
        class _:
            def method(self, tensor: Lost) -> None: ...


def sent_as(**changes: Any) -> dict[str, Any]:
    return {"dtype": "float32", "shape": [2, 2], "data": bytes(16), **changes}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no dtype": (sent_as(dtype="object"), "there is no dtype 'object'"),
    "a dtype of numpy's own": (sent_as(dtype="f4,f4"), "there is no dtype"),
    "a long dtype": (sent_as(dtype="x" * 100_000), "there is no dtype"),
    "too few bytes": (sent_as(data=bytes(15)), "it has 15 bytes, and its shape asks for 16"),
    "too many bytes": (sent_as(data=bytes(17)), "it has 17 bytes, and its shape asks for 16"),
    "less than none": (sent_as(shape=[-2, -2]), "its shape is malformed"),
    "many dimensions": (sent_as(shape=[1] * 100_000), "its shape is malformed"),
    "huge ones": (sent_as(shape=[2**63] * 64), "its shape is malformed"),
    "huge ones, and none": (sent_as(shape=[2**62, 2**62, 0], data=b""), "its shape is malformed"),
    "a length that is none": (sent_as(shape=["2"]), "what Plain travels as: expected int, got str, at .shape[0] of it"),
    "bools that are none": (sent_as(dtype="bool", data=b"\0\1\2\1"), "an element is neither False nor True"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_tensor_is_refused(name: str) -> None:
    sent, message = BAD[name]
    with pytest.raises(InvalidArgument) as caught:
        Loopback(Model()).plain(sent)
    assert message in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_client_without_the_class_can_send_it_on() -> None:
    arrived = Loopback(Model()).plain(sent_as())
    assert arrived == sent_as(data=arrived["data"])
    assert bytes(arrived["data"]) == bytes(16)


def test_nothing_is_imported_before_the_first_tensor() -> None:
    code = """
import sys, types, nearcall

class Tensor:
    def __dlpack__(self): ...
    def __dlpack_device__(self): ...

sys.modules["__main__"].from_dlpack = print

@nearcall.service
class Model:
    def run(self, tensor: Tensor) -> None: ...

print("numpy" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "False\n"
