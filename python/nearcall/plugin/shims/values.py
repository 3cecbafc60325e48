"""A module's variables and mappings, which are kept in the host, and read and written by calls."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, MutableMapping
from types import ModuleType
from typing import Any

from ...codec.msgpack.functions import encode_plainly

__all__ = ["LARGEST", "MOST", "Shared", "find", "keys_of", "put", "remove", "variables"]

LARGEST = 4096
"""Bytes of a value that a plugin sets in a mapping of the host, encoded, and of its keys."""
MOST = 10_000
"""Most values that such a mapping may have after a plugin has set one."""


def variables(module: str, service: object, names: list[str]) -> None:
    """Makes names of a module variables of the host: reading one calls ``get_NAME``, assigning calls ``set_NAME``.

    Args:
        module: Its ``__name__``.
        service: The service from :func:`~nearcall.plugin.shims.use`.
        names: The variables.
    """
    body: dict[str, Any] = {name: _variable(service, name) for name in names}
    sys.modules[module].__class__ = type("Shim", (ModuleType,), body)


def _variable(service: Any, name: str) -> property:
    return property(
        lambda _: getattr(service, f"get_{name}")(), lambda _, value: getattr(service, f"set_{name}")(value)
    )


class Shared(MutableMapping[str, Any]):
    """A mapping of the host whose keys are texts. Every operation is a call.

    Values that are read from it are copies: changing a list that was read changes nothing at the host. A mapping inside
    is a :class:`Shared`, too, down to ``depth``.

    Args:
        service: The service from :func:`~nearcall.plugin.shims.use`, with the methods ``find_NAME``, ``put_NAME``,
            ``remove_NAME`` and ``keys_of_NAME``.
        name: The mapping's name.
        depth: How many mappings lie inside each other; 1 is a mapping of values.
        above: The keys that lead to this mapping.
    """

    def __init__(self, service: Any, name: str, depth: int = 1, above: tuple[str, ...] = ()) -> None:
        self._service = service
        self._name = name
        self._depth = depth
        self._above = above

    def _call(self, what: str, *args: Any) -> Any:
        return getattr(self._service, f"{what}_{self._name}")(*args)

    def __getitem__(self, key: str) -> Any:
        if self._depth > 1:
            if key not in self:
                raise KeyError(key)
            return Shared(self._service, self._name, self._depth - 1, (*self._above, key))
        found = self._call("find", [*self._above, key])
        if not found:
            raise KeyError(key)
        return found[0]

    def __setitem__(self, key: str, value: Any) -> None:
        if self._depth == 1:
            self._call("put", [*self._above, key], value)
            return
        for name, inner in value.items():
            Shared(self._service, self._name, self._depth - 1, (*self._above, key))[name] = inner

    def __delitem__(self, key: str) -> None:
        if not self._call("remove", [*self._above, key]):
            raise KeyError(key)

    def __contains__(self, key: object) -> bool:
        return key in self._call("keys_of", list(self._above))

    def __iter__(self) -> Iterator[str]:
        return iter(self._call("keys_of", list(self._above)))

    def __len__(self) -> int:
        return len(self._call("keys_of", list(self._above)))

    def __repr__(self) -> str:
        return f"<the host's {'.'.join((self._name, *self._above))}>"


# The host's side.


def find(mapping: Mapping[str, Any], keys: list[str], depth: int = 1) -> list[Any]:
    """The value to which keys lead, alone in a list; an empty list if there is none.

    Raises:
        ValueError: there are not as many keys as mappings inside each other.
    """
    inside = _inside(mapping, keys, depth)
    return [] if inside is None or keys[-1] not in inside else [inside[keys[-1]]]


def put(mapping: MutableMapping[str, Any], keys: list[str], value: Any, depth: int = 1) -> None:
    """Sets the value to which keys lead; mappings on the way that are missing become dicts. Plugins can only make the
    host keep :data:`MOST` values of :data:`LARGEST` bytes.

    Raises:
        ValueError: as :func:`find`; or there are too many values, or the value is too large.
    """
    _check(keys, depth)
    size = len(encode_plainly(value)) + sum(map(len, keys))
    if size > LARGEST:
        raise ValueError(f"a value of {size} bytes: {LARGEST} at most, with its keys")
    if not find(mapping, keys, depth) and _count(mapping, depth) >= MOST:
        raise ValueError(f"there are {MOST} values already: remove some")
    for key in keys[:-1]:
        mapping = mapping.setdefault(key, {})
    mapping[keys[-1]] = value


def remove(mapping: MutableMapping[str, Any], keys: list[str], depth: int = 1) -> bool:
    """Removes the value or mapping to which keys lead. ``False`` if there is none.

    Raises:
        ValueError: there are no keys, or more keys than mappings inside each other.
    """
    inside = _inside(mapping, keys, min(len(keys), depth))
    if inside is None or keys[-1] not in inside:
        return False
    del inside[keys[-1]]
    return True


def keys_of(mapping: Mapping[str, Any], keys: list[str], depth: int = 1) -> list[str]:
    """The keys of the mapping to which keys lead; none if there is none.

    Raises:
        ValueError: the keys lead to a value.
    """
    if not keys:
        return list(mapping)
    inside = _inside(mapping, [*keys, ""], min(len(keys) + 1, depth))
    return [] if inside is None else list(inside)


def _count(mapping: Mapping[str, Any], depth: int) -> int:
    return len(mapping) if depth == 1 else sum(_count(inner, depth - 1) for inner in mapping.values())


def _check(keys: list[str], depth: int) -> None:
    if len(keys) != depth or not keys:
        raise ValueError(f"{len(keys)} keys, where it takes {depth}")


def _inside(mapping: Mapping[str, Any], keys: list[str], depth: int) -> Any:
    """The mapping to which all keys but the last lead; ``None`` if it is missing."""
    _check(keys, depth)
    inside: Any = mapping
    for key in keys[:-1]:
        if key not in inside:
            return None
        inside = inside[key]
    return inside
