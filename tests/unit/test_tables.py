"""Tables of Arrow and data frames: what arrives is what left, where it lies, and what a peer may not send."""

from __future__ import annotations

import datetime as dt
import os
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

import nearcall
from nearcall.errors import InvalidArgument
from nearcall.types.beside import Beside

from .loopback import Loopback

pa: Any = pytest.importorskip("pyarrow")
pl: Any = pytest.importorskip("polars")
pd: Any = pytest.importorskip("pandas")

from nearcall.types import tables  # noqa: E402 - it is of no use without pyarrow

ROWS = 3000


@dataclass
class Job:
    name: str
    table: pa.Table
    others: list[pl.DataFrame]


@nearcall.service
class Frames:
    def table(self, table: pa.Table) -> pa.Table:
        return table

    def batch(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return batch

    def pandas(self, frame: pd.DataFrame) -> pd.DataFrame:
        return frame

    def polars(self, frame: pl.DataFrame | None) -> pl.DataFrame | None:
        return frame

    def job(self, job: Job) -> Job:
        return job

    def mapped(self, table: pa.Table) -> tuple[bool, int]:
        """Whether the data of the first column lie in memory that both sides see, and how they are aligned."""
        address = table.column(0).chunk(0).buffers()[1].address
        ranges = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "memfd" in line]
        bounds = [[int(bound, 16) for bound in line[0].split("-")] for line in ranges]
        return any(start <= address < end for start, end in bounds), address % 64


@pytest.fixture(scope="module", params=["msgpack", "json"])
def frames(request: pytest.FixtureRequest) -> Iterator[Any]:
    url = f"inproc://tables-{request.param}"
    with nearcall.Server(Frames(), url, codecs=["json"]), nearcall.connect(url, Frames, codec=request.param) as client:
        yield client


def everything() -> Any:
    numbers = np.arange(ROWS)
    return pa.table(
        {
            "ints": numbers,
            "small": pa.array(numbers % 7, pa.int8()),
            "nulls": pa.array([None if number % 3 else float(number) for number in range(ROWS)]),
            "nan": np.where(numbers % 2, np.nan, 1.0),
            "truth": numbers % 2 == 0,
            "texts": [f"text {number}" if number % 5 else None for number in range(ROWS)],
            "times": pa.array(numbers.astype("datetime64[us]"), pa.timestamp("us", "Europe/Berlin")),
            "days": pa.array(numbers, pa.int32()).cast(pa.date32()),
            "money": pa.array([Decimal(number).scaleb(-2) for number in range(ROWS)]),
            "lists": [[number] * (number % 3) for number in range(ROWS)],
            "structs": [{"x": number, "y": None} for number in range(ROWS)],
            "words": pa.array([str(number % 4) for number in range(ROWS)]).dictionary_encode(),
            "nothing": pa.nulls(ROWS),
        },
        metadata={"source": "a test"},
    )


TABLES = {
    "everything": everything,
    "slices": lambda: pa.concat_tables([everything().slice(7, 1200), everything().slice(1300)]),
    "nulls that are sliced away": lambda: everything().select(["nulls"]).slice(1, 1500),
    "empty": lambda: everything().slice(0, 0),
    "no column": lambda: everything().slice(0, 0).select([]),
    "two of one name": lambda: pa.Table.from_arrays([pa.array(range(ROWS)), pa.array(["a"] * ROWS)], ["x", "x"]),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(frames: Any, name: str) -> None:
    table = TABLES[name]()
    arrived = frames.table(table)
    arrived.validate(full=True)
    nan = [column for column in table.column_names if column == "nan"]
    assert arrived.drop_columns(nan).equals(table.drop_columns(nan), check_metadata=True)
    assert arrived.num_rows == table.num_rows
    for column in nan:
        np.testing.assert_array_equal(arrived.column(column).to_numpy(), table.column(column).to_numpy())


def test_batches(frames: Any) -> None:
    [batch] = everything().drop_columns(["nan"]).combine_chunks().to_batches()
    assert frames.batch(batch).equals(batch)
    assert frames.batch(batch.slice(5, 0)).equals(batch.slice(5, 0))
    with pytest.raises(InvalidArgument, match="it has 3000 rows and no column"):
        frames.batch(batch.select([]))


def test_frames_of_pandas(frames: Any) -> None:
    index = pd.date_range("2024-02-29", periods=ROWS, tz="Europe/Berlin", name="when")
    frame = pd.DataFrame({"a": np.arange(ROWS), "b": np.where(np.arange(ROWS) % 2, np.nan, 1.5), "c": "text"}, index)
    frame["kind"] = pd.Categorical(["x", "y", "z"] * (ROWS // 3))
    frame["maybe"] = pd.array([1, None, 3] * (ROWS // 3), dtype="Int64")
    pd.testing.assert_frame_equal(frames.pandas(frame), frame, check_freq=False)
    wide = pd.DataFrame(np.arange(ROWS * 4).reshape(ROWS, 4))  # columns that are called by ints, in one block
    pd.testing.assert_frame_equal(frames.pandas(wide), wide)
    pd.testing.assert_frame_equal(frames.pandas(wide[wide[0] > 40]), wide[wide[0] > 40])


def test_frames_of_polars(frames: Any) -> None:
    frame = pl.DataFrame({"a": range(ROWS), "b": ["x", None, "y"] * (ROWS // 3), "c": [[1.5]] * ROWS})
    frame = frame.with_columns(d=pl.col("b").cast(pl.Categorical), e=pl.lit(dt.timedelta(1)))
    arrived = frames.polars(frame)
    assert arrived.equals(frame)
    assert arrived.schema == frame.schema
    assert frames.polars(None) is None


def test_within_other_types(frames: Any) -> None:
    job = Job("j", everything().drop_columns(["nan"]), [pl.DataFrame({"a": range(ROWS)}), pl.DataFrame()])
    arrived = frames.job(job)
    assert arrived.name == "j"
    assert arrived.table.equals(job.table)
    assert [frame.equals(other) for frame, other in zip(arrived.others, job.others, strict=True)] == [True, True]


def test_columns_of_numbers_are_read_where_they_lie() -> None:
    url = f"shm://tables-{os.getpid()}"
    table = pa.table({"a": np.arange(100_000), "b": ["text"] * 100_000})
    with nearcall.Server(Frames(), url), nearcall.connect(url, Frames) as client:
        assert client.mapped(table) == (True, 0)


def with_attrs(attrs: dict[str, Any]) -> Any:
    frame: Any = pd.DataFrame({"a": [1]})
    frame.attrs = attrs
    return frame


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (pd.DataFrame({"a": [1, "x"]}), "Conversion failed for column a with type object; Could not convert"),
        (pd.DataFrame({"a": pd.Series([dt.date(2024, 2, 29), None], dtype=object)}), None),
        (pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(2, name="id")), None),
        (pd.DataFrame({"a": [1, 2]}, index=pd.RangeIndex(4, 0, -2)), None),
        (pd.DataFrame({"a": [1, 2]}, index=pd.Index([4, 5], name="id")), None),
        (
            pd.DataFrame({"a": pd.Series([Decimal(1), float("nan")], dtype=object)}),
            "in column 'a', nan would arrive as",
        ),
        (pd.DataFrame({"a": pd.Series([(1, 2)], dtype=object)}), "in column 'a', (1, 2) would arrive as array"),
        (pd.DataFrame({"a": [1], "b": [1 << 70]}), "column 'b' holds an int beyond 64 bits: convert it"),
        (pd.DataFrame({"a": [1], 1: [2]}), "the names of its columns are of several types: rename them"),
        (
            pd.DataFrame([[1, 2]], columns=pd.MultiIndex.from_tuples([(1, "x"), ("a", "y")])),
            "the names of its columns are of several types: rename them",
        ),
        (pd.DataFrame({"a": [1]}, index=pd.Index([5], name=3)), "the name 3 of its index is no str: rename it"),
        (with_attrs({"who": object()}), "its attrs would be lost, since JSON cannot hold them: Object of type object"),
        (with_attrs({"who": ("a",)}), "its attrs would be lost: clear them"),
        (with_attrs({"who": "me"}), None),
    ],
)
def test_a_frame_that_would_arrive_as_another_one_is_refused(frame: Any, message: str | None) -> None:
    loopback = Loopback(Frames(), Frames)
    if message is None:
        pd.testing.assert_frame_equal(loopback.pandas(frame), frame)
        return
    with pytest.raises(InvalidArgument) as caught:
        loopback.pandas(frame)
    assert message in str(caught.value)


def sent_as(change: Any = None, **changes: Any) -> dict[str, Any]:
    """A table as it travels, with other parts."""
    data = tables._of(everything().select(["ints", "nulls", "texts"]))  # pyright: ignore[reportPrivateUsage]
    plain = {name: getattr(data, name) for name in data.__struct_fields__}
    plain["data"] = [bytes(each.view) for each in data.data]
    plain["rest"] = bytes(data.rest.view) if isinstance(data.rest, Beside) else None
    return plain | changes | (change(plain) if change else {})


def stream(columns: dict[str, Any], **options: Any) -> bytes:
    batch = pa.RecordBatch.from_arrays(list(columns.values()), [""] * len(columns))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def beyond() -> bytes:
    """Texts whose offsets point beyond them."""
    whole = stream({"texts": pa.array(["x" * 100] + [""] * (ROWS - 1)), "valid": pa.array([True] * ROWS)})
    return whole.replace(struct.pack("<i", 100) * 100, struct.pack("<i", 1 << 30) * 100)


def schema_of(name: str, kind: Any) -> bytes:
    return bytes(pa.schema({name: kind}).serialize())


BAD: dict[str, tuple[Any, str]] = {
    "a place that is none": (lambda: sent_as(apart=[0, 9]), "its columns are malformed"),
    "a column of texts": (lambda: sent_as(apart=[0, 2]), "its columns are malformed"),
    "a place twice": (lambda: sent_as(apart=[0, 0]), "its columns are malformed"),
    "nulls of no such column": (lambda: sent_as(nulls=[2]), "its columns are malformed"),
    "fewer bytes": (lambda: sent_as(lambda all: {"data": [b"", all["data"][1]]}), "a column of 3000 rows has 0 bytes"),
    "more rows": (lambda: sent_as(lengths=[ROWS + 1]), "a batch has 3000 rows, not 3001"),
    "fewer than none": (lambda: sent_as(lengths=[-1]), "its columns are malformed"),
    "no rest": (lambda: sent_as(rest=None), "its other columns are missing"),
    "no stream": (lambda: sent_as(rest=b"nothing"), "no Table can be made of"),
    "a rest of other types": (
        lambda: sent_as(rest=stream({"a": pa.array([1])})),
        "its other columns are of other types",
    ),
    "compressed": (
        lambda: sent_as(rest=stream({"a": pa.array(["x" * 100] * ROWS)}, compression="zstd")),
        "its columns are compressed",
    ),
    "compressed dictionary": (
        lambda: sent_as(rest=stream({"a": pa.array(["x" * 100] * ROWS).dictionary_encode()}, compression="lz4")),
        "its columns are compressed",
    ),
    "offsets beyond the texts": (lambda: sent_as(rest=beyond()), "no Table can be made of"),
    "more rows than bytes": (
        lambda: sent_as(
            schema=pa.schema({"a": pa.null()}).serialize().to_pybytes(), lengths=[1 << 40], apart=[], nulls=[], data=[]
        ),
        "its 1099511627776 rows are far more than",
    ),
    "rows without a column": (
        lambda: sent_as(
            schema=pa.schema([]).serialize().to_pybytes(), lengths=[1 << 40], apart=[], nulls=[], data=[], rest=None
        ),
        "its columns are malformed",
    ),
    "decimals that are not checked": (
        lambda: sent_as(schema=pa.schema({"a": pa.decimal128(3, 1)}).serialize().to_pybytes(), apart=[0], nulls=[]),
        "its columns are malformed",
    ),
    "many batches": (lambda: sent_as(lengths=[0] * 100_000), "its columns are malformed"),
    "no schema": (lambda: sent_as(schema=b"\xff" * 100), "no Table can be made of"),
    "a name that is no text": (
        lambda: sent_as(lambda all: {"schema": all["schema"].replace(b"texts", b"te\xffts")}),
        r"b'te\xffts' in the schema of column 2 is not UTF-8",
    ),
    "a name within that is no text": (
        lambda: sent_as(schema=schema_of("ints", pa.struct({"word": pa.int8()})).replace(b"word", b"\xff\xfe!!")),
        r"b'\xff\xfe!!' in the schema of column 0 is not UTF-8",
    ),
    "a time zone that is no text": (
        lambda: sent_as(schema=schema_of("when", pa.timestamp("us", "Mars")).replace(b"Mars", b"Mar\xff")),
        r"b'Mar\xff' in the schema of column 0 is not UTF-8",
    ),
    "no flatbuffer": (
        lambda: sent_as(schema=b"\xff\xff\xff\xff\x10" + bytes(19)),
        "pyarrow cannot read it: OSError: Invalid flatbuffers message",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_malformed_table_is_refused(name: str) -> None:
    make, message = BAD[name]
    with pytest.raises(InvalidArgument) as caught:
        Loopback(Frames()).table(make())
    assert message in str(caught.value)
    assert "TableData" not in str(caught.value)


def test_a_name_that_is_no_text_is_not_sent_either() -> None:
    table = pa.Table.from_arrays([pa.array([1])], schema=pa.schema([pa.field(b"\xff", pa.int64())]))
    says = r"Table cannot be sent: b'\\xff' in the schema of column 0 is not UTF-8"
    with pytest.raises(InvalidArgument, match=says):
        Loopback(Frames(), Frames).table(table)


def test_a_column_that_makes_polars_panic_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The panics of polars' Rust are no exceptions like others, and differ between its versions."""
    read = pl.from_arrow

    def panic(table: Any, **options: Any) -> Any:
        if "texts" in table.schema.names:
            raise pl.exceptions.PanicException("no such thing")
        return read(table, **options)

    monkeypatch.setattr(pl, "from_arrow", panic)
    with pytest.raises(InvalidArgument, match="polars cannot read column 'texts' of string: no such thing"):
        Loopback(Frames()).polars(sent_as())


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["x" * 1000] * ROWS, pa.string_view()),
        pa.array([["x"]] * ROWS, pa.list_(pa.dictionary(pa.int32(), pa.string()))),
        pa.array([{"a": [1]}] * ROWS, pa.struct({"a": pa.list_view(pa.int64())})),
    ],
    ids=["views of texts", "a dictionary within", "views within"],
)
def test_what_could_become_far_longer_in_pandas_is_refused(column: Any) -> None:
    sent = tables._of(pa.table({"a": column}))  # pyright: ignore[reportPrivateUsage]
    plain = {name: getattr(sent, name) for name in sent.__struct_fields__} | {"data": []}
    with pytest.raises(InvalidArgument, match=r"could become far longer in pandas: send a pyarrow\.Table"):
        Loopback(Frames()).pandas(plain | {"rest": bytes(sent.rest.view) if sent.rest else None})


def test_a_client_without_the_class_can_send_it_on() -> None:
    assert msgspec.convert(Loopback(Frames()).table(sent_as()), dict[str, Any]).keys() >= {"schema", "data"}
