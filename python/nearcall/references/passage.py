"""Puts references into the messages of one connection, and takes them out."""

from __future__ import annotations

import struct
import threading
import types
import weakref
from typing import Any

from .. import _core
from ..codec.references import Passage, Received
from ..types.declared import is_function
from .catalogue import Catalogue
from .given import GivenFunction, check_given, how_given
from .reference import Handle, Reference, is_reference, reference_to

__all__ = ["ConnectionPassage"]

_GIVEN, _RETURNED = 0, 1
"""Whether a reference stands for an object of the message's sender, or of its receiver."""
_DATA = struct.Struct("<BQ")


class _Home(Received):
    """An object of this process that came back."""

    def __init__(self, value: object) -> None:
        self._value = value

    def as_a(self, cls: type, *, for_loop: bool) -> object:
        """See :class:`~nearcall.codec.references.Received`."""
        value = self._value
        # The decoder checks its class, as for any value.
        return value.function if type(value) is GivenFunction else value


class ConnectionPassage(Passage):
    """The references of one connection. Any thread may use it.

    It does not keep the connection alive; the received references do.

    Args:
        catalogue: What this side knows of the services that are passed.
    """

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
        self._functions: weakref.WeakValueDictionary[tuple[int, ...], GivenFunction] = weakref.WeakValueDictionary()
        # Reentrant: while the lock is held, the garbage collector may run finalizers, which may release references.
        self._lock = threading.RLock()

    def check(self, value: object, cls: type) -> None:
        """See :class:`~nearcall.codec.references.Passage`."""
        check_given(value, cls)

    def put(self, references: _core.References, value: object, cls: type) -> bytes:
        """See :class:`~nearcall.codec.references.Passage`."""
        value = check_given(value, cls)
        if is_reference(value):
            handle: Handle = value._nearcall_handle
            if handle.passage is self:
                return _DATA.pack(_RETURNED, handle.number)
        table = self.catalogue.table(how_given(value, cls))
        if is_function(cls) and not is_reference(value):
            value = self._function(value)
        return _DATA.pack(_GIVEN, references.give(value, table))

    def take(self, references: _core.References, data: memoryview) -> Received:
        """See :class:`~nearcall.codec.references.Passage`."""
        if len(data) != _DATA.size:
            raise ValueError(f"a malformed reference of {len(data)} bytes")
        whose, number = _DATA.unpack(data)
        if number == 0:
            raise ValueError("a malformed reference: no object has the number 0")
        if whose == _GIVEN:
            return self._received(references, number)
        if whose == _RETURNED:
            return _Home(references.mine(number))
        raise ValueError(f"a malformed reference of the kind {whose}")

    def _received(self, references: _core.References, number: int) -> Handle:
        with self._lock:
            handle = self._handles.get(number)
            if handle is None or not handle.receive():
                handle = self._handles[number] = Handle(self, references, number)
                handle.receive()
            references.take(number)
            return handle

    def _function(self, function: Any) -> GivenFunction:
        """What stands for a function here: the same object as long as the other end has it."""
        # A method is made anew each time that it is looked up, so it is known by its parts.
        bound = isinstance(function, types.MethodType)
        key = (id(function.__self__), id(function.__func__)) if bound else (id(function),)
        with self._lock:
            given = self._functions.get(key)
            if given is None:
                # It keeps the function, so that the key stays its own.
                given = self._functions[key] = GivenFunction(function)
            return given

    def reference(self, handle: Handle, cls: type, for_loop: bool) -> Reference:
        """The reference for an object at the other end: the same Python object as long as that is alive."""
        with self._lock:
            made = handle.made.get((cls, for_loop))
            reference = None if made is None else made()
            if reference is None:
                reference = reference_to(handle, cls, for_loop=for_loop)
                handle.made[cls, for_loop] = weakref.ref(reference)
            return reference

    def retire(self, handle: Handle) -> None:
        """Marks a handle as released: whoever receives its object from now on gets another one."""
        if not handle.references.alive:
            handle.released = True  # without the lock, which a fork may have left locked
            return
        with self._lock:
            handle.released = True

    def __repr__(self) -> str:
        return f"<references: {len(self._handles)} received>"
