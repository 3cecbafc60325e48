"""Names of a package that are imported when they are first asked for.

A program pays for what it uses: a client needs no server, and few programs need event loops.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

__all__ = ["lazily"]


def lazily(
    package: str, homes: Mapping[str, Sequence[str]], modules: Sequence[str] = ()
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """``__getattr__`` and ``__dir__`` of a package. After the first use, each is an ordinary name.

    Type checkers must not see these functions, or they assume that the package has every name: write them into the
    ``else`` of an ``if TYPE_CHECKING`` that imports the same names.

    Args:
        package: Its name.
        homes: The modules that define its names, relative to the package.
        modules: Its modules that are public names themselves.
    """
    home_of = {name: home for home, names in homes.items() for name in names}

    def find(name: str) -> object:
        if name in modules:
            return import_module(f".{name}", package)
        home = home_of.get(name)
        if home is None:
            # With `name` and `obj`, Python suggests a similar name.
            raise AttributeError(f"module '{package}' has no attribute '{name}'", name=name, obj=sys.modules[package])
        value = getattr(import_module(f".{home}", package), name)
        setattr(sys.modules[package], name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(sys.modules[package]), *home_of, *modules})

    return find, names
