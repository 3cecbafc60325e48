"""What a client calls: an object with one callable for each method of a service."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NoReturn, TypeAlias

from ..service.implementing import Handler
from ..service.plan import MethodPlan

__all__ = ["Around", "HasService", "Proxy", "no_such_attribute", "no_such_method"]

MOST_COMPARED = 100
"""Names of methods that are looked at to find out which of them was meant; a server may have thousands."""
Around: TypeAlias = "Callable[[MethodPlan, Handler], Handler]"
"""Makes a method's handler of the one that there is."""


class Proxy:
    """A service at the other end of a connection. Its attributes are the service's methods.

    It passes for an instance of the service's class, if that is known here.

    Args:
        name: The service's name.
        url: Where the server is.
        methods: What makes each of its methods, by name.
        cls: The service's class.
        home: What is around its methods when another event loop calls them than the one that it belongs to; ``None`` if
            they are for threads.
    """

    def __init__(
        self,
        name: str,
        url: str,
        methods: Mapping[str, Callable[[], object]],
        cls: type | None = None,
        home: Around | None = None,
    ) -> None:
        # Names that no service method can have: they begin with an underscore.
        self._nearcall_methods = methods
        self._nearcall_name = name
        self._nearcall_url = url
        self._nearcall_cls = cls
        self._nearcall_home = home

    @property
    def __class__(self) -> Any:
        return self._nearcall_cls or Proxy

    @__class__.setter
    def __class__(self, _cls: Any) -> NoReturn:
        raise TypeError("the class of a proxy is the service's")

    def _nearcall_make_all(self) -> None:
        """Makes all methods, those as well that nobody has asked for yet."""
        for name in self._nearcall_methods:
            getattr(self, name)

    def __getattr__(self, name: str) -> Any:
        # Not setattr: a dynamic client's names are the server's choice.
        if name in self.__dict__.get("_nearcall_methods", ()):
            return self.__dict__.setdefault(name, self._nearcall_methods[name]())
        known = dict.fromkeys(name for name in (*self._nearcall_methods, *self.__dict__) if not name.startswith("_"))
        raise no_such_method(self._nearcall_name, self._nearcall_url, name, known)

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._nearcall_methods, *object.__dir__(self)})

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in self.__dict__ and name not in self._nearcall_methods:
            raise no_such_attribute(self._nearcall_name, self._nearcall_url, name)
        super().__setattr__(name, value)

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(
            f"{self!r} cannot be pickled or copied: it belongs to its connection; connect where it is needed"
        )

    def __repr__(self) -> str:
        return f"<{self._nearcall_name} at {self._nearcall_url}>"


_OF_CLIENTS = frozenset({"close", "closed", "connected", "description", "dropped", "peer", "peers", "ping", "service"})
"""What one may look for at a service, because a ``with`` block of a client gives that."""


class HasService:
    """A client: something whose attribute ``service`` is a proxy."""

    service: Any


def no_such_attribute(service: str, url: str, name: str) -> AttributeError:
    """The error for setting an attribute that is no method of a service: it would stay here, and nobody would know. A
    method may be replaced, as tests do.
    """
    return AttributeError(
        f"{service} at {url} has no method '{name}', and attributes are not sent: call a method that sets it"
    )


def no_such_method(service: str, url: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for an attribute that is no method of a service; proposes one that is."""
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
