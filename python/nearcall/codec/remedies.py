"""What to send in the place of values whose types cannot be sent. Classes are known by name: nothing is imported."""

from __future__ import annotations

import re
from typing import Any

from ..types.hints import plain_name

__all__ = ["conversion", "conversion_to", "remedy"]

_FIELDS = "take a dataclass or a TypedDict of its fields"

_REMEDIES = {
    "pathlib.PurePath": ("take str", "str(path)"),
    "collections.deque": ("take list", "list(deque)"),
    "collections.ChainMap": ("take dict", "dict(mapping)"),
    "builtins.range": ("take list[int]", "list(range)"),
    "builtins.complex": ("take tuple[float, float]", "(number.real, number.imag)"),
    "builtins.slice": ("take tuple[int, int]", "(slice.start, slice.stop)"),
    "fractions.Fraction": ("take tuple[int, int]", "fraction.as_integer_ratio()"),
    "re.Pattern": ("take str", "pattern.pattern"),
    "ipaddress._BaseAddress": ("take str", "str(address)"),
    "ipaddress._BaseNetwork": ("take str", "str(network)"),
    "zoneinfo.ZoneInfo": ("take str", "zone.key"),
    "array.array": ("take bytes, or numpy's NDArray", "numpy.asarray(array)"),
    "io.BytesIO": ("take bytes", "buffer.getvalue()"),
    "io.StringIO": ("take str", "buffer.getvalue()"),
    "io.IOBase": ("take bytes, or Iterator[bytes] for a long one", "file.read()"),
    "io._IOBase": ("take bytes, or Iterator[bytes] for a long one", "file.read()"),
    "email.message.Message": ("take bytes", "message.as_bytes()"),
    "types.SimpleNamespace": (_FIELDS, "dataclass(**vars(value))"),
    "argparse.Namespace": (_FIELDS, "dataclass(**vars(value))"),
    "pandas.DataFrame": (
        "take its columns, as dict[str, list] or dict[str, NDArray]",
        "frame.to_dict('list'), or {name: frame[name].to_numpy() for name in frame}",
    ),
    "pandas.Series": ("take NDArray or list", "series.to_numpy() or series.to_list()"),
    "pandas.Index": ("take NDArray or list", "index.to_numpy() or index.to_list()"),
    "polars.DataFrame": (
        "take its columns, as dict[str, list] or dict[str, NDArray]",
        "frame.to_dict(as_series=False), or {column.name: column.to_numpy() for column in frame}",
    ),
    "polars.Series": ("take NDArray or list", "series.to_numpy() or series.to_list()"),
    "pyarrow.Table": ("take its columns, as dict[str, list]", "table.to_pydict()"),
    "pyarrow.RecordBatch": ("take its columns, as dict[str, list]", "batch.to_pydict()"),
    "pyarrow.Array": ("take NDArray or list", "array.to_numpy() or array.to_pylist()"),
    "torch.Tensor": ("take NDArray", "tensor.numpy(force=True)"),
    "tensorflow.Tensor": ("take NDArray", "tensor.numpy()"),
    "jax.Array": ("take NDArray", "numpy.asarray(array)"),
    "scipy._spbase": ("take its parts as NDArray", "matrix.data, matrix.indices and matrix.indptr"),
    "PIL.Image": ("take NDArray, or bytes of a file", "numpy.asarray(image)"),
    "pydantic.BaseModel": ("take a TypedDict or a dataclass of its fields", "model.model_dump()"),
    "google.Message": ("take bytes", "message.SerializeToString()"),
    "django.Model": (_FIELDS, "django.forms.models.model_to_dict(row)"),
    "sqlalchemy.DeclarativeBase": (_FIELDS, "the fields of the row"),
}
"""By the first part of the module and the class: what to declare, and what to pass."""


def remedy(cls: Any) -> str | None:
    """What to write for values of a class, or of a subclass: ``take str, and pass str(path)``; ``None`` if it is not
    known.
    """
    found = _found(cls)
    return None if found is None else f"{found[0]}, and pass {found[1]}"


def conversion(cls: Any) -> str | None:
    """What to write for a value of a class, or of a subclass: ``pass str(path)``; ``None`` if it is not known."""
    found = _found(cls)
    return None if found is None else f"pass {found[1]}"


def conversion_to(declared: str, cls: Any) -> str | None:
    """As :func:`conversion`, where a class of the name ``declared`` is wanted: ``None`` also if what would be passed is
    of another.
    """
    found = _found(cls)
    return None if found is None or declared not in re.findall(r"\w+", found[0]) else f"pass {found[1]}"


def _found(cls: Any) -> tuple[str, str] | None:
    for base in getattr(cls, "__mro__", ()):
        module, name = getattr(base, "__module__", "").lstrip("_"), plain_name(base)
        found = _REMEDIES.get(f"{module}.{name}") or _REMEDIES.get(f"{module.partition('.')[0]}.{name}")
        if found is not None:
            return found
    return None
