"""numpy arrays cross unchanged, whatever their dtype, shape and order, and without copies."""

from __future__ import annotations

import contextlib
import gc
import threading
import weakref
from array import array as compact
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from hypothesis.extra import numpy as npst  # noqa: E402
from numpy.typing import NDArray  # noqa: E402

from nearcall.codec.msgpack import functions as msgpack  # noqa: E402
from nearcall.errors import Internal, InvalidArgument  # noqa: E402
from nearcall.service.describing import describe  # noqa: E402
from nearcall.service.service import plan_of, service  # noqa: E402
from nearcall.types.differences import Difference, differences  # noqa: E402

from .loopback import Loopback, carry_arguments  # noqa: E402

decode_any = msgpack.parts_decoder(Any)


def same(a: Any, b: Any) -> bool:
    return bool(a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes())


@given(
    npst.arrays(
        st.one_of(
            npst.scalar_dtypes(),
            npst.byte_string_dtypes(min_len=1),
            npst.unicode_string_dtypes(min_len=1),
            npst.array_dtypes(npst.scalar_dtypes()),
        ),
        npst.array_shapes(min_dims=0, min_side=0, max_side=4),
    ),
    st.sampled_from(["C", "F", "strided", "read-only"]),
)
def test_arrays_round_trip(values: Any, layout: str) -> None:
    if layout == "F":
        values = np.asfortranarray(values)
    elif layout == "strided" and values.ndim:
        values = values[::2]
    elif layout == "read-only":
        values.flags.writeable = False
    body, buffers = msgpack.encode_parts(values)
    arrived = decode_any(body, buffers)
    assert type(arrived) is np.ndarray
    assert same(arrived, values)


def test_contiguous_arrays_are_not_copied() -> None:
    for array in (np.arange(6.0).reshape(2, 3), np.asfortranarray(np.ones((3, 4))), np.zeros(3, "M8[s]")):
        body, buffers = msgpack.encode_parts(array)
        assert np.shares_memory(np.asarray(buffers[0]), array)
        arrived = decode_any(body, buffers)
        assert np.shares_memory(arrived, array)
        assert arrived.flags.f_contiguous == array.flags.f_contiguous


@pytest.mark.parametrize(
    "value",
    [np.array([object()]), np.ma.array([1], mask=[True]), np.zeros(1, [("a", "O")])],
    ids=["objects", "masked", "record of objects"],
)
def test_arrays_that_cannot_cross_say_so(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent"):
        msgpack.encode_parts(value)


def test_aligned_records_and_big_endian_cross() -> None:
    for dtype in (
        np.dtype([("a", "i1"), ("b", "<i4")], align=True),
        np.dtype(">f8"),
        np.dtype([(("title", "x"), "i2")]),
    ):
        array = np.zeros(3, dtype)
        arrived = decode_any(*msgpack.encode_parts(array))
        assert arrived.dtype == dtype


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (["<f8", [2], "C", 1], "an array refers to buffer 1 of 1"),
        (["<f8", [3], "C", 0], "an array of 24 bytes refers to a buffer of 16 bytes"),
        (["<f8", [-2], "C", 0], "malformed array header"),
        (["<f8", [2], "A", 0], "malformed array header"),
        (["<f8", [1] * 65, "C", 0], "malformed array header"),
        (["|O", [2], "C", 0], "malformed array header: no dtype"),
        (["nonsense", [2], "C", 0], "malformed array header"),
        ([[["a"]], [2], "C", 0], "malformed array header"),
        ([{"a": 1}, [2], "C", 0], "malformed array header"),
        (["<f8", [2**62, 2**62], "C", 0], "refers to a buffer of 16 bytes"),
        (["<f8"], "malformed array header"),
        (3, "malformed array header"),
    ],
)
def test_hostile_headers_are_refused(header: Any, message: str) -> None:
    body = msgspec.msgpack.encode(msgspec.msgpack.Ext(msgpack.ARRAY, msgspec.msgpack.encode(header)))
    with pytest.raises(ValueError, match=message):
        decode_any(body, [memoryview(bytes(16))])


@given(st.binary(max_size=40))
def test_any_bytes_in_a_header_are_refused_or_read(data: bytes) -> None:
    body = msgspec.msgpack.encode(msgspec.msgpack.Ext(msgpack.ARRAY, data))
    with contextlib.suppress(ValueError):
        decode_any(body, [memoryview(bytes(16))])


@pytest.mark.parametrize("code", [3, 9, 31])
def test_extensions_that_mean_nothing_here_are_refused(code: int) -> None:
    with pytest.raises(ValueError, match=f"an extension of type {code}"):
        decode_any(msgspec.msgpack.encode([msgspec.msgpack.Ext(code, b"x")]), [])


def test_raw_buffers_can_be_referred_to() -> None:
    body = msgspec.msgpack.encode([msgspec.msgpack.Ext(msgpack.BUFFER, b"\x00"), msgspec.msgpack.Ext(77, b"x")])
    view, other = decode_any(body, [memoryview(b"abc")])
    assert (view, other) == (b"abc", msgspec.msgpack.Ext(77, b"x"))
    with pytest.raises(ValueError, match="refers to buffer 0 of 0"):
        decode_any(body, [])


@pytest.mark.parametrize("decode", [decode_any, msgpack.parts_decoder(list[Any])])
def test_a_buffer_is_referred_to_once(decode: Any) -> None:
    """A megabyte that is named a thousand times would be a gigabyte as soon as somebody sends it on."""
    once = msgspec.msgpack.Ext(msgpack.BUFFER, b"\x00")
    views = [memoryview(b"abc"), memoryview(b"")]
    for _ in range(2):  # a message may be decoded again
        assert decode(msgspec.msgpack.encode([once]), views) == [b"abc"]
    with pytest.raises(ValueError, match="refers to buffer 0 more than once"):
        decode(msgspec.msgpack.encode([once, once]), views)


def test_an_array_refers_to_a_buffer_of_its_own() -> None:
    body, buffers = msgpack.encode_parts([np.arange(3), np.arange(3)])
    twice = body.replace(b"C\x01", b"C\x00")
    assert twice != body
    with pytest.raises(ValueError, match="refers to buffer 0 more than once"):
        decode_any(twice, buffers)


def test_threads_do_not_mix_their_buffers() -> None:
    wrong: list[int] = []

    def run(number: int) -> None:
        body, buffers = msgpack.encode_parts([np.full(3, number), np.full(4, number)])
        for _ in range(300):
            a, b = decode_any(body, buffers)
            if a[0] != number or b[0] != number:
                wrong.append(number)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@dataclass
class Frame:
    pixels: NDArray[np.uint8]
    time: float
    mask: np.ndarray[Any, Any] | None = None


@service
class Vision:
    def mean(self, image: NDArray[np.float64]) -> float:
        return float(image.mean())

    def crop(self, frame: Frame, size: int) -> Frame:
        return Frame(frame.pixels[:size, :size], frame.time)

    def anything(self, value: Any) -> Any:
        return value

    def raw(self, data: bytes) -> NDArray[np.uint8]:
        return np.frombuffer(data, np.uint8)

    def wrong(self) -> NDArray[np.float64]:
        return np.zeros(3, np.int32)

    def plain(self, x: float, flag: bool, n: int) -> list[float]:
        return [x, float(flag), n]


@pytest.mark.parametrize("cls", [Vision, None], ids=["typed", "dynamic"])
def test_arrays_as_arguments_and_results(cls: type | None) -> None:
    vision = Loopback(Vision(), cls)
    raw_plan = plan_of(Vision).methods[3].arguments
    assert vision.mean(np.arange(5.0)) == 2.0
    assert vision.mean(image=np.arange(5.0)) == 2.0
    nested = vision.anything({"a": [np.arange(3), (np.array(2.5), None)]})
    assert same(nested["a"][0], np.arange(3))
    assert nested["a"][1][0] == 2.5
    for raw in (np.arange(3, dtype=np.uint8), compact("B", [0, 1, 2]), np.array([[0, 1, 2]], np.uint8)):
        assert vision.raw(raw).tolist() == [0, 1, 2]
        assert vision.raw(data=raw).tolist() == [0, 1, 2]
        assert carry_arguments(raw_plan, raw_plan, {"data": raw}) == (b"\0\1\2",)
    with pytest.raises(Internal, match=r"the result must be NDArray.float64., got ndarray of int32"):
        vision.wrong()


def test_arrays_inside_dataclasses() -> None:
    vision = Loopback(Vision(), Vision)
    cropped = vision.crop(Frame(np.ones((4, 5), np.uint8), 1.5, np.zeros(2)), 2)
    assert isinstance(cropped, Frame)
    assert cropped.pixels.shape == (2, 2)
    with pytest.raises(
        InvalidArgument, match=r"argument 'frame' at \.pixels: expected an array of uint8, got one of int64"
    ):
        vision.crop(Frame(np.ones((4, 5), np.int64), 1.5), 2)
    with pytest.raises(InvalidArgument, match=r"argument 'frame' at \.pixels: expected .*ndarray.*, got int"):
        vision.crop(Frame(3, 1.5), 2)


def test_numpy_scalars_pass_for_plain_numbers() -> None:
    vision = Loopback(Vision(), Vision)
    assert vision.plain(np.float64(1.5), np.True_, np.int8(3)) == [1.5, 1.0, 3.0]
    assert vision.plain(np.float32(1.5), True, 3) == [1.5, 1.0, 3.0]
    with pytest.raises(InvalidArgument, match=r"argument 'n' must be int, got numpy.bool"):
        vision.plain(1.0, True, np.True_)


def test_dtypes_are_checked_before_sending() -> None:
    mean = plan_of(Vision).methods[0].arguments
    with pytest.raises(InvalidArgument, match=r"argument 'image' must be NDArray.float64., got ndarray of int64"):
        mean.check_at(0, np.arange(3))
    with pytest.raises(InvalidArgument, match=r"argument 'image' must be NDArray.float64., got list"):
        mean.check_at(0, [1.0])


def test_dtypes_are_part_of_the_description() -> None:
    def method(annotation: Any) -> dict[str, Any]:
        def m(self, a): ...

        m.__annotations__ = {"a": annotation, "return": None}
        return describe([plan_of(service(type("Service", (), {"m": m})))])

    described = method(NDArray[np.float64])
    assert described["services"][0]["methods"][0]["parameters"][0]["schema"] == {"array": "float64"}
    for wider in (NDArray[np.floating[Any]], np.ndarray, NDArray[Any]):
        assert method(wider)["services"][0]["methods"][0]["parameters"][0]["schema"] == {"array": None}
        assert differences({"array": "float64"}, {}, {"array": None}, {}) == []
    found = [Difference("", "NDArray[float64]", "NDArray[int8]", True)]
    assert differences({"array": "float64"}, {}, {"array": "int8"}, {}) == found


@pytest.mark.parametrize(
    ("annotation", "fits", "fails"),
    [
        (NDArray[Any], [np.zeros(1), np.zeros(1, "i2")], [[1.0]]),
        (np.ndarray, [np.zeros(1), np.zeros(1, "i2")], [None]),
        (NDArray[np.floating], [np.zeros(1), np.zeros(1, "f4")], [np.zeros(1, "i2")]),
        (NDArray[np.floating[Any]], [np.zeros(1, "f2")], [np.zeros(1, "c8")]),
        (NDArray[np.float32] | None, [None, np.zeros(1, "f4")], [np.zeros(1)]),
        (list[NDArray[np.int8]], [[], [np.zeros(1, "i1")]], [np.zeros(1, "i1")]),
    ],
)
def test_array_annotations_of_every_kind(annotation: Any, fits: list[Any], fails: list[Any]) -> None:
    def m(self, a): ...

    m.__annotations__ = {"a": annotation, "return": None}
    arguments = plan_of(service(type("Service", (), {"m": m}))).methods[0].arguments
    for value in fits:
        arguments.check_at(0, value)
        (arrived,) = arguments.coding.decode(*arguments.coding.encode((value,)))
        assert type(arrived) is type(value)
    for value in fails:
        with pytest.raises(InvalidArgument, match=r"^Service\.m\(\): argument 'a' must be "):
            arguments.check_at(0, value)


def test_a_buffer_must_be_contiguous() -> None:
    raw = plan_of(Vision).methods[3].arguments
    raw.check_at(0, np.arange(3))
    raw.check_at(0, bytearray(b"abc"))
    with pytest.raises(
        InvalidArgument, match=r"argument 'data' must be bytes, got a memoryview that is not C-contiguous"
    ):
        raw.check_at(0, memoryview(b"abcdef")[::2])
    with pytest.raises(InvalidArgument, match=r"argument 'data' must be bytes, got str"):
        raw.check_at(0, "abc")


def test_nothing_holds_an_array_that_was_sent() -> None:
    array = np.ones(100_000)
    alive = weakref.ref(array)
    gc.disable()  # a cycle of references would hold it until the collector comes along
    try:
        body, buffers = msgpack.encode_parts({"a": [array]})
        assert len(buffers) == 1
        del array, body, buffers
        assert alive() is None
    finally:
        gc.enable()
