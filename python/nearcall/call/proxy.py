"""What a client calls: an object with one callable for each method of a service."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

__all__ = ["HasService", "Proxy", "no_such_method"]


class Proxy:
    """A service at the other end of a connection. Its attributes are the service's methods."""

    def __init__(self, name: str, url: str) -> None:
        # Names that no service method can have: they begin with an underscore.
        self._nearcall_name = name
        self._nearcall_url = url

    def __getattr__(self, name: str) -> Any:
        known = [method for method in self.__dict__ if not method.startswith("_")]
        raise no_such_method(self._nearcall_name, self._nearcall_url, name, known)

    def __repr__(self) -> str:
        return f"<{self._nearcall_name} at {self._nearcall_url}>"


class HasService:
    """A client: something whose attribute ``service`` is a proxy."""

    service: Any


def no_such_method(service: str, url: str, name: str, known: Iterable[str]) -> AttributeError:
    """The error for an attribute that is no method of a service; proposes one that is."""
    if name.startswith("_"):
        return AttributeError(f"'{name}': names that begin with an underscore are not served")
    import difflib  # only on the way to an error

    names = list(known)
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean '{close[0]}'?" if close else f"there are {', '.join(names)}"
    return AttributeError(f"{service} at {url} has no method '{name}': {hint}")
