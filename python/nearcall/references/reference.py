"""References that were received: objects at the other end, called as if they were here, until they are released."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, TypeGuard

from .. import _core
from ..call.answering import answering, only_named
from ..call.proxy import no_context_manager, no_such_attribute, no_such_method, refuse_to_list, with_own_text
from ..codec.references import Received
from ..errors import FailedPrecondition
from ..service.outward import text_of_service
from ..service.service import plan_of
from ..types.declared import is_function, is_service, name_of
from ..types.functions import CALL, show_function
from ..types.special import SERVED
from .catalogue import Catalogue

__all__ = ["Handle", "Reference", "is_reference", "reference_to", "release"]


class Receiving(Protocol):
    """The connection of a reference, as the reference sees it."""

    @property
    def catalogue(self) -> Catalogue:
        """What this side knows of the services that are passed."""
        ...

    def reference(self, handle: Handle, cls: type, for_loop: bool) -> Reference:
        """The reference for an object at the other end."""
        ...

    def retire(self, handle: Handle) -> None:
        """Marks a handle as released: no receipt is counted for it from now on."""
        ...


class _Receipts:
    """How often one object was received and not released. Apart from the handle, which they outlive by a moment."""

    __slots__ = ("_each", "_number", "_release")

    def __init__(self, references: _core.References, number: int) -> None:
        self._release = references.release
        self._number = number
        # A list, because appending and popping are one step each: the garbage collector may run in between, and
        # release.
        self._each: list[None] = []

    def add(self) -> None:
        """Counts one more."""
        self._each.append(None)

    def let_go(self) -> None:
        """Tells the other end of all that were counted, once. Never waits."""
        count = 0
        while self._each:
            try:
                self._each.pop()
            except IndexError:
                break
            count += 1
        if count:
            self._release(self._number, count)


class Handle(Received):
    """One object at the other end of one connection. When nothing refers to the handle any more, the other end learns
    that the object is not needed.
    """

    def __init__(self, passage: Receiving, references: _core.References, number: int) -> None:
        self.passage = passage
        self.references = references
        self.number = number
        self.released = False
        self.made: dict[tuple[type, bool], weakref.ref[Reference]] = {}
        self._receipts = _Receipts(references, number)
        # No `__del__`: while that runs, a weak reference still finds the handle, and another thread could receive the
        # object once more with a handle that is about to count it out. This runs when nobody can find it any more.
        weakref.finalize(self, self._receipts.let_go).atexit = False

    def receive(self) -> bool:
        """Counts one more receipt, unless the handle was released: then it returns ``False``. The passage's lock is
        held.
        """
        if self.released:
            return False
        self._receipts.add()
        return True

    def release(self) -> None:
        """Releases the object. Harmless when repeated."""
        self.passage.retire(self)
        for made in list(self.made.values()):
            reference = made()
            if reference is not None:
                reference._nearcall_forget()
        self._receipts.let_go()

    def as_a(self, cls: type, *, for_loop: bool) -> object:
        """See :class:`~nearcall.codec.references.Received`."""
        return self.passage.reference(self, cls, for_loop)


@with_own_text(lambda reference: reference._nearcall_text())
class Reference:
    """An object at the other end of a connection. Its attributes are the methods of its service.

    ``isinstance`` takes it for an instance of the service's class.
    """

    # No service method can have these names: they begin with an underscore.
    _nearcall_handle: Handle
    _nearcall_cls: type
    _nearcall_for_loop: bool

    def __init__(self, handle: Handle, cls: type, *, for_loop: bool) -> None:
        # One update is faster than setting each: there may be many references.
        self.__dict__.update(_nearcall_handle=handle, _nearcall_cls=cls, _nearcall_for_loop=for_loop)
        if for_loop and type(self) is not Reference:
            self._nearcall_make_named()

    def _nearcall_make_named(self) -> None:
        """Makes the methods that are awaited by a name by which Python would find what its own functions call."""
        for name in only_named(method.name for method in plan_of(self._nearcall_cls).methods):
            self.__getattr__(name)

    @property
    def __class__(self) -> Any:
        refuse_to_list()
        return self._nearcall_cls

    @__class__.setter
    def __class__(self, _cls: Any) -> NoReturn:
        raise TypeError("the class of a reference is the service's")

    def __getattr__(self, name: str) -> Any:
        # Methods are made when first used: most references are used for one or two of them.
        if name.startswith("_") and name not in SERVED:
            raise no_such_method("", "", name, ())
        handle, cls = self._nearcall_handle, self._nearcall_cls
        catalogue = handle.passage.catalogue
        methods = catalogue.methods(cls, self._nearcall_for_loop)
        if name not in methods:
            if name in SERVED:
                raise no_such_method("", "", name, ())
            if name in ("close", "aclose"):
                raise AttributeError(
                    f"{name_of(cls)} has no method '{name}': nearcall.release() lets go of the object, which ends it"
                )
            raise no_such_method(name_of(cls), catalogue.where(handle.references), name, methods)
        plan, method = methods[name]
        if handle.released:
            made: Any = _released(plan.full_name)
        else:
            target = handle.references.target(handle.number, handle)
            made = catalogue.make_callable(target, plan, method, self._nearcall_for_loop)
        self.__dict__[name] = made
        return made

    def __setattr__(self, name: str, value: object) -> None:
        if not name.startswith("_") and name not in dir(self):
            catalogue, references = self._nearcall_handle.passage.catalogue, self._nearcall_handle.references
            raise no_such_attribute(name_of(self._nearcall_cls), catalogue.where(references), name)
        super().__setattr__(name, value)

    def __dir__(self) -> Iterable[str]:
        handle = self._nearcall_handle
        methods = handle.passage.catalogue.methods(self._nearcall_cls, self._nearcall_for_loop)
        return [name for name in methods if name not in SERVED]

    def _nearcall_text(self) -> str:
        """What it calls, as its docstring."""
        plan, for_loop = plan_of(self._nearcall_cls), self._nearcall_for_loop
        return text_of_service(plan.doc, plan.methods, len(plan.methods), for_loop=for_loop)

    def _nearcall_forget(self) -> None:
        """Drops the callables made for an object that was released."""
        for name in [name for name in self.__dict__ if not name.startswith("_nearcall")]:
            self.__dict__.pop(name, None)
        if self._nearcall_for_loop and type(self) is not Reference:
            self._nearcall_make_named()

    def __reduce_ex__(self, _protocol: Any) -> NoReturn:
        raise TypeError(
            "a reference cannot be pickled or copied: it belongs to its connection; "
            "pass it as an argument of a call, or connect where it is needed and get one there"
        )

    if not TYPE_CHECKING:  # a type checker refuses them by itself

        def __enter__(self) -> Any:
            raise no_context_manager(self, "it ends when nothing refers to it, or with nearcall.release()")

        __exit__ = __aenter__ = __aexit__ = __enter__

    def __repr__(self) -> str:
        handle = self._nearcall_handle
        state = "released " if handle.released else "" if handle.references.alive else "lost "
        where = handle.passage.catalogue.where(handle.references)
        return f"<{state}reference to a {name_of(self._nearcall_cls)} at {where}>"


class FunctionReference(Reference):
    """A function at the other end of a connection."""

    def __call__(self, *args: Any) -> Any:
        return getattr(self, CALL)(*args)

    @property
    def __class__(self) -> Any:
        return FunctionReference

    @__class__.setter
    def __class__(self, _cls: Any) -> NoReturn:
        raise TypeError("the class of a reference cannot be changed")

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(getattr(self, CALL))

    def __repr__(self) -> str:
        text = super().__repr__()
        return text.replace(f"a {name_of(self._nearcall_cls)}", show_function(name_of(self._nearcall_cls)))


_kinds: tuple[weakref.WeakKeyDictionary[type, type[Reference]], ...] = (
    weakref.WeakKeyDictionary(),
    weakref.WeakKeyDictionary(),
)
"""The classes of references by those of their services: for threads, and for event loops."""


def reference_to(handle: Handle, cls: type, *, for_loop: bool) -> Reference:
    """A new reference for an object at the other end, as an object of that service."""
    if is_function(cls):
        return FunctionReference(handle, cls, for_loop=for_loop)
    kinds = _kinds[for_loop]
    if (kind := kinds.get(cls)) is None:
        names = (method.name for method in plan_of(cls).methods)
        kind = kinds[cls] = answering(Reference, names, for_loop=for_loop)
    return kind(handle, cls, for_loop=for_loop)


def is_reference(value: object) -> TypeGuard[Reference]:
    """Whether a value is a reference. ``isinstance`` would ask its ``__class__``, which is the service's."""
    return issubclass(type(value), Reference)


def _released(method: str) -> Any:
    def refuse(*_args: Any, **_kwargs: Any) -> NoReturn:
        raise FailedPrecondition(f"{method}(): the reference was released")

    return refuse


def release(reference: object) -> None:
    """Releases an object that was received as a reference: the other end may forget it.

    Calls made later fail with :class:`~nearcall.FailedPrecondition`; those under way go on to their end. Memory does
    not need it: a reference that nothing refers to any more is released by itself. Harmless when repeated, and for an
    object of this process that came back.

    Args:
        reference: The reference that a call returned, or that a handler got.

    Raises:
        TypeError: ``reference`` is none.
    """
    if is_reference(reference):
        reference._nearcall_handle.release()
    elif not is_service(type(reference)):
        raise TypeError(f"{reference!r} is no reference: give what came in the place of a service class")
