"""Array headers from a peer that means harm: no memory is read or made that the peer did not send."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

np = pytest.importorskip("numpy")

from nearcall.codec import arrays, dtypes  # noqa: E402
from nearcall.codec.msgpack import functions as msgpack  # noqa: E402

from ..turns import examples  # noqa: E402

_decode = msgpack.parts_decoder(Any)
_encode = msgspec.msgpack.encode
_ODD = "0123456789<>|=()[],:-+/ fiuScUVmMObgGe?dlTtpnas"


def read(header: Any, data: bytes) -> Any:
    """The array that a header makes of a buffer; ``None`` if it is refused, which must be with a ValueError."""
    body = _encode(msgspec.msgpack.Ext(msgpack.ARRAY, header if isinstance(header, bytes) else _encode(header)))
    try:
        return _decode(body, [memoryview(data)])
    except ValueError:
        return None


def assert_own_bytes(array: Any, data: bytes) -> None:
    """What was accepted shows the buffer's bytes, all of them and nothing else."""
    assert isinstance(array, np.ndarray)
    assert array.nbytes == len(data)
    assert array.dtype.itemsize > 0
    assert not array.dtype.hasobject
    flat = array.T if array.flags.f_contiguous and not array.flags.c_contiguous else array
    assert flat.tobytes() == data
    if data:
        assert np.shares_memory(array, np.frombuffer(data, np.uint8))


@pytest.mark.parametrize("size", [0, 20, 2**20, 2**34])
@pytest.mark.parametrize(
    "code",
    [
        *("S0", "U0", "V0", "|S0", "<U0", "|V0", "S", "U", "V", "a", "S00", "(0,)i4", "O", "|O8", "T", "object"),
        *("(1000000000,)i4", "V2000000000", "i4,i4", "f8, O", "=f8", "f8", "<i3", "<m8[", "<M8[25s", "<M8[0s]", ""),
        [["a", "S0"]],
        [["a", "|S0"], ["b", "|V0"]],
        [["a", "<i4", [0]]],
        [["a", "<i4", [2**31]]],
        [["a", "<i4", [2**31, 2**31, 2**31]]],
        [["a", "O"]],
        [[["t", "a"], [["b", "O"]]]],
        [["a", "<i4"], ["a", "<i4"]],
        [],
        [[]],
        [["a", []]],
        {"names": ["a"], "formats": ["i4"], "offsets": [0], "itemsize": 2**31},
    ],
    ids=str,
)
def test_nothing_is_made_of_an_empty_buffer(code: Any, size: int) -> None:
    assert read([code, [size], "C", 0], b"") is None or size == 0


def test_a_length_of_nothing_is_still_an_array() -> None:
    array = read(["<f8", [0, 3], "C", 0], b"")
    assert (array.shape, array.nbytes) == ((0, 3), 0)


@pytest.mark.parametrize("shape", [[2**62, 0], [0, 2**64 - 1], [2**63, 2], [0] * 65, [1] * 64 + [0]])
def test_lengths_that_numpy_cannot_hold_are_refused(shape: list[int]) -> None:
    assert read(["<f8", shape, "C", 0], b"") is None


def deep(levels: int) -> Any:
    code: Any = "<i1"
    for _ in range(levels):
        code = [["a", code]]
    return code


@pytest.mark.parametrize(
    "code",
    [deep(17), deep(400), [[f"f{number}", "<i1"] for number in range(1100)], [["n" * 70_000, "<i1"]]],
    ids=["deep", "very deep", "many fields", "long name"],
)
def test_records_beyond_the_limits_are_refused(code: Any) -> None:
    assert read([code, [1], "C", 0], bytes(1)) is None


def test_what_is_remembered_of_dtypes_is_bounded() -> None:
    for length in range(1, 2000):
        assert read([f"|S{length}", [1], "C", 0], bytes(length)) is not None
        msgpack.encode_parts(np.zeros(1, f"S{length}"))
        msgpack.encode_parts(np.zeros(1, [("x" * 2000, f"S{length}")]))
    assert dtypes._plain.cache_info().currsize <= 256
    assert len(arrays._dtype_codes) <= 256
    assert all(len(_encode(code)) <= 1024 for code, _ in arrays._dtype_codes.values())


lengths = st.integers(0, 5) | st.sampled_from([-1, 2**31, 2**32, 2**34, 2**62, 2**63, 2**64 - 1])
plain_codes = (
    st.sampled_from(
        ["S0", "|S0", "<U0", "|V0", "|S1", "<U1", "|V3", "<f8", ">i2", "|b1", "<c16", "<M8[s]", "<m8", "|O"]
    )
    | st.builds(
        lambda order, kind, size: f"{order}{kind}{size}", st.sampled_from("<>|="), st.sampled_from(_ODD), lengths
    )
    | st.text(_ODD, max_size=10)
)
codes = st.recursive(
    plain_codes,
    lambda inner: st.lists(
        st.tuples(st.sampled_from(["a", "b", "c", ""]) | st.tuples(st.text("tu"), st.text("ab")), inner)
        | st.tuples(st.sampled_from("ab"), inner, st.lists(lengths, max_size=2)),
        max_size=3,
    ),
    max_leaves=4,
)


@given(codes, st.lists(lengths, max_size=3), st.sampled_from(["C", "F", "A"]), st.integers(-1, 1), st.integers(0, 64))
@settings(max_examples=examples(1500))
@pytest.mark.slow
def test_an_accepted_header_shows_its_buffer_and_nothing_else(
    code: Any, shape: list[int], order: str, index: int, length: int
) -> None:
    data = bytes(range(1, length + 1))
    if (array := read([code, shape, order, index], data)) is not None:
        assert_own_bytes(array, data)


@given(codes, st.lists(st.integers(0, 3), max_size=3), st.sampled_from(["C", "F"]))
@settings(max_examples=examples(1000))
@pytest.mark.slow
def test_a_header_that_fits_its_buffer_shows_it(code: Any, shape: list[int], order: str) -> None:
    try:  # the strategies above seldom meet the right length by chance
        size = dtypes.size_of(msgspec.msgpack.decode(_encode(code)))
    except ValueError:
        size = 0
    for side in shape:
        size *= side
    data = random.Random(size).randbytes(min(size, 4096))
    if (array := read([code, shape, order, 0], data)) is not None:
        assert_own_bytes(array, data)


def test_damaged_headers_are_refused_or_show_their_buffer() -> None:
    chance = random.Random(9)
    data = bytes(range(1, 25))
    good = [
        _encode(header)
        for header in (
            ["<f8", [3], "C", 0],
            ["|S3", [2, 4], "F", 0],
            [[["a", "<i4"], ["b", "<U2"]], [2], "C", 0],
            [[["a", "<i2", [2, 3]]], [2], "C", 0],
        )
    ]
    accepted = 0
    for _ in range(10_000):
        header = bytearray(chance.choice(good))
        for _ in range(chance.randrange(4)):
            header[chance.randrange(len(header))] = chance.choice([chance.randrange(256), 0x30, 0x53, 0x7C])
        if (array := read(bytes(header), data)) is not None:
            assert_own_bytes(array, data)
            accepted += 1
    assert accepted > 500
