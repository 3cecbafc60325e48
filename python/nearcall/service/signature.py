"""From a function's signature to the plan of a method."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from types import CellType, FunctionType
from typing import Any, NamedTuple, TypeVar, get_args, get_origin

from ..codec.inspection import UnsupportedTypeError
from ..codec.protocol import MethodTypes, ParameterType, ValueType
from ..types.functions import full_name
from ..types.hints import awaited, resolve, stream_of, type_name
from ..types.schema import SchemaBuilder
from .binding import POSITIONAL_KINDS
from .depends import Dependency
from .making import make_method
from .plan import BIDI_STREAM, CLIENT_STREAM, ONEWAY, SERVER_STREAM, UNARY, MethodPlan, Slot
from .values import value_type

__all__ = [
    "IDEMPOTENT_MARK",
    "ONEWAY_MARK",
    "ReadMethod",
    "method_plan",
    "method_types",
    "read_method",
]

ONEWAY_MARK = "__nearcall_oneway__"
"""The attribute that ``@nearcall.oneway`` sets on a function."""
IDEMPOTENT_MARK = "__nearcall_idempotent__"
"""The attribute that ``@nearcall.idempotent`` sets on a function."""
NO_SIDE_EFFECTS_MARK = "__nearcall_no_side_effects__"
"""The attribute that ``@nearcall.no_side_effects`` sets on a function."""


_LISTS = (list, set, frozenset, Sequence, Collection)
"""Annotations that are mistaken for the result of a generator."""


class ReadMethod(NamedTuple):
    """A method as its function declares it, before its types are worked out."""

    service: str
    name: str
    parameters: tuple[inspect.Parameter, ...]
    """The parameters without ``self``, with annotations resolved."""
    returns: Any
    is_async: bool
    oneway: bool
    idempotent: bool
    no_side_effects: bool
    doc: str | None
    dependencies: tuple[tuple[str, Dependency], ...] = ()
    """Parameters that the server fills in."""

    @property
    def full_name(self) -> str:
        """``"Calculator.add"``."""
        return full_name(self.service, self.name)


def read_method(
    service: str, name: str, function: Callable[..., Any], namespace: Mapping[str, Any], interface: ReadMethod | None
) -> ReadMethod:
    """Reads a function's signature.

    Args:
        service: The service's name, for messages.
        name: The method's name.
        function: The function as found in the class.
        namespace: Names that annotations may use beside the module's.
        interface: The method of the interface that this one implements. It gives the annotations that are missing here,
            and its parameters are those that are served.

    Raises:
        TypeError: the signature is not one that can be served; the message says why and what to do.
        NameError: an annotation names something that does not exist (yet).
    """
    where = f"{service}.{name}()"
    hints = resolve(function, namespace)
    written = list(inspect.signature(function).parameters.values())
    _check_decorated(where, name, function, written, hints)
    if not written or written[0].kind not in POSITIONAL_KINDS:
        raise TypeError(f"{where}: has no self parameter; make it a method, or begin its name with an underscore")
    first = written[0]
    if first.name != "self" and not _stands_for_itself(hints.get(first.name)):
        shown = f"{first.name}: {type_name(hints[first.name])}"
        raise TypeError(f"{where}: its first parameter, '{shown}', would be the object itself; write self before it")
    parameters: list[inspect.Parameter] = []
    dependencies: list[tuple[str, Dependency]] = []
    borrowed = {} if interface is None else {parameter.name: parameter for parameter in interface.parameters}
    for parameter in written[1:]:
        if parameter.kind in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD):
            stars = "*" if parameter.kind is inspect.Parameter.VAR_POSITIONAL else "**"
            raise TypeError(
                f"{where}: parameter '{stars}{parameter.name}' cannot be served; list the parameters one by one"
            )
        if isinstance(parameter.default, Dependency):
            _check_dependency(where, parameter, written[1:], borrowed)
            dependencies.append((parameter.name, parameter.default))
            continue
        if interface is not None and parameter.name not in borrowed:
            if parameter.default is inspect.Parameter.empty:
                raise TypeError(
                    f"{where}: parameter '{parameter.name}' is not in the interface {interface.full_name}(); "
                    "give it a default or remove it"
                )
            continue  # callers do not see it
        parameters.append(_complete(where, parameter, hints, borrowed.get(parameter.name)))
    returns = hints.get("return", inspect.Parameter.empty)
    if returns is inspect.Parameter.empty:
        if interface is None:
            raise TypeError(f"{where}: has no return annotation; write '-> None' if it returns nothing")
        returns = interface.returns
    unwrapped = awaited(returns)
    method = ReadMethod(
        service=service,
        name=name,
        parameters=tuple(parameters),
        returns=_none_type(returns if unwrapped is None else unwrapped),
        is_async=_is_async(function, hints.get("return")),
        oneway=hasattr(function, ONEWAY_MARK) or (interface is not None and interface.oneway),
        idempotent=hasattr(function, IDEMPOTENT_MARK) or (interface is not None and interface.idempotent),
        no_side_effects=hasattr(function, NO_SIDE_EFFECTS_MARK)
        or (interface is not None and interface.no_side_effects),
        doc=inspect.cleandoc(function.__doc__) if function.__doc__ else None,
        dependencies=tuple(dependencies),
    )
    _check_streams(method, function, own_hints=hints)
    if interface is not None:
        _check_order(where, method, interface, written[1:])
    return method


def method_plan(method: ReadMethod, builder: SchemaBuilder) -> MethodPlan:
    """The plan of a method that was read.

    Args:
        method: The method, from :func:`read_method`.
        builder: Collects the types of the service.

    Raises:
        TypeError: an annotation cannot be encoded; the message says which and what to do.
        NameError: a type refers to a name that does not exist (yet).
    """
    types = method_types(method, builder)
    slots = [
        Slot(
            parameter.name,
            by_position=parameter.kind in POSITIONAL_KINDS,
            by_name=parameter.kind is not inspect.Parameter.POSITIONAL_ONLY,
            required=parameter.default is inspect.Parameter.empty,
        )
        for parameter in method.parameters
    ]
    return make_method(
        method.service,
        types,
        kind=_kind(types),
        slots=slots,
        signature=_signature(method),
        idempotent=method.idempotent,
        dependencies=method.dependencies,
    )


def method_types(method: ReadMethod, builder: SchemaBuilder, handler: ReadMethod | None = None) -> MethodTypes:
    """The types of a method. ``handler`` implements the method and gives the defaults that the interface leaves open.

    Raises:
        TypeError, NameError: as :func:`method_plan`.
    """
    handlers = {parameter.name: parameter for parameter in (handler or method).parameters}
    parameters: list[ParameterType] = []
    stream: ParameterType | None = None
    for parameter in method.parameters:
        fallback = handlers[parameter.name].default if parameter.name in handlers else ...
        required = parameter.default is inspect.Parameter.empty
        streamed = stream_of(parameter.annotation)
        what = f"parameter '{parameter.name}: {type_name(parameter.annotation)}'"
        type_ = _type(method, what, parameter.annotation if streamed is None else streamed.item, builder)
        found = ParameterType(parameter.name, type_, required, parameter.default, fallback)
        if streamed is None:
            parameters.append(found)
        else:
            stream = found
    returned = stream_of(method.returns)
    what = f"the result '{type_name(method.returns)}'"
    return MethodTypes(
        name=method.name,
        parameters=tuple(parameters),
        stream=stream,
        result=_type(method, what, method.returns if returned is None else returned.item, builder),
        streams_out=returned is not None,
        oneway=method.oneway,
        doc=method.doc,
        no_side_effects=method.no_side_effects,
        in_loop=method.is_async,
    )


def _complete(
    where: str, parameter: inspect.Parameter, hints: Mapping[str, Any], interface: inspect.Parameter | None
) -> inspect.Parameter:
    """A parameter with its annotation resolved, or taken from the interface."""
    annotation = hints.get(parameter.name, inspect.Parameter.empty)
    default = parameter.default
    if interface is not None:
        if annotation is inspect.Parameter.empty:
            annotation = interface.annotation
        if default is inspect.Parameter.empty:
            default = interface.default  # callers rely on it
    if annotation is inspect.Parameter.empty:
        raise TypeError(
            f"{where}: parameter '{parameter.name}' has no type annotation; write one (Any takes every value)"
        )
    return inspect.Parameter(parameter.name, parameter.kind, default=default, annotation=_none_type(annotation))


def _check_decorated(
    where: str, name: str, function: Callable[..., Any], written: Sequence[inspect.Parameter], hints: Mapping[str, Any]
) -> None:
    """A decorator without ``functools.wraps`` hides the method's own parameters."""
    place, _, inner = getattr(function, "__qualname__", "").rpartition(".")
    if not place.endswith("<locals>") or not _surrounds(function, name):
        return
    stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    if any(each.kind in stars for each in written) or any(each.name not in hints for each in written[1:]):
        decorator = place.removesuffix(".<locals>").rpartition(".")[2]
        raise TypeError(
            f"{where}: the decorator '{decorator}' has put '{inner}' in its place, which hides its parameters: write "
            f"@functools.wraps(function) right above 'def {inner}' in '{decorator}'"
        )


def _surrounds(function: Any, name: str, depth: int = 5) -> bool:
    """Whether a function holds one of that name, as a decorator's does; ``depth``: so many decorators at most."""
    cells: Sequence[CellType] = getattr(function, "__closure__", None) or ()
    for cell in cells:
        try:
            inner = cell.cell_contents
        except ValueError:  # nothing is in it yet
            continue
        if isinstance(inner, FunctionType) and (
            inner.__name__ == name or (depth > 1 and _surrounds(inner, name, depth - 1))
        ):
            return True
    return False


def _check_dependency(
    where: str,
    parameter: inspect.Parameter,
    written: Sequence[inspect.Parameter],
    borrowed: Mapping[str, inspect.Parameter],
) -> None:
    """Handlers are called by position, and dependencies are added by name."""
    name = parameter.name
    if name in borrowed:
        raise TypeError(f"{where}: '{name}' is given by callers of the interface; a dependency needs another name")
    after = [
        other.name
        for other in written[written.index(parameter) :]
        if other.kind in POSITIONAL_KINDS and not isinstance(other.default, Dependency)
    ]
    if parameter.kind is inspect.Parameter.POSITIONAL_ONLY or after:
        raise TypeError(f"{where}: the dependency '{name}' must come after what callers give: write it behind a '*'")


def _stands_for_itself(annotation: Any) -> bool:
    """Whether a first parameter of another name than ``self`` may still be the object itself."""
    return annotation is None or isinstance(annotation, TypeVar) or type_name(annotation) == "Self"


def _none_type(annotation: Any) -> Any:
    return None if annotation is type(None) else annotation


def _is_async(function: Callable[..., Any], returns: Any) -> bool:
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return True
    stream = stream_of(returns)
    return awaited(returns) is not None or (stream is not None and stream.is_async)


def _check_streams(method: ReadMethod, function: Callable[..., Any], own_hints: Mapping[str, Any]) -> None:
    where = f"{method.full_name}()"
    streams = [
        (parameter, stream)
        for parameter in method.parameters
        if (stream := stream_of(parameter.annotation)) is not None
    ]
    if len(streams) > 1:
        names = " and ".join(f"'{parameter.name}'" for parameter, _ in streams)
        raise TypeError(f"{where}: parameters {names} are both streams, and a method can have one; make one a list")
    for parameter, stream in streams:
        if parameter.default is not inspect.Parameter.empty:
            raise TypeError(f"{where}: the stream '{parameter.name}' cannot have a default; remove it")
        if stream.is_async != method.is_async and parameter.name in own_hints:
            wanted = "AsyncIterator" if method.is_async else "Iterator"
            kind = "asynchronous" if method.is_async else "synchronous"
            raise TypeError(
                f"{where}: the method is {kind}, so its stream must be "
                f"'{parameter.name}: {wanted}[{type_name(stream.item)}]'"
            )
    returned = stream_of(method.returns)
    if returned is None and (inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function)):
        wanted = "AsyncIterator" if method.is_async else "Iterator"
        name, item = type_name(method.returns), type_name(_item_of(method.returns))
        raise TypeError(f"{where}: yields, so its result must be annotated '-> {wanted}[{item}]', not '-> {name}'")
    if returned is not None and returned.is_async and inspect.isgeneratorfunction(function):
        raise TypeError(
            f"{where}: is 'def' and yields, so it is no asynchronous iterator; write 'async def', or annotate it "
            f"'-> Iterator[{type_name(returned.item)}]'"
        )
    if returned is not None and inspect.iscoroutinefunction(function):
        raise TypeError(
            f"{where}: is 'async def' and does not yield, so it is no stream; yield the items, "
            "or write 'def' if it returns an iterator or only declares an interface"
        )
    if method.oneway and streams:
        raise TypeError(f"{where}: a one-way method cannot take a stream; drop @nearcall.oneway")
    if method.oneway and method.returns is not None:
        name = type_name(method.returns)
        raise TypeError(
            f"{where}: a one-way method returns nothing, not '{name}'; annotate '-> None' or drop @nearcall.oneway"
        )


def _item_of(annotation: Any) -> Any:
    """The type of the items of a generator that was annotated as if it returned a list."""
    arguments = get_args(annotation)
    return arguments[0] if get_origin(annotation) in _LISTS and arguments else annotation


def _check_order(where: str, method: ReadMethod, interface: ReadMethod, written: list[inspect.Parameter]) -> None:
    names = [parameter.name for parameter in method.parameters]
    wanted = [parameter.name for parameter in interface.parameters]
    # Handlers are called by position, so the handler's own parameters must not come between the interface's.
    leading = [parameter.name for parameter in written if parameter.kind in POSITIONAL_KINDS]
    by_position = [parameter.name for parameter in method.parameters if parameter.kind in POSITIONAL_KINDS]
    if names != wanted or leading[: len(by_position)] != by_position:
        raise TypeError(
            f"{where}: its parameters ({', '.join(parameter.name for parameter in written)}) "
            f"differ from the interface {interface.full_name}"
            f"({', '.join(wanted)}); give it the same ones in the same order"
        )


def _type(method: ReadMethod, what: str, annotation: Any, builder: SchemaBuilder) -> ValueType:
    try:
        return value_type(annotation, builder)
    except UnsupportedTypeError as problem:
        raise TypeError(f"{method.full_name}(): {what} cannot be sent: {problem}") from None


def _kind(types: MethodTypes) -> str:
    if types.oneway and types.result.annotation is None:
        return ONEWAY
    if types.stream is not None:
        return BIDI_STREAM if types.streams_out else CLIENT_STREAM
    return SERVER_STREAM if types.streams_out else UNARY


def _signature(method: ReadMethod) -> str:
    """``add(a: int, b: int = ...) -> int``, with the marks for positional-only and keyword-only parameters."""
    shown: list[str] = []
    kinds = [parameter.kind for parameter in method.parameters]
    for index, parameter in enumerate(method.parameters):
        kind = parameter.kind
        if kind is inspect.Parameter.KEYWORD_ONLY and inspect.Parameter.KEYWORD_ONLY not in kinds[:index]:
            shown.append("*")
        default = "" if parameter.default is inspect.Parameter.empty else " = ..."
        shown.append(f"{parameter.name}: {type_name(parameter.annotation)}{default}")
        if kind is inspect.Parameter.POSITIONAL_ONLY and kinds[index + 1 : index + 2] != [kind]:
            shown.append("/")
    return f"{method.name}({', '.join(shown)}) -> {type_name(method.returns)}"
