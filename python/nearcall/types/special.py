"""Methods that Python itself calls, such as ``__len__``: which of them a service can have, and how an object has them.

A method has one name, whatever the colour of its handler: ``__aiter__`` is served as ``__iter__``, and so on. So a
thread's ``for`` and an event loop's ``async for`` call the same method, whichever of both the class has written.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any, Final, Optional

from ..errors import Aborted

__all__ = ["IN_LOOPS", "SERVED", "attribute", "exit_as_served", "handler_of", "in_words", "name_served", "refuse"]

IN_LOOPS: Final[Mapping[str, str]] = {"__iter__": "__aiter__", "__enter__": "__aenter__", "__exit__": "__aexit__"}
"""The methods that Python calls by another name in a coroutine, with that name."""
_BY_BOTH: Final = {**{name: name for name in IN_LOOPS}, **{name: served for served, name in IN_LOOPS.items()}}

SERVED: Final = frozenset(
    {"__bool__", "__call__", "__contains__", "__delitem__", "__getitem__", "__len__", "__reversed__", "__setitem__"}
).union(IN_LOOPS)
"""Their names as they are served."""

_NOT_HERE: Final = "the object is in another process, and Python asks this of what is in its own: write a method"
_OPERATOR: Final = "the other side of an operator may be in any process, and may answer for both: write a method"
_ATTRIBUTE: Final = "attributes are not served, only methods are: write one for each"
_DESCRIPTOR: Final = "what is called through a reference has no attributes that it could be one of"
_REASONS: Final[Mapping[str, str]] = {
    "__del__": "nothing calls it when a client lets go of the object: that calls close(), or aclose()",
    "__next__": "each item would be a call: write '__iter__(self) -> Iterator[...]', which is a stream",
    "__anext__": "each item would be a call: write '__aiter__(self) -> AsyncIterator[...]', which is a stream",
    "__await__": "in an event loop the calls of methods are awaited, not the object: write an 'async def' method",
    **dict.fromkeys(("__getattr__", "__getattribute__", "__setattr__", "__delattr__", "__dir__"), _ATTRIBUTE),
    **dict.fromkeys(("__get__", "__set__", "__delete__"), _DESCRIPTOR),
    **dict.fromkeys(
        (f"__{each}__" for each in ("index", "int", "float", "complex", "bytes", "fspath", "buffer", "length_hint")),
        _NOT_HERE,
    ),
    **dict.fromkeys(
        (
            *(f"__{each}__" for each in ("lt", "le", "gt", "ge", "neg", "pos", "abs", "invert")),
            *(
                f"__{side}{each}__"
                for each in (
                    *("add", "sub", "mul", "matmul", "truediv", "floordiv", "mod", "divmod", "pow"),
                    *("lshift", "rshift", "and", "or", "xor"),
                )
                for side in ("", "r", "i")
            ),
        ),
        _OPERATOR,
    ),
}
"""Why the others are not served. What Python needs to make, show, compare, copy and pickle an object where it is, such
as ``__init__`` and ``__repr__``, is neither served nor refused.
"""

_WORDS: Final[Mapping[str, str]] = {
    "__len__": "len()",
    "__bool__": "bool()",
    "__contains__": "'in'",
    "__setitem__": "setting an item",
    "__delitem__": "'del'",
    "__reversed__": "reversed()",
}


def in_words(name: str) -> str:
    """What calls the method."""
    return _WORDS.get(name, name)


def name_served(name: str) -> str | None:
    """The name by which a method that Python calls is served; ``None`` if it is not, or is no such method."""
    name = _BY_BOTH.get(name, name)
    return name if name in SERVED else None


def refuse(cls: type, name: str, value: Any) -> None:
    """Makes sure that a class which is declared a service has not written a method that cannot be served.

    Raises:
        TypeError: it has; the message says why it is not served.
    """
    # What decorators such as dataclass have made is not what the user asks for.
    written = isinstance(value, FunctionType) and value.__module__ == cls.__module__
    if name in _REASONS and written and not value.__code__.co_filename.startswith("<"):
        raise TypeError(
            f"{cls.__name__}.{name}() cannot be served: {_REASONS[name]}. If only this process is to have it, write it "
            f"in a class that derives from {cls.__name__}"
        )


def attribute(owner: Any, name: str) -> str:
    """The name of the attribute by which a class, or an object, has a method that is served by a name."""
    other = IN_LOOPS.get(name)
    if other is None:
        return name
    for base in (owner if isinstance(owner, type) else type(owner)).__mro__:
        if name in base.__dict__:
            return name
        if other in base.__dict__:
            return other
    return name


def handler_of(owner: Any, name: str) -> Callable[..., Any]:
    """What runs a method of an object; of a class, the function, which takes the object first.

    A block's end is told of an exception in words: no exception leaves its process. An object that ``__enter__``
    returns for itself is not sent: to the caller it is what was entered.
    """
    function: Callable[..., Any] = getattr(owner, attribute(owner, name))
    if name not in ("__enter__", "__exit__"):
        return function
    alone = not isinstance(owner, type)

    def given(args: tuple[Any, ...]) -> tuple[Any, ...]:
        if name == "__enter__":
            return args
        *target, error = args
        aborted = None if error is None else Aborted(f"the block ended with {error}")
        return *target, None if aborted is None else type(aborted), aborted, None

    def taken(args: tuple[Any, ...], result: Any) -> Any:
        return None if name == "__enter__" and result is (owner if alone else args[0]) else result

    if inspect.iscoroutinefunction(function):

        async def awaited(*args: Any) -> Any:
            return taken(args, await function(*given(args)))

        return awaited

    def run(*args: Any) -> Any:
        return taken(args, function(*given(args)))

    return run


def exit_as_served(function: Callable[..., Any], of_interface: Any) -> Callable[..., Any]:
    """What is read in the place of an ``__exit__``: it takes the exception in words. What the method itself takes is of
    no interest; its annotations often name what only type checkers import.

    Args:
        function: The method as it is written.
        of_interface: The result's annotation in the interface that it implements, for one without.
    """

    def served(self: Any, error: str | None = None) -> Any:
        """What the block ended with, in words, if that was an exception."""

    async def awaited(self: Any, error: str | None = None) -> Any:
        """What the block ended with, in words, if that was an exception."""

    stands = awaited if inspect.iscoroutinefunction(function) else served
    # With the globals of the module in which the result's annotation is written.
    globals_of = getattr(inspect.unwrap(function), "__globals__", {})
    made = FunctionType(stands.__code__, globals_of, function.__name__, (None,))
    made.__dict__.update(function.__dict__)
    made.__dict__.pop("__wrapped__", None)
    annotations = {"error": Optional[str], "return": _result_of(function)}  # noqa: UP045 - known at run time only
    if annotations["return"] is inspect.Parameter.empty:
        annotations["return"] = of_interface
    made.__annotations__ = annotations
    made.__doc__ = function.__doc__
    return made


def _result_of(function: Any) -> Any:
    if sys.version_info >= (3, 14):
        import annotationlib

        annotations = annotationlib.get_annotations(function, format=annotationlib.Format.FORWARDREF)
    else:
        annotations = function.__annotations__
    return annotations.get("return", inspect.Parameter.empty)
