"""Classes for what stands for an object elsewhere, if that has methods which Python itself calls: Python looks for
those in the class alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NoReturn, TypeVar, cast

from ..types.special import IN_LOOPS, SERVED, in_words

__all__ = ["answering", "method_of", "only_named"]

T = TypeVar("T")

_NOT_IN_LOOPS = frozenset({"__bool__", "__contains__", "__delitem__", "__len__", "__reversed__", "__setitem__"})
"""Those whose result Python wants at once."""
_made: dict[tuple[type, frozenset[str], bool], type] = {}
"""The classes, of which there are few: there is one for each set of such methods."""


def answering(base: type[T], names: Iterable[str], *, for_loop: bool) -> type[T]:
    """The class of an object with methods of these names: ``base``, or a class derived from it, that has those which
    Python calls.

    Args:
        base: The class of objects whose ``__getattr__`` makes their methods, and keeps them in the object.
        names: The names of the methods.
        for_loop: Whether the methods are awaited.
    """
    special = SERVED.intersection(names)
    if not special:
        return base
    if (found := _made.get((base, special, for_loop))) is None:
        # Its docstring is a descriptor, which a class without one would hide.
        body: dict[str, Any] = {"__doc__": base.__dict__["__doc__"], "__module__": base.__module__}
        if for_loop and "__getitem__" in special:
            # Python would ask for one item after the other, and await none of them.
            body["__iter__"] = _no_loop
        body |= {IN_LOOPS.get(name, name) if for_loop else name: _caller(name, for_loop) for name in special}
        found = _made[base, special, for_loop] = type(base.__name__, (base,), body)
    return cast("type[T]", found)


def only_named(names: Iterable[str]) -> frozenset[str]:
    """Of the methods of an object for event loops, those that are awaited by their names."""
    return _NOT_IN_LOOPS.intersection(names)


def _caller(name: str, for_loop: bool) -> Callable[..., Any]:
    if name == "__exit__":
        return _exit
    if name == "__enter__":
        return _aenter if for_loop else _enter
    if for_loop and name in _NOT_IN_LOOPS:
        return _refusal(name)

    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        return method_of(self, name)(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def method_of(target: Any, name: str) -> Any:
    """A method of what stands for an object elsewhere, as it is served: not what Python calls in its place."""
    made = target.__dict__.get(name)
    return target.__getattr__(name) if made is None else made


def _enter(self: Any) -> Any:
    entered = method_of(self, "__enter__")()
    return self if entered is None else entered


async def _aenter(self: Any) -> Any:
    entered = await method_of(self, "__enter__")()
    return self if entered is None else entered


def _exit(self: Any, kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> Any:
    return method_of(self, "__exit__")(None if kind is None else f"{kind.__name__}: {error}".removesuffix(": "))


def _no_loop(_self: Any) -> NoReturn:
    raise TypeError("a loop over it cannot wait in an event loop: write 'async for', or await one item after the other")


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*_args: Any) -> NoReturn:
        raise TypeError(f"{in_words(name)} cannot wait in an event loop: write 'await ....{name}(...)'")

    return refuse
