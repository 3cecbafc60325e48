"""Proxies: objects with one callable for each method of a service."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias, TypeVar, cast

from ..service.implementing import Handler
from ..service.plan import MethodPlan
from .answering import only_named

__all__ = [
    "Around",
    "HasService",
    "Proxy",
    "no_context_manager",
    "no_such_attribute",
    "no_such_method",
    "refuse_to_list",
    "with_own_text",
]

MOST_COMPARED = 100
"""Names of methods that are compared with a misspelt one, to propose the nearest; a server may have thousands."""
T = TypeVar("T")
Around: TypeAlias = "Callable[[MethodPlan, Handler], Handler]"
"""Wraps the handler of a method."""


class OwnText:
    """A docstring that each object of a class has of its own, beside that of the class.

    Args:
        of_class: The docstring of the class.
        tell: Makes that of an object, when it is asked for.
    """

    def __init__(self, of_class: str | None, tell: Callable[[Any], str | None]) -> None:
        self._of_class = of_class
        self._tell = tell

    def __get__(self, instance: object, owner: type | None = None) -> str | None:
        return self._of_class if instance is None else self._tell(instance)


def with_own_text(tell: Callable[[Any], str | None]) -> Callable[[type[T]], type[T]]:
    """Gives the objects of a class docstrings of their own."""

    def decorate(cls: type[T]) -> type[T]:
        cls.__doc__ = cast(Any, OwnText(cls.__dict__.get("__doc__"), tell))
        return cls

    return decorate


def refuse_to_list() -> None:
    """For the property ``__class__`` of what stands for an object elsewhere. Python's Tab lists the attributes of an
    object, and then those of its class, unless it has none. Of a service's class only the methods are served: they are
    among the object's own.

    Raises:
        AttributeError: Tab asks.
    """
    asks = sys._getframe(1).f_back
    if asks is not None and asks.f_globals.get("__name__") == "rlcompleter":
        raise AttributeError("__class__")


@with_own_text(lambda proxy: proxy._nearcall_tell())
class Proxy:
    """A service at the other end of a connection. Its attributes are the service's methods.

    ``isinstance`` takes it for an instance of the service's class, if the client has one.

    Args:
        name: The service's name.
        url: Where the server is.
        methods: Functions that make its methods, by name.
        cls: The service's class.
        home: Wraps its methods when they are called in another event loop than the proxy's own; ``None`` if they are
            for threads.
        tell: Makes the text that is the proxy's docstring.
    """

    def __init__(
        self,
        name: str,
        url: str,
        methods: Mapping[str, Callable[[], object]],
        cls: type | None = None,
        home: Around | None = None,
        *,
        tell: Callable[[], str],
    ) -> None:
        # No service method can have these names: they begin with an underscore.
        self._nearcall_methods = methods
        self._nearcall_name = name
        self._nearcall_url = url
        self._nearcall_cls = cls
        self._nearcall_home = home
        self._nearcall_tell = tell
        if home is not None:
            for method in only_named(methods):
                self.__getattr__(method)  # or Python would find what its own functions call

    @property
    def __class__(self) -> Any:
        refuse_to_list()
        return self._nearcall_cls or Proxy

    @__class__.setter
    def __class__(self, _cls: Any) -> NoReturn:
        raise TypeError("the class of a proxy is the service's")

    def _nearcall_make_all(self) -> None:
        """Makes all methods that were not asked for yet."""
        for name in self._nearcall_methods:
            getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        # Not setattr: the server chooses the names of a dynamic client's methods.
        if name in self.__dict__.get("_nearcall_methods", ()):
            return self.__dict__.setdefault(name, self._nearcall_methods[name]())
        if (kind := _unserved(self._nearcall_cls, name)) is not None:
            raise AttributeError(f"{self._nearcall_name}.{name} is {kind}, which is not served: make it a method")
        raise no_such_method(self._nearcall_name, self._nearcall_url, name, self.__dir__())

    def __dir__(self) -> Iterable[str]:
        return dict.fromkeys(name for name in (*self._nearcall_methods, *self.__dict__) if not name.startswith("_"))

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in self.__dict__ and name not in self._nearcall_methods:
            raise no_such_attribute(self._nearcall_name, self._nearcall_url, name)
        super().__setattr__(name, value)

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied: it belongs to its connection; "
            "pass the URL, and connect where it is needed"
        )

    if not TYPE_CHECKING:  # a type checker refuses them by itself

        def __enter__(self) -> Any:
            raise no_context_manager(self, "write 'with nearcall.connect(...) as service', which closes the connection")

        __exit__ = __aenter__ = __aexit__ = __enter__

    def __repr__(self) -> str:
        return f"<{self._nearcall_name} at {self._nearcall_url}>"


def _unserved(cls: type | None, name: str) -> str | None:
    """What that attribute of a service's class is, if it is of a kind that is not served."""
    if cls is None or name.startswith("_"):
        return None
    import inspect  # only on the way to an error

    kinds = {staticmethod: "a static method", classmethod: "a class method", property: "a property"}
    found = inspect.getattr_static(cls, name, None)
    return next((words for kind, words in kinds.items() if isinstance(found, kind)), None)


_OF_CLIENTS = frozenset({"close", "closed", "connected", "description", "dropped", "peer", "peers", "ping", "service"})
"""Attributes of clients, which users may look for at a proxy: a client's ``with`` block gives the proxy."""


class HasService:
    """A client: something whose attribute ``service`` is a proxy."""

    service: Any


def no_context_manager(what: object, advice: str) -> TypeError:
    """The error for a proxy or a reference in a ``with`` statement."""
    return TypeError(f"{what!r} is not used in 'with': {advice}")


def no_such_attribute(service: str, url: str, name: str) -> AttributeError:
    """The error for setting an attribute that is no method of a service: the value would stay in this process,
    unnoticed. A method may be replaced, as tests do.
    """
    return AttributeError(
        f"{service} at {url} has no method '{name}', and attributes are not sent: call a method that sets it"
    )


def no_such_method(service: str, url: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for an attribute that is no method of a service; proposes the nearest method."""
    if name.startswith("_"):
        return AttributeError(f"'{name}': names that begin with an underscore are not served")
    import difflib  # only on the way to an error
    import itertools

    names = list(itertools.islice(known, MOST_COMPARED))
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
    if not close and name in _OF_CLIENTS:
        hint = f"'{name}' is the client's; write client = connect(...), and client.service for the service"
    return AttributeError(f"{service} at {url} has no method '{name}': {hint}")
