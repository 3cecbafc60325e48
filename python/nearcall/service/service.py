"""``@nearcall.service``: which of a class's methods are served, and how."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FunctionType
from typing import Any, TypeVar, cast, overload
from weakref import WeakKeyDictionary

import msgspec

from ..options.names import check_names
from ..types import special
from ..types.carried import CarriedType, CarriedTypes
from ..types.declared import DESCRIBED_PLAN, Declared, Instance, declared, is_function, is_service, name_of, root_of
from ..types.functions import is_function_name
from ..types.registered import types_by_class
from ..types.schema import SchemaBuilder
from .agreement import Sides, method_findings
from .describing import method_info
from .for_loops import is_for_loops
from .plan import MethodPlan, ServicePlan
from .signature import (
    IDEMPOTENT_MARK,
    NO_SIDE_EFFECTS_MARK,
    ONEWAY_MARK,
    ReadMethod,
    method_plan,
    method_types,
    read_method,
)
from .special import read_special

__all__ = [
    "declared_above",
    "declared_methods",
    "idempotent",
    "is_service",
    "no_side_effects",
    "oneway",
    "plan_of",
    "plan_of_all",
    "service",
]

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])

_NAME = r"(?a)[A-Za-z_]\w*(\.[A-Za-z_]\w*)*"
_IDENTIFIER = r"[^\W\d]\w*"


_plans: WeakKeyDictionary[type, ServicePlan] = WeakKeyDictionary()


@overload
def service(cls: type[T], /) -> type[T]: ...
@overload
def service(
    *,
    name: str | None = None,
    errors: Sequence[type[Exception]] = (),
    instance: Instance | None = None,
    types: Sequence[CarriedType] = (),
) -> Callable[[type[T]], type[T]]: ...
def service(
    cls: type[T] | None = None,
    /,
    *,
    name: str | None = None,
    errors: Sequence[type[Exception]] = (),
    instance: Instance | None = None,
    types: Sequence[CarriedType] = (),
    **unknown: object,
) -> type[T] | Callable[[type[T]], type[T]]:
    """Declares a class a service: the public methods written in its body can be called from other processes.

    Methods inherited from an ordinary class are not served, nor are names that begin with an underscore, properties,
    static methods and class methods. Of those that Python calls itself, ``__len__``, ``__iter__``, ``__call__`` and the
    like are served, and others refused. Every parameter and every result needs a type annotation. An annotation of
    ``Iterator[T]`` (or ``Iterable``, ``AsyncIterator``, ...) makes a stream; a method can be an ordinary function, a
    generator, ``async def`` or an asynchronous generator.

    The class can also be an interface, with ``...`` for bodies or a ``Protocol``. A subclass implements it, and is
    served under the interface's name; it may leave out annotations, and if it is decorated as well, its own public
    methods are served beside the interface's.

    The annotations are examined at once. Only if one of them names something that is defined further down in the
    module, they are examined when the service is first used.

    Args:
        cls: The class, when the decorator is written without parentheses.
        name: The service's name; the class's own if not given. Letters, digits, underscores and dots.
        errors: Exception classes of the application that arrive at the caller as themselves, and their subclasses as
            the nearest of them: with their arguments and attributes, as far as these can be encoded, as plain data.
        instance: Which object answers a client. ``"server"``: the object that is served, for all clients.
            ``"session"``: an object of each client's own, which the server makes at the first call and drops with the
            connection; serve the class then. Its ``close`` or ``aclose`` is no method for clients: the server calls it
            at the end. ``None``: as the service that the class derives from says, and ``"server"`` if it derives from
            none.
        types: Classes whose objects travel as another type in this service, besides those of :func:`register_type`.
        unknown: There are no other options; an error says which was meant.

    Raises:
        TypeError: the class cannot be served; the message names the method, the annotation and what to do.
        ValueError: the name is malformed, or ``instance`` is none of these.
    """
    # Names local to the function in which the class is defined can appear in annotations, too.
    caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    check_names(unknown, ("name", "errors", "instance", "types"))
    scope = {} if caller.f_code.co_name == "<module>" else caller.f_locals
    if isinstance(cast(object, errors), type):
        raise TypeError(f"errors takes a list of exception classes: write errors=[{cast(type, errors).__name__}]")
    if not isinstance(cast(object, errors), (list, tuple)):
        raise TypeError(f"errors takes a list of exception classes, not {errors!r}")
    for error in cast("Sequence[object]", errors):
        if not (isinstance(error, type) and issubclass(error, Exception)):
            raise TypeError(f"errors: {error!r} is not an exception class")
    if name is not None and not isinstance(cast(object, name), str):
        raise TypeError(f"name must be a str, not {name!r}")
    if name is not None and not re.fullmatch(_NAME, name):
        raise ValueError(f"'{name}' is not a service name: write letters, digits, underscores and dots")
    if name is not None and is_function_name(name):
        raise ValueError(f"'{name}' cannot be the name of a service: such names are those of functions that are passed")
    if instance not in (None, "server", "session"):
        raise ValueError(f"instance must be 'server' or 'session', not {instance!r}")

    own_types = types_by_class(types)

    def declare(target: type[T]) -> type[T]:
        if not isinstance(target, type):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"@nearcall.service decorates a class, not {_shown(target)}")
        declared[target] = Declared(name, tuple(errors), instance, _mentioned(target, scope), own_types)
        try:
            _plans[target] = _build(target)
        except NameError:
            pass  # defined later, perhaps; plan_of() tries again
        except BaseException:
            del declared[target]
            raise
        return target

    return declare if cls is None else declare(cls)


def _shown(target: object) -> str:
    return f"{target!r}; write @nearcall.service(name={target!r})" if isinstance(target, str) else repr(target)


def _marked(decorator: str, method: Any, *marks: str) -> Any:
    """The method with its marks; without a method, what marks one: the decorator was written with brackets."""

    def mark(method: Any) -> Any:
        if not callable(method):
            raise TypeError(f"@nearcall.{decorator} decorates a method, not {method!r}: write it right above 'def'")
        for each in marks:
            setattr(method, each, True)
        return method

    return mark if method is None else mark(method)


@overload
def oneway(method: F) -> F: ...
@overload
def oneway() -> Callable[[F], F]: ...
def oneway(method: Any = None) -> Any:
    """Marks a method as one-way: the call returns when it is sent, and nothing comes back, not even an error.

    The method's result must be annotated ``-> None``. ``@nearcall.oneway()`` is the same.
    """
    return _marked("oneway", method, ONEWAY_MARK)


@overload
def idempotent(method: F) -> F: ...
@overload
def idempotent() -> Callable[[F], F]: ...
def idempotent(method: Any = None) -> Any:
    """Marks a method that may be called twice with the effect of once, so that a broken call can be repeated.

    Calls with streams are not repeated, since items have come or gone by then. For them the mark says so only to
    others: it is the ``idempotency_level`` of a ``.proto`` file.
    """
    return _marked("idempotent", method, IDEMPOTENT_MARK)


@overload
def no_side_effects(method: F) -> F: ...
@overload
def no_side_effects() -> Callable[[F], F]: ...
def no_side_effects(method: Any = None) -> Any:
    """Marks a method that changes nothing: it is :func:`idempotent`, and at ``http://`` URLs it can be called by GET.

    Anything that follows links may call such a method, such as a browser without asking, and caches may keep answers.
    """
    return _marked("no_side_effects", method, NO_SIDE_EFFECTS_MARK, IDEMPOTENT_MARK)


def plan_of(cls: type) -> ServicePlan:
    """The plan of a service class, or of a class that implements one; worked out once per class.

    Raises:
        TypeError: the class is no service, implements several, or cannot be served.
    """
    plan = _plans.get(cls)
    if plan is None and (described := cls.__dict__.get(DESCRIBED_PLAN)) is not None:
        plan = described()
    if plan is None:
        try:
            plan = _plans[cls] = _build(cls)
        except NameError as problem:
            missing = problem.name or str(problem)
            raise TypeError(
                f"{cls.__name__}: an annotation names '{missing}', which does not exist; "
                "define it in the module, or import it there (not only under TYPE_CHECKING)"
            ) from None
    return plan


def plan_of_all(classes: Sequence[type]) -> ServicePlan:
    """One plan for objects of several classes of one service, with each method as the class that introduced it declares
    it. Such classes are an interface, a class that adds methods to it, and a class that implements it.

    Raises:
        TypeError: one of the classes cannot be served, or two of them introduce a method of the same name.
    """
    plans = [plan_of(cls) for cls in classes]
    if len(classes) == 1:
        return plans[0]
    name, builder = plans[0].name, SchemaBuilder({each: how for cls in classes for each, how in _types(cls).items()})
    owners: dict[str, type] = {}
    for cls, plan in zip(classes, plans, strict=True):
        introduced = _methods_of(cls, declared_above(cls))
        for method in plan.methods:
            owner = introduced[method.name]
            if (other := owners.setdefault(method.name, owner)) is not owner:
                raise TypeError(
                    f"{method.full_name}() is declared by {other.__name__} and by {owner.__name__}, and objects of "
                    f"both are passed as {name}: name one with service(name=...)"
                )
    methods = [method_plan(_read(name, method, owner), builder) for method, owner in owners.items()]
    return ServicePlan(
        name=name,
        methods=tuple(methods),
        doc=plan_of(root_of(classes[0])).doc,
        types=builder.types,
        errors=tuple(dict.fromkeys(error for plan in plans for error in plan.errors)),
        instance=plans[0].instance,
    )


def declared_above(cls: type) -> list[type]:
    """The class and its bases, as far as they are decorated, beginning with the one that gives the service its name."""
    return [base for base in reversed(cls.__mro__) if base in declared]


def _types(cls: type) -> CarriedTypes:
    """The classes that travel as another type in a service."""
    return {each: how for base in declared_above(cls) for each, how in declared[base].types.items()}


def _build(cls: type) -> ServicePlan:
    root, name = root_of(cls), name_of(cls)
    above = declared_above(cls)
    instance = _instance(above)
    builder = SchemaBuilder(_types(cls))
    methods: list[MethodPlan] = []
    for owner, written in declared_methods(cls):
        method = written.name
        if is_for_loops(owner) and not written.is_async:
            raise TypeError(
                f"{name}.{method}() is for threads, but {owner.__name__} is a nearcall.aio.Interface: write "
                "'async def', or AsyncIterator in place of Iterator"
            )
        plan = method_plan(written, builder)
        implementer = next(base for base in cls.__mro__ if special.attribute(base, method) in base.__dict__)
        if implementer is not owner:
            plan = _implementation(plan, written, implementer, builder)
        for passed in (*plan.takes, *plan.gives):
            if is_function(passed):
                plan_of(passed)  # now rather than at the first call: its types may not be ones that can be sent
        methods.append(plan)
    if not methods:
        others = [
            key
            for key, value in vars(cls).items()
            if not key.startswith("_") and isinstance(value, (classmethod, staticmethod, property))
        ]
        if others:
            kind = "a property" if isinstance(vars(cls)[others[0]], property) else "a class or static method"
            why = f"'{others[0]}' is {kind}, which is not served: make it an ordinary method"
        else:
            why = "write some, or remove @nearcall.service"
        raise TypeError(f"{cls.__name__} has no public methods to serve; {why}")
    doc = next((base.__doc__ for base in (cls, root) if base.__dict__.get("__doc__")), None)
    errors = tuple(dict.fromkeys(error for base in above for error in declared[base].errors))
    for error in errors:
        if [other.__name__ for other in errors].count(error.__name__) > 1:
            raise TypeError(f"{cls.__name__}: two of its errors are called {error.__name__}; rename one")
    return ServicePlan(
        name=name,
        methods=tuple(methods),
        doc=inspect.cleandoc(doc) if doc else None,
        types=builder.types,
        errors=errors,
        instance=instance,
    )


def declared_methods(cls: type) -> Iterator[tuple[type, ReadMethod]]:
    """The served methods in the order written, each with the declared class that introduced it.

    Raises:
        TypeError: a method cannot be served; the message says why and what to do.
        NameError: an annotation names something that does not exist (yet).
    """
    above = declared_above(cls)
    name, per_session = name_of(cls), _instance(above) == "session"
    for method, owner in _methods_of(cls, above).items():
        if per_session and method in ("close", "aclose"):
            continue  # the server calls these at the object's end, and clients may not
        yield owner, _read(name, method, owner)


def _instance(above: list[type]) -> Instance:
    given: list[Instance] = [each for base in above if (each := declared[base].instance) is not None]
    return given[-1] if given else "server"


def _methods_of(cls: type, above: list[type]) -> dict[str, type]:
    """The served methods in the order written, each with the declared class that introduced it."""
    methods: dict[str, type] = {}
    for base in above:
        for written, value in base.__dict__.items():
            if not _is_method(value):
                continue
            special.refuse(base, written, value)
            name = written if not written.startswith("_") else special.name_served(written)
            if name is None or methods.setdefault(name, base) is not base:
                continue
            if written != special.attribute(base, name):
                raise TypeError(f"{base.__name__} has both {name}() and {written}(), and either serves all: write one")
        for one, other in (("__enter__", "__exit__"), ("__exit__", "__enter__")):
            if one in methods and other not in methods:
                raise TypeError(f"{base.__name__} has {one}() without {other}(), and 'with' calls both: write it, too")
    return methods


def _read(service: str, name: str, owner: type, interface: ReadMethod | None = None) -> ReadMethod:
    """A method as a class has written it."""
    function, namespace = owner.__dict__[special.attribute(owner, name)], _namespace(owner)
    if name not in special.SERVED:
        return read_method(service, name, function, namespace, interface)
    try:
        return read_special(service, name, function, namespace, interface, owner)
    except TypeError as problem:
        derive = f"write it in a class that derives from {owner.__name__}"
        raise TypeError(f"{problem}. If only this process is to have {name}(), {derive}") from None


def _is_method(value: Any) -> bool:
    if isinstance(value, FunctionType):
        return True
    if isinstance(value, (staticmethod, classmethod, type)) or not callable(value):
        return False
    # functools.lru_cache and the like
    return isinstance(getattr(cast(Any, value), "__wrapped__", None), FunctionType)


def _implementation(interface: MethodPlan, written: ReadMethod, owner: type, builder: SchemaBuilder) -> MethodPlan:
    """The plan of a method that overrides an interface's."""
    if not _is_method(owner.__dict__[special.attribute(owner, interface.name)]):
        raise TypeError(f"{owner.__name__}.{interface.name} is not a method, but {interface.full_name} is")
    read = _read(owner.__name__, interface.name, owner, written)
    plan = method_plan(read._replace(service=interface.service), builder)
    sides = Sides("the interface's", f"{owner.__name__}'s")
    ours, theirs = method_info(interface), method_info(plan)
    for finding in method_findings(interface.service, ours, builder.types, theirs, builder.types, sides):
        raise TypeError(f"{owner.__name__}.{interface.name}() differs from its interface: {finding.text}")
    # Codecs must work out the same coding on both sides, and clients only know the interface.
    return msgspec.structs.replace(plan, types=method_types(written, builder, read))


def _mentioned(cls: type, scope: Mapping[str, Any]) -> dict[str, Any]:
    """The names of a function's scope that the annotations in a class mention. Keeping the whole scope would keep its
    values alive.
    """
    functions = [value for value in cls.__dict__.values() if isinstance(value, FunctionType)]
    try:
        text = " ".join(str(annotation) for function in functions for annotation in function.__annotations__.values())
    except NameError:  # Python 3.14 evaluates late, and finds local names by itself
        return {}
    return {name: scope[name] for name in set(re.findall(_IDENTIFIER, text)) if name in scope}


def _namespace(cls: type) -> dict[str, Any]:
    """Names that annotations in a class may use beside the module's."""
    known = declared.get(cls)
    # Of the class's own names only the types: a method called list must not hide the builtin.
    nested = {name: value for name, value in cls.__dict__.items() if isinstance(value, type)}
    generic = {parameter.__name__: parameter for parameter in getattr(cls, "__type_params__", ())}
    return {**(known.namespace if known is not None else {}), **generic, **nested, cls.__name__: cls}
