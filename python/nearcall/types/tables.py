"""Tables of Arrow, and data frames of pandas and polars, travel as Arrow's buffers.

The data of a column of numbers or times is a buffer beside the message, which the receiver reads where it lies. All
else is written in Arrow's own stream format, copied by the receiver and checked: the sender could change what lies in
memory that both see, and texts, lists and bitmaps must not change after the check, or reading them would fail.

pyarrow is imported when the first table is sent or arrives.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final, TypeAlias

import msgspec

from .beside import Beside
from .carried import CarriedType
from .hints import describe_value, short_repr

__all__ = ["TABLES"]

_LEAST: Final = 4096
"""Bytes of the data of a column from which on it is a buffer of its own."""
_MOST_BATCHES: Final = 16_384
_FREE_VALUES: Final = 2_000_000
"""Values for which a table need not have a bit each: some types, such as that of nulls, take none."""
_OLDEST: Final = 15
"""The first version of pyarrow that never unpickles what is in a table."""

_Failures: TypeAlias = tuple[type[BaseException], ...]


class TableData(msgspec.Struct):
    """A table as it travels."""

    schema: bytes
    """Arrow's encoding of the schema."""
    lengths: list[int]
    """The rows of each batch."""
    apart: list[int] = []
    """The places of the columns whose data are buffers beside the message."""
    nulls: list[int] = []
    """The places of those among them that have nulls."""
    data: list[Beside] = []
    """The data of these columns, batch by batch."""
    rest: Beside | None = None
    """The other columns, and a column of bools for each that has nulls, as a stream of Arrow's."""


_MISSING: Final = "tables and data frames travel as pyarrow encodes them: pip install pyarrow"


def _arrow() -> Any:
    try:
        module: Any = import_module("pyarrow")
    except ImportError:
        raise TypeError(_MISSING) from None
    if int(module.__version__.partition(".")[0]) < _OLDEST:
        raise TypeError(
            f"pyarrow {module.__version__} may run code that is in a table: update it to {_OLDEST} or later"
        )
    return module


def _is_plain(pa: Any, kind: Any) -> bool:
    """Whether each value of a type is so many bytes of which every content is valid."""
    types = pa.types
    is_number = types.is_integer(kind) or types.is_floating(kind)
    # Decimals, times of day and dates in milliseconds may be out of their ranges.
    return bool(is_number or types.is_timestamp(kind) or types.is_duration(kind) or types.is_date32(kind))


def _of(table: Any) -> TableData:
    return _given(table, table.to_batches())


def _given(table: Any, batches: Sequence[Any]) -> TableData:
    """What travels of a table that consists of these batches."""
    pa = _arrow()
    pc: Any = import_module("pyarrow.compute")
    fields: list[Any] = list(table.schema)
    _check_names(pa, fields)
    if len(batches) > _MOST_BATCHES:
        raise TypeError(f"it has {len(batches)} batches, and the most are {_MOST_BATCHES}: combine_chunks() of it")
    if not fields and table.num_rows:
        raise TypeError(f"it has {table.num_rows} rows and no column, so that they would be lost")
    apart = [
        place
        for place, field in enumerate(fields)
        if _is_plain(pa, field.type) and table.num_rows * field.type.bit_width // 8 >= _LEAST
    ]
    nulls = [place for place in apart if table.column(place).null_count]
    others = _others(fields, apart)
    data: list[Beside] = []
    for batch in batches:
        for place in apart:
            column, width = batch.column(place), fields[place].type.bit_width // 8
            whole = column.buffers()[1]
            part = whole.slice(column.offset * width, len(column) * width) if len(column) else b""
            data.append(Beside(memoryview(part).cast("B")))
    schema = _schema_of_rest(pa, fields, others, len(nulls))
    rest = None
    if len(schema):
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, schema) as writer:
            for batch in batches:
                columns = [*map(batch.column, others), *(pc.is_valid(batch.column(place)) for place in nulls)]
                writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
        rest = Beside(memoryview(sink.getvalue()))
    lengths = [batch.num_rows for batch in batches]
    return TableData(table.schema.serialize().to_pybytes(), lengths, apart, nulls, data, rest)


def _check_names(pa: Any, fields: Sequence[Any]) -> None:
    """Refuses a schema in which something is no text that should be one: whoever looks at it would fail.

    Raises:
        ValueError: it says which column.
    """
    for number, field in enumerate(fields):
        try:
            str(field.name)
            _read_names(pa, field.type)
        except UnicodeDecodeError as problem:
            raise ValueError(f"{short_repr(problem.object)} in the schema of column {number} is not UTF-8") from None


def _read_names(pa: Any, kind: Any) -> None:
    """Reads all names and time zones within a type."""
    if isinstance(kind, pa.BaseExtensionType):
        _read_names(pa, kind.storage_type)
    elif pa.types.is_dictionary(kind):
        _read_names(pa, kind.value_type)
    elif pa.types.is_timestamp(kind):
        str(kind.tz)
    else:
        for field in map(kind.field, range(kind.num_fields)):
            str(field.name)
            _read_names(pa, field.type)


def _others(fields: Sequence[Any], apart: Sequence[int]) -> list[int]:
    """The places of the columns that are in the stream."""
    held = set(apart)
    return [place for place in range(len(fields)) if place not in held]


def _schema_of_rest(pa: Any, fields: Sequence[Any], others: Sequence[int], nulls: int) -> Any:
    # Names may occur twice, so there are none.
    kept = [fields[place].with_name("") for place in others]
    return pa.schema([*kept, *([pa.field("", pa.bool_())] * nulls)])


def _made(sent: TableData) -> Any:
    """The table that was sent."""
    schema, batches = _batches(sent)
    return _arrow().Table.from_batches(batches, schema=schema)


def _batches(sent: TableData) -> tuple[Any, list[Any]]:
    """The schema and the batches of a table.

    Raises:
        ValueError: what was sent is malformed.
    """
    pa = _arrow()
    schema = pa.ipc.read_schema(pa.py_buffer(sent.schema))
    fields: list[Any] = list(schema)
    _check_names(pa, fields)
    apart, nulls = sent.apart, sent.nulls
    is_sound = (
        apart == sorted({place for place in apart if 0 <= place < len(fields) and _is_plain(pa, fields[place].type)})
        and nulls == sorted({*nulls} & {*apart})
        and len(sent.data) == len(apart) * len(sent.lengths)
        and min(sent.lengths, default=0) >= 0
        and len(sent.lengths) <= _MOST_BATCHES
        and (bool(fields) or not any(sent.lengths))
    )
    if not is_sound:
        raise ValueError("its columns are malformed")
    size = sum(each.view.nbytes for each in sent.data) + (0 if sent.rest is None else sent.rest.view.nbytes)
    if sum(sent.lengths) * len(fields) > 8 * size + _FREE_VALUES:
        raise ValueError(f"its {sum(sent.lengths)} rows are far more than {size} bytes can hold")
    others = _others(fields, apart)
    expected = _schema_of_rest(pa, fields, others, len(nulls))
    rest: list[Any] = _read(pa, sent.rest, expected) if len(expected) else [None] * len(sent.lengths)
    if len(rest) != len(sent.lengths):
        raise ValueError(f"it has {len(rest)} batches, not {len(sent.lengths)}")
    views = iter(sent.data)
    batches: list[Any] = []
    for length, batch in zip(sent.lengths, rest, strict=True):
        if batch is not None and batch.num_rows != length:
            raise ValueError(f"a batch has {batch.num_rows} rows, not {length}")
        columns: dict[int, Any] = {place: _column(batch, number) for number, place in enumerate(others)}
        valid = {place: _bitmap(_column(batch, len(others) + number)) for number, place in enumerate(nulls)}
        for place in apart:
            view, kind = next(views).view, fields[place].type
            if view.nbytes != length * kind.bit_width // 8:
                raise ValueError(f"a column of {length} rows has {view.nbytes} bytes of {kind}")
            columns[place] = pa.Array.from_buffers(kind, length, [valid.get(place), pa.py_buffer(view)])
        batches.append(pa.RecordBatch.from_arrays([columns[place] for place in range(len(fields))], schema=schema))
    return schema, batches


def _column(batch: Any, number: int) -> Any:
    return batch.column(number)


def _bitmap(column: Any) -> Any:
    if column.null_count or column.offset:
        raise ValueError("the bits of its nulls are malformed")
    return column.buffers()[1]


def _read(pa: Any, rest: Beside | None, schema: Any) -> list[Any]:
    """The batches of a stream, copied from memory that may change, and checked to the last value."""
    if rest is None:
        raise ValueError("its other columns are missing")
    copied = pa.py_buffer(bytes(rest.view))
    for message in pa.ipc.MessageReader.open_stream(copied):
        if _is_compressed(message.metadata.to_pybytes()):
            raise ValueError("its columns are compressed")
    reader = pa.ipc.open_stream(copied)
    if not reader.schema.equals(schema):
        raise ValueError("its other columns are of other types")
    batches = list(reader)
    for batch in batches:
        batch.validate(full=True)
    return batches


_SCHEMA: Final = 1
_DICTIONARY: Final = 2
"""Kinds of messages."""


def _is_compressed(message: bytes) -> bool:
    """Whether the buffers of a message of Arrow's are compressed: a short one could then become a very long one.

    It reads the few fields of the flatbuffer that say so.
    """
    try:
        root: int = struct.unpack_from("<I", message, 0)[0]
        kind = _field(message, root, 1)
        if kind is None or message[kind] == _SCHEMA:
            return False
        header = _table(message, root, 2)
        if message[kind] == _DICTIONARY:  # it holds the header of a batch
            header = _table(message, header, 1)
        return _field(message, header, 3) is not None
    except (struct.error, IndexError):
        raise ValueError("a message in it is malformed") from None


def _field(message: bytes, table: int, number: int) -> int | None:
    """Where the field of a flatbuffer's table is; ``None`` if it is left out."""
    offsets = table - struct.unpack_from("<i", message, table)[0]
    size: int = struct.unpack_from("<H", message, offsets)[0]
    place = 4 + 2 * number
    at: int = struct.unpack_from("<H", message, offsets + place)[0] if place < size else 0
    return table + at if at else None


def _table(message: bytes, table: int, number: int) -> int:
    at = _field(message, table, number)
    if at is None:
        raise IndexError
    found: int = at + struct.unpack_from("<I", message, at)[0]
    return found


def _carried(
    cls: Any, give: Any, make: Any, name: str | None = None, failures: _Failures = (Exception,)
) -> CarriedType:
    if find_spec("pyarrow") is None:
        raise TypeError(_MISSING)
    found = CarriedType(
        cls,
        to=TableData,
        give=_explaining(give, "pyarrow cannot write it", failures),
        make=_explaining(make, "pyarrow cannot read it", failures),
        name=name,
    )
    found.shows_sent = False
    found.library_class = f"{str(cls.__module__).partition('.')[0]}.{cls.__qualname__}"
    return found


def _explaining(function: Callable[[Any], Any], what: str, failures: _Failures) -> Callable[[Any], Any]:
    """The same function; what it raises says what is wrong with the value."""

    def explaining(value: Any) -> Any:
        try:
            return function(value)
        except (TypeError, ValueError, MemoryError):  # those of pyarrow among them
            raise
        except failures as problem:  # of any class: pyarrow, pandas and polars have many of their own
            raise ValueError(f"{what}: {type(problem).__name__}: {problem}") from problem

    return explaining


def _of_table(cls: Any) -> CarriedType:
    return _carried(cls, _of, _made)


def _of_batch(cls: Any) -> CarriedType:
    def give(batch: Any) -> TableData:
        return _given(_arrow().Table.from_batches([batch]), [batch])

    def make(sent: TableData) -> Any:
        batches = _batches(sent)[1]
        if len(batches) != 1:
            raise ValueError(f"it has {len(batches)} batches, not one")
        return batches[0]

    return _carried(cls, give, make)


def _of_pandas(cls: Any) -> CarriedType:
    def give(frame: Any) -> TableData:
        pa = _arrow()
        _check_labels(frame)
        try:
            table = pa.Table.from_pandas(frame)
        except pa.ArrowException as problem:
            said = "; ".join(map(str, problem.args[::-1]))
            raise TypeError(f"{said}: convert the column, as with astype()") from problem
        except OverflowError as problem:
            name = _first_column(pa, frame, OverflowError)
            raise TypeError(f"column {name} holds an int beyond 64 bits: convert it, as with astype(str)") from problem
        _check_pandas(frame, table)
        return _of(table)

    def make(sent: TableData) -> Any:
        return _to_pandas(_made(sent))

    return _carried(cls, give, make, "pandas.DataFrame")


def _is_shared(pa: Any, kind: Any, *, within: bool = False) -> bool:
    """Whether many values of a type may be the same bytes of Arrow's, of which pandas has a copy for each."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _is_shared(pa, kind.storage_type, within=within)
    if types.is_dictionary(kind):
        return within or _is_shared(pa, kind.value_type, within=True)
    names = ("string_view", "binary_view", "list_view", "large_list_view", "run_end_encoded")
    tests = (getattr(types, f"is_{name}", None) for name in names)  # older versions of pyarrow lack some
    if any(test is not None and test(kind) for test in tests):
        return True
    return any(_is_shared(pa, kind.field(number).type, within=True) for number in range(kind.num_fields))


def _to_pandas(table: Any) -> Any:
    for field in table.schema:
        if _is_shared(_arrow(), field.type):
            raise ValueError(f"a column of {field.type} could become far longer in pandas: send a pyarrow.Table")
    # Each column by itself: one block for all columns of a type would be a copy.
    return table.to_pandas(split_blocks=True)


def _first_column(pa: Any, frame: Any, error: type[Exception]) -> str:
    """The name of the first column for which pyarrow raises an error."""
    for number in range(len(frame.columns)):
        try:
            pa.array(frame.iloc[:, number], from_pandas=True)
        except error:
            return short_repr(frame.columns[number])
    return "of its index"


def _check_labels(frame: Any) -> None:
    """Makes sure that all around the columns can be written, before pyarrow warns of what it would leave out.

    Raises:
        TypeError: it cannot.
    """
    levels: list[Any] = getattr(frame.columns, "levels", [frame.columns])
    if any("mixed" in level.inferred_type for level in levels):
        raise TypeError("the names of its columns are of several types: rename them")
    for name in frame.index.names:
        if name is not None and not isinstance(name, str):
            raise TypeError(f"the name {short_repr(name)} of its index is no str: rename it")
    try:
        json.dumps(frame.attrs)
    except (TypeError, ValueError, RecursionError) as problem:
        raise TypeError(f"its attrs would be lost, since JSON cannot hold them: {problem}") from problem


def _check_pandas(frame: Any, table: Any) -> None:
    """Makes sure that a frame can be made again.

    Raises:
        TypeError: it would arrive as another one.
    """
    empty = _to_pandas(table.slice(0, 0))
    for number, (kind, arrives) in enumerate(zip(frame.dtypes, empty.dtypes, strict=True)):
        if kind != arrives:
            name = short_repr(frame.columns[number])
            raise TypeError(f"column {name} of {kind} would arrive as {arrives}: convert it with astype()")
    if frame.attrs != empty.attrs:
        raise TypeError("its attrs would be lost: clear them")
    if not frame.columns.equals(empty.columns) or list(frame.columns.names) != list(empty.columns.names):
        raise TypeError("the names of its columns would arrive as others: rename them")
    # A range is made of what stands in the schema, with its name; of no rows it is another one.
    is_range = type(frame.index).__name__ == "RangeIndex"
    is_same = frame.index.dtype == empty.index.dtype and list(frame.index.names) == list(empty.index.names)
    if not is_range and not is_same:
        raise TypeError(f"its index of {frame.index.dtype} would arrive as {empty.index.dtype}: reset_index()")
    objects = [number for number, kind in enumerate(frame.dtypes) if kind.kind == "O" and kind.name == "object"]
    for number in objects:
        arrived = table.column(number).to_pandas()
        for value, other in zip(frame.iloc[:, number], arrived, strict=True):
            if type(value) is not type(other) or not (value is other or value == other or value != value):  # noqa: PLR0124
                name = short_repr(frame.columns[number])
                raise TypeError(
                    f"in column {name}, {short_repr(value)} would arrive as {short_repr(other)}: convert it"
                )


def _unreadable(pl: Any, table: Any, failures: _Failures) -> str:
    """The first column that polars cannot read by itself."""
    for number, field in enumerate(table.schema):
        try:
            pl.from_arrow(table.select([number]))
        except failures:
            return f"column {short_repr(field.name)} of {field.type}"
    return "its columns together"


def _of_polars(cls: Any) -> CarriedType:
    pl: Any = import_module("polars")
    failures: _Failures = Exception, pl.exceptions.PanicException  # which is no Exception

    def give(frame: Any) -> TableData:
        arrives = pl.from_arrow(frame.head(0).to_arrow()).schema
        for name, kind in frame.schema.items():
            if kind != arrives[name]:
                raise TypeError(f"column {name!r} of {kind} would arrive as {arrives[name]}: cast it")
        return _of(frame.to_arrow())

    def make(sent: TableData) -> Any:
        table = _made(sent)
        try:
            made = pl.from_arrow(table, rechunk=False)
        except MemoryError:
            raise
        except failures as problem:
            raise ValueError(f"polars cannot read {_unreadable(pl, table, failures)}: {problem}") from problem
        if not isinstance(made, pl.DataFrame):
            raise ValueError(f"it is {describe_value(made)}")
        return made

    return _carried(cls, give, make, "polars.DataFrame", failures)


TABLES: Final[Mapping[str, Callable[[Any], CarriedType]]] = {
    "pyarrow.Table": _of_table,
    "pyarrow.RecordBatch": _of_batch,
    "pandas.DataFrame": _of_pandas,
    "polars.DataFrame": _of_polars,
}
"""By the first part of the module, and the class."""
