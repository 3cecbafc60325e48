"""Classes of Python's library, numpy, pydantic and tensors that travel as another type without being registered.

They are known by name, or by their methods: nothing is imported.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from .beside import Beside
from .carried import CarriedType
from .hints import describe_value, plain_name, short_repr

__all__ = ["LIBRARY_CLASSES", "MODULES", "standard_type"]

K = TypeVar("K")
V = TypeVar("V")

_made: dict[type, CarriedType] = {}


def standard_type(cls: Any) -> CarriedType | None:
    """How objects of a well-known class travel; ``None`` if the class is none of these.

    Raises:
        TypeError: it is one of these, and something about it prevents that.
    """
    found = _made.get(cls)
    if found is None:
        if cls is Beside:
            return _BESIDE
        name = f"{str(cls.__module__).partition('.')[0]}.{cls.__qualname__}"
        if (describe := _CLASSES.get(name)) is not None:
            found = describe(cls)
        elif name in _TABLES:
            from .tables import TABLES

            found = TABLES[name](cls)
        elif _speaks_dlpack(cls):
            from .tensors import tensor_type

            found = tensor_type(cls)
        elif _is_model(cls):
            from .models import model_type

            found = model_type(cls)
        if found is not None:
            _made[cls] = found
    return found


def _speaks_dlpack(cls: Any) -> bool:
    """Whether objects of a class are tensors, and no arrays of numpy, which travel by themselves."""
    # That of jax is abstract, and its methods are those of another class.
    is_tensor = (cls.__module__, plain_name(cls)) == ("jax", "Array") or (
        hasattr(cls, "__dlpack__") and hasattr(cls, "__dlpack_device__")
    )
    return is_tensor and not any(str(base.__module__).partition(".")[0] == "numpy" for base in cls.__mro__)


def _is_model(cls: Any) -> bool:
    """Whether a class is a model of pydantic, of its version 2 or later."""
    bases: tuple[Any, ...] = cls.__mro__[1:]
    return hasattr(cls, "__pydantic_validator__") and any(
        (base.__module__, base.__name__) == ("pydantic.main", "BaseModel") for base in bases
    )


def _text(cls: type) -> CarriedType:
    return CarriedType(cls, to=str)


def _with_parameters(found: CarriedType, *parameters: Any) -> CarriedType:
    found.parameters = parameters
    return found


def _complex(cls: type[complex]) -> CarriedType:
    def give(value: complex) -> tuple[float, float]:
        return value.real, value.imag

    return CarriedType(cls, to=tuple[float, float], give=give, make=lambda parts: cls(*parts))


def _range(cls: type[range]) -> CarriedType:
    def give(value: range) -> tuple[int, int, int]:
        return value.start, value.stop, value.step

    return CarriedType(cls, to=tuple[int, int, int], give=give, make=lambda parts: cls(*parts))


_FRACTION: Final = r"(-?[0-9]{1,4000})/([0-9]{1,4000})"


def _fraction(cls: Any) -> CarriedType:
    # Not by Fraction(text), for which "1e999999999" is one as well.
    def make(text: str) -> Any:
        parts = re.fullmatch(_FRACTION, text)
        if parts is None or int(parts[2]) == 0:
            raise ValueError("a fraction is written as two ints, such as 1/3, the second of which is not 0")
        return cls(int(parts[1]), int(parts[2]))

    return CarriedType(cls, to=str, give=lambda value: f"{value.numerator}/{value.denominator}", make=make)


def _deque(cls: Any) -> CarriedType:
    def give(value: Any) -> tuple[list[Any], int | None]:
        return list(value), value.maxlen

    def make(parts: tuple[list[Any], int | None]) -> Any:
        items, longest = parts
        if longest is not None and len(items) > longest:
            raise ValueError(f"it has {len(items)} items, and its longest length is {longest}")
        if longest is not None and longest > sys.maxsize:
            raise ValueError(f"its longest length, {longest}, is more than memory can hold")
        return cls(items, longest)

    to: Any = tuple[list[V], int | None]  # type: ignore[valid-type]
    return _with_parameters(CarriedType(cls, to=to, give=give, make=make), V)


def _ordered_dict(cls: Any) -> CarriedType:
    to: Any = dict[K, V]  # type: ignore[valid-type]
    return _with_parameters(CarriedType(cls, to=to, give=dict, make=cls), K, V)


def _counter(cls: Any) -> CarriedType:
    to: Any = dict[V, int]  # type: ignore[valid-type]
    return _with_parameters(CarriedType(cls, to=to, give=dict, make=cls), V)


_FACTORIES: Final[Mapping[str, type]] = {
    each.__name__: each for each in (bool, bytes, dict, float, frozenset, int, list, set, str, tuple)
}


def _default_dict(cls: Any) -> CarriedType:
    def give(value: Any) -> tuple[str | None, dict[Any, Any]]:
        factory = value.default_factory
        if factory is None:
            return None, dict(value)
        name: str = getattr(factory, "__name__", "")
        if _FACTORIES.get(name) is not factory:
            known = ", ".join(_FACTORIES)
            raise TypeError(f"its factory {short_repr(factory)} is none of {known}: declare dict, and pass dict(...)")
        return name, dict(value)

    def make(parts: tuple[str | None, dict[Any, Any]]) -> Any:
        name, items = parts
        if name is not None and name not in _FACTORIES:
            raise ValueError(f"its factory '{name}' is none of {', '.join(_FACTORIES)}")
        return cls(None if name is None else _FACTORIES[name], items)

    to: Any = tuple[str | None, dict[K, V]]  # type: ignore[valid-type]
    return _with_parameters(CarriedType(cls, to=to, give=give, make=make), K, V)


def _zone(cls: Any) -> CarriedType:
    def give(zone: Any) -> str:
        if zone.key is None:
            raise TypeError("it has no name")
        return str(zone.key)

    def make(name: str) -> Any:
        try:
            return cls(name)
        except (KeyError, OSError):  # there is none, or a directory of that name
            raise ValueError("no time zone of this name is known here: pip install tzdata, or a newer one") from None

    return CarriedType(cls, to=str, give=give, make=make)


def _scalar(to: type) -> Callable[[Any], CarriedType]:
    """A scalar of numpy that a number of Python's equals."""

    def describe(cls: Any) -> CarriedType:
        def make(value: Any) -> Any:
            made = _rounded(cls, value)
            if made is None or (to(made) != value and value == value):  # noqa: PLR0124 - nan is not equal to itself
                raise ValueError(f"no {cls.__name__} equals it")
            return made

        return CarriedType(cls, to=to, give=to, make=make)

    return describe


def _rounded(cls: Any, number: complex) -> Any:
    """The scalar of numpy that is nearest to a number; ``None`` if there is none."""
    numpy: Any = sys.modules["numpy"]  # imported, since there is the class
    try:
        with numpy.errstate(over="ignore"):  # of which it warns: callers compare
            return cls(number)
    except OverflowError:
        return None


def _complex_scalar(cls: Any) -> CarriedType:
    def give(value: Any) -> tuple[float, float]:
        return float(value.real), float(value.imag)

    def make(parts: tuple[float, float]) -> Any:
        made = _rounded(cls, complex(*parts))
        if any(now != then and then == then for now, then in zip(give(made), parts, strict=True)):  # noqa: PLR0124
            raise ValueError(f"no {cls.__name__} equals it: {describe_value(made)}")
        return made

    return CarriedType(cls, to=tuple[float, float], give=give, make=make)


_TABLES: Final = frozenset({"pyarrow.Table", "pyarrow.RecordBatch", "pandas.DataFrame", "polars.DataFrame"})
_BESIDE: Final = CarriedType(Beside, to=memoryview, give=lambda beside: beside.view, make=Beside)
_PATHS: Final = ("PurePath", "PurePosixPath", "PureWindowsPath", "Path", "PosixPath", "WindowsPath")
_ADDRESSES: Final = ("Address", "Network", "Interface")
_INTS: Final = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

MODULES: Final[Mapping[str, str]] = {
    **dict.fromkeys(_PATHS[:4], "pathlib"),
    **{f"IPv{version}{name}": "ipaddress" for version in (4, 6) for name in _ADDRESSES},
    "Fraction": "fractions",
    "ZoneInfo": "zoneinfo",
}
"""Where classes of Python's library are that travel as a text, by their names."""

LIBRARY_CLASSES: Final = (*sorted(_TABLES), "jax.Array", "torch.Tensor", "tvm_ffi.Tensor")
"""Classes of other libraries, tables and tensors, that a module may be written with: a server names what it likes."""

_CLASSES: Final[Mapping[str, Callable[[Any], CarriedType]]] = {
    **{f"pathlib.{name}": _text for name in _PATHS},
    **{f"ipaddress.IPv{version}{name}": _text for version in (4, 6) for name in _ADDRESSES},
    "fractions.Fraction": _fraction,
    "builtins.complex": _complex,
    "builtins.range": _range,
    "collections.deque": _deque,
    "collections.OrderedDict": _ordered_dict,
    "collections.Counter": _counter,
    "collections.defaultdict": _default_dict,
    "zoneinfo.ZoneInfo": _zone,
    **{f"numpy.{name}": _scalar(int) for name in _INTS},
    **{f"numpy.{name}": _scalar(float) for name in ("float16", "float32", "float64")},
    **{f"numpy.{name}": _scalar(bool) for name in ("bool", "bool_")},
    "numpy.complex64": _complex_scalar,
    "numpy.complex128": _complex_scalar,
}
"""By the first part of the module, and the class."""
