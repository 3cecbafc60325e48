"""Reads the methods that Python itself calls, and makes sure that callers get from them what Python expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from ..types.hints import stream_of, type_name
from ..types.special import exit_as_served
from .signature import ReadMethod, read_method

__all__ = ["read_special"]

_RESULTS: Final[Mapping[str, tuple[Any, ...]]] = {
    "__bool__": (bool,),
    "__contains__": (bool,),
    "__delitem__": (None,),
    "__exit__": (None, bool, bool | None),
    "__len__": (int,),
    "__setitem__": (None,),
}
_PARAMETERS: Final[Mapping[str, int]] = {
    **dict.fromkeys(("__bool__", "__enter__", "__iter__", "__len__", "__reversed__"), 0),
    **dict.fromkeys(("__contains__", "__delitem__", "__getitem__", "__exit__"), 1),
    "__setitem__": 2,
}
_STREAMS: Final = ("__iter__", "__reversed__")


def read_special(
    service: str,
    name: str,
    function: Callable[..., Any],
    namespace: Mapping[str, Any],
    interface: ReadMethod | None,
    owner: type,
) -> ReadMethod:
    """Reads the signature of such a method: see :func:`~nearcall.service.signature.read_method`.

    Args:
        service: The service's name, for messages.
        name: The name by which it is served.
        function: The function as found in the class.
        namespace: Names that annotations may use beside the module's.
        interface: The method of the interface that this one implements.
        owner: The class in which it is written.
    """
    if name == "__exit__":
        # Whoever writes it takes three arguments, or all of them with a star. What is sent is one.
        function = exit_as_served(function, interface.returns if interface is not None else None)
    read = read_method(service, name, function, namespace, interface)
    if name == "__enter__" and _is_itself(read.returns, owner):
        read = read._replace(returns=None)  # callers have the object already
    _check(read)
    return read


def _is_itself(annotation: Any, owner: type) -> bool:
    return type_name(annotation) == "Self" or annotation in owner.__mro__


def _check(read: ReadMethod) -> None:
    where, name = f"{read.full_name}()", read.name
    expected = _RESULTS.get(name)
    if expected is not None and read.returns not in expected:
        raise TypeError(f"{where}: returns {type_name(expected[-1])} in Python, and not {type_name(read.returns)}")
    count = _PARAMETERS.get(name)
    if count is not None and len(read.parameters) != count:
        arguments = "one argument" if count == 1 else f"{count or 'no'} arguments"
        raise TypeError(f"{where}: Python gives it {arguments}, and it takes {len(read.parameters)}")
    streams_out = stream_of(read.returns) is not None
    if name in _STREAMS and not streams_out:
        raise TypeError(
            f"{where}: is to return an iterator: annotate it '-> Iterator[...]', and the items come as a stream"
        )
    takes = any(stream_of(each.annotation) is not None for each in read.parameters)
    if name not in (*_STREAMS, "__call__") and (streams_out or takes):
        raise TypeError(f"{where}: cannot take or return a stream, as Python takes its result for a value")
