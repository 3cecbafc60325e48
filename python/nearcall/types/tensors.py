"""Tensors of any library that speaks DLPack travel as their elements, in a buffer beside the message.

A class is known by its methods ``__dlpack__`` and ``__dlpack_device__`` and by a function ``from_dlpack`` of its
library. numpy reads the tensors, and lends what arrived to that function. It is imported when the first tensor is sent
or arrives.

What arrives may lie in memory that this process can only read. Where a tensor could be written to all the same, it gets
a copy.
"""

from __future__ import annotations

import ctypes
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from typing import Any, ClassVar, Final, NamedTuple, cast

import msgspec

from .beside import Beside
from .carried import CarriedType
from .hints import describe_value, plain_name, short_repr

__all__ = ["tensor_type"]


class TensorData(msgspec.Struct):
    """A tensor as it travels."""

    dtype: str
    """The name of its elements' type, such as ``float32``."""
    shape: list[int]
    data: Beside
    """Its elements without gaps, the last dimension first, each as little-endian bytes."""


class _Kind(NamedTuple):
    """A type of elements, as DLPack has it."""

    code: int
    bits: int
    lanes: int = 1


_UNSIGNED: Final = 1
_BOOL: Final = 6
_NUMPY: Final = frozenset({0, _UNSIGNED, 2, 5, _BOOL})
"""The codes of which numpy has types; elements of others are unsigned ints for it."""
_KINDS: Final[Mapping[str, _Kind]] = {
    "bool": _Kind(_BOOL, 8),
    **{f"int{bits}": _Kind(0, bits) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": _Kind(_UNSIGNED, bits) for bits in (8, 16, 32, 64)},
    **{f"float{bits}": _Kind(2, bits) for bits in (16, 32, 64)},
    "bfloat16": _Kind(4, 16),
    **{f"complex{bits}": _Kind(5, bits) for bits in (64, 128)},
    "float8_e3m4": _Kind(7, 8),
    "float8_e4m3": _Kind(8, 8),
    "float8_e4m3b11fnuz": _Kind(9, 8),
    "float8_e4m3fn": _Kind(10, 8),
    "float8_e4m3fnuz": _Kind(11, 8),
    "float8_e5m2": _Kind(12, 8),
    "float8_e5m2fnuz": _Kind(13, 8),
    "float8_e8m0fnu": _Kind(14, 8),
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}
_MOST_DIMENSIONS: Final = 64
_MOST_BYTES: Final = 2**63 - 1

_DEVICES: Final[Mapping[int, str]] = {
    2: "a CUDA device",
    7: "a Vulkan device",
    8: "a Metal device",
    10: "a ROCm device",
}
_REACHABLE: Final = frozenset({1, 3, 11})
"""The CPU's memory, and such of it as is pinned for CUDA or ROCm."""

_NEVER_CHANGED: Final = frozenset({"jax.Array"})
"""Classes whose objects cannot be written to by whatever is done with them. Their libraries know no flag for it."""


class _Tensor(ctypes.Structure):
    """DLPack's description of a tensor, in memory of the library that made it."""

    _fields_: ClassVar = [
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """The same since version 1.0."""

    _fields_: ClassVar = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY: Final = 1
_MAJOR: Final = 1

# Copies of the functions: what others set in ctypes.pythonapi does not matter.
_name_of: Any = ctypes.PYFUNCTYPE(ctypes.c_char_p, ctypes.py_object)(("PyCapsule_GetName", ctypes.pythonapi))
_pointer_of: Any = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


def _described(capsule: Any) -> tuple[Any, int]:
    """The description in a capsule that nobody has taken yet, valid as long as the capsule or its taker is there, and
    the flags beside it.

    Raises:
        TypeError: it is no such capsule, or of a version that is not known.
    """
    if type(capsule).__name__ != "PyCapsule":
        raise TypeError(f"its __dlpack__() has returned {describe_value(capsule)}")
    name = _name_of(capsule)
    # What a capsule of these names points to is fixed by DLPack; a library of this process has made it.
    if name == b"dltensor":
        return _Tensor.from_address(_pointer_of(capsule, name)), 0
    if name == b"dltensor_versioned":
        whole = _Versioned.from_address(_pointer_of(capsule, name))
        if whole.major == _MAJOR:
            return whole.tensor, int(whole.flags)
        raise TypeError(f"it is of version {whole.major} of DLPack, which is not known here")
    raise TypeError("its __dlpack__() has returned something else than a tensor")


def _kind_in(described: Any) -> _Kind:
    return _Kind(described.code, described.bits, described.lanes)


def _kind_of(tensor: Any) -> _Kind:
    try:
        capsule = tensor.__dlpack__(max_version=(_MAJOR, 0))
    except TypeError:  # it knows no versions
        capsule = tensor.__dlpack__()
    return _kind_in(_described(capsule)[0])


def _set_kind(described: Any, kind: _Kind) -> None:
    described.code, described.bits, described.lanes = kind


class _Read:
    """What numpy reads of a tensor: the bits of elements that it has no type for."""

    def __init__(self, tensor: Any) -> None:
        for name in ("resolve_conj", "resolve_neg"):  # what torch has put off, and does not tell others
            resolve = getattr(tensor, name, None)
            tensor = tensor if resolve is None else resolve()
        self._tensor = tensor
        self.kind = _Kind(0, 0)
        self._described: Any = None

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._tensor.__dlpack_device__()  # type: ignore[no-any-return]

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._tensor.__dlpack__(**options)
        self._described, _ = _described(capsule)
        self.kind = _kind_in(self._described)
        if self.kind not in _NAMES:
            code, bits, lanes = self.kind
            raise TypeError(
                f"elements of {lanes} times {bits} bits, of DLPack's type {code}, do not travel: convert them"
            )
        if self.kind.code not in _NUMPY:
            _set_kind(self._described, _Kind(_UNSIGNED, self.kind.bits))
        return capsule

    def restore(self) -> None:
        """To be called while what was made of the capsule is there: the description may be the tensor's own."""
        _set_kind(self._described, self.kind)


class _Lent:
    """An array whose elements are of a type that numpy does not have."""

    def __init__(self, array: Any, kind: _Kind) -> None:
        self._array = array
        self._kind = kind

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._array.__dlpack_device__()  # type: ignore[no-any-return]

    def __dlpack__(self, **options: Any) -> Any:
        capsule = self._array.__dlpack__(**options)
        _set_kind(_described(capsule)[0], self._kind)  # numpy makes a description for each capsule
        return capsule


def _label(cls: Any) -> str:
    return f"{_library(cls)}.{plain_name(cls)}"


def _library(cls: Any) -> str:
    return str(cls.__module__).partition(".")[0]


def tensor_type(cls: Any) -> CarriedType | None:
    """How objects of a class that speaks DLPack travel; ``None`` if its library offers no function that makes them.

    Raises:
        TypeError: numpy is not installed.
    """
    function = next(_functions(cls), None)
    if function is None:
        return None
    if find_spec("numpy") is None:
        raise TypeError("tensors travel as numpy reads them: pip install numpy")
    return _TensorType(cls, function)


def _functions(cls: Any) -> Iterator[Callable[[Any], Any]]:
    """The functions ``from_dlpack`` that may make objects of a class, in modules that are imported already."""
    parts = str(cls.__module__).split(".")
    own = [".".join(parts[:length]) for length in range(len(parts), 0, -1)]
    for name in (*own, *(f"{parts[0]}.{each}" for each in ("numpy", "dlpack", "utils.dlpack"))):
        found = getattr(sys.modules.get(name), "from_dlpack", None)
        if callable(found):
            yield found


class _TensorType(CarriedType):
    """A class of tensors."""

    __slots__ = ("_function", "_is_never_changed", "_keeps_read_only")

    def __init__(self, cls: Any, function: Callable[[Any], Any]) -> None:
        # One name for all libraries: each side may declare its own.
        super().__init__(cls, to=TensorData, give=self._given, make=self._made, name="tensor")
        self._function = function
        self.library_class = _label(cls)
        self._is_never_changed = self.library_class in _NEVER_CHANGED
        self._keeps_read_only: bool | None = None
        """Whether what it makes of memory that must not be written to is kept from that; ``None`` if not yet known."""

    def fits(self, value: Any) -> bool:
        """See :class:`CarriedType`: a declared class may be one that no object is of, as ``jax.Array``."""
        if type(value) not in self.kinds and isinstance(value, self.cls):
            with suppress(TypeError):
                self._learn()
        return type(value) in self.kinds

    def _learn(self) -> None:
        """Finds out, with an element in memory of our own, what the library makes of it, and of memory that must not be
        written to.

        Raises:
            TypeError: what it makes is of another class, or nothing.
        """
        if self._keeps_read_only is not None:
            return
        np: Any = import_module("numpy")
        tried: Any = np.zeros(1, np.float32)
        library = _library(self.cls)
        try:
            made = self._function(tried)
        except Exception as problem:  # of any class: the library's
            raise TypeError(f"from_dlpack() of {library} takes no tensor in the CPU's memory: {problem}") from None
        if not isinstance(made, self.cls):
            raise TypeError(f"from_dlpack() of {library} makes {describe_value(made)}: declare that")
        self.kinds = (self.cls, cast(Any, type(made)))
        tried.flags.writeable = False
        self._keeps_read_only = _is_kept_from_writing(self._function, tried)

    def _given(self, tensor: Any) -> TensorData:
        np: Any = import_module("numpy")
        try:
            _check(tensor)
            self._learn()
            read = _Read(tensor)
            array: Any = np.from_dlpack(read)
        except TypeError:
            raise
        except Exception as problem:  # of any class: the library's
            raise TypeError(str(problem)) from None
        read.restore()
        flat = np.asarray(_little(array), order="C").reshape(-1)
        data = memoryview(flat.view(np.uint8)) if flat.nbytes else memoryview(b"")
        return TensorData(_NAMES[read.kind], list(array.shape), Beside(data))

    def _made(self, sent: TensorData) -> Any:
        self._learn()
        kind = _KINDS.get(sent.dtype)
        if kind is None:
            raise ValueError(f"there is no dtype {short_repr(sent.dtype)}")
        lent = self._lent(_array(sent, kind), kind)
        library = _library(self.cls)
        try:
            made = self._function(lent)
            arrived = _kind_of(made)
        except Exception as problem:  # of any class: the library's
            raise ValueError(f"{library} takes none of {sent.dtype} here: {problem}") from None
        if arrived != kind:
            advice = ": jax.config.update('jax_enable_x64', True)" if library == "jax" else ""
            name = _NAMES.get(arrived, "another dtype")
            raise ValueError(f"{library} makes {name} of {sent.dtype}{advice}")
        return made

    def _lent(self, array: Any, kind: _Kind) -> Any:
        """What the library reads: the array where it lies, if nobody can write to it through what is made of it."""
        # A bool that is no bool, or changes after it was checked, might count as one and as two.
        if kind.code == _BOOL:
            array = array.copy()
            if array.size and array.view("u1").max() > 1:
                raise ValueError("an element is neither False nor True")
        elif self._is_never_changed and array.nbytes:
            array = _as_writable(array)
        elif not self._keeps_read_only:
            array = array.copy()
        return array if kind.code in _NUMPY else _Lent(array, kind)


def _is_kept_from_writing(function: Callable[[Any], Any], array: Any) -> bool:
    """Whether what a library makes of an array that must not be written to is kept from that, and says so to others."""
    try:
        made: Any = function(array)
        _, flags = _described(made.__dlpack__(max_version=(_MAJOR, 0)))
    except Exception:  # of any class: the library knows no flag
        return False
    if not flags & _READ_ONLY:
        return False
    try:
        made[0] = 1
    except Exception:  # of any class: this is what is hoped for
        return True
    return False


def _check(tensor: Any) -> None:
    """Makes sure that a tensor can be read here, and is nothing more than its elements.

    Raises:
        TypeError: it cannot, or is.
    """
    device = int(tensor.__dlpack_device__()[0])
    if device not in _REACHABLE:
        where = _DEVICES.get(device, "a device")
        how = "pass tensor.cpu()" if hasattr(tensor, "cpu") else "move it there before"
        raise TypeError(f"it is on {where}, and only tensors in the CPU's memory travel: {how}")
    if getattr(tensor, "requires_grad", False):
        raise TypeError("it requires a gradient, of which nothing would arrive: pass tensor.detach()")


def _array(sent: TensorData, kind: _Kind) -> Any:
    """The elements that were sent, where they lie, after it was counted that they are all there.

    Raises:
        ValueError: they are not.
    """
    np: Any = import_module("numpy")
    shape, view = sent.shape, sent.data.view
    if len(shape) > _MOST_DIMENSIONS or min(shape, default=0) < 0:
        raise ValueError("its shape is malformed")
    width = kind.bits // 8
    # Of the other dimensions too if one is 0: libraries multiply them.
    if math.prod(max(side, 1) for side in shape) * width > _MOST_BYTES:
        raise ValueError("its shape is malformed")
    if math.prod(shape) * width != view.nbytes:
        raise ValueError(f"it has {view.nbytes} bytes, and its shape asks for {math.prod(shape) * width}")
    dtype = np.dtype(sent.dtype if kind.code in _NUMPY else f"u{width}").newbyteorder("<")
    return _native(np.ndarray(shape, dtype, view.toreadonly()))


def _little(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder("<"), copy=False)


def _native(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _as_writable(array: Any) -> Any:
    """The same memory as an array that says that it may be written to, for libraries that take no others."""
    np: Any = import_module("numpy")
    block: Any = (ctypes.c_char * array.nbytes).from_address(array.ctypes.data)
    block.owner = array  # which keeps the memory
    return np.ndarray(array.shape, array.dtype, block)
