"""Whether and how a type can be encoded, found in msgspec's own description of it."""

from __future__ import annotations

import re
import sys
import typing
from collections.abc import Iterator
from typing import Any

from msgspec import inspect as shapes

from ..types.arrays import is_array_type
from ..types.beside import Beside
from ..types.carried import NO_TYPES, CarriedShape, CarriedTypes
from ..types.declared import is_service, service_class
from ..types.hints import type_name
from .construction import construction_of
from .decoders import make_decoder
from .remedies import remedy
from .shape import shape_of, walk

__all__ = ["UnsupportedTypeError", "holds_arrays", "holds_tables", "inspect_type", "runs_code", "services_in"]


_ALIKE = r"Type unions may not contain more than one (?P<kind>.+?) - type (?P<union>.+) is not supported"


class UnsupportedTypeError(TypeError):
    """An annotation that cannot be encoded; the message says why and what to do."""


def inspect_type(annotation: Any, types: CarriedTypes = NO_TYPES) -> shapes.Type:
    """msgspec's description of a type, after making sure that every part of it can be encoded.

    Args:
        annotation: The type.
        types: The classes that travel as another type, besides those that do in the whole process.

    Raises:
        UnsupportedTypeError: some part of the type cannot be encoded.
        NameError: the type refers to a name that does not exist (yet).
    """
    try:
        shape = shape_of(annotation, types)
        make_decoder(annotation)
    except NameError:
        raise
    except Exception as problem:
        raise UnsupportedTypeError(_one_line(problem)) from None
    for node in walk(shape):
        if isinstance(node, shapes.DictType) and (services := services_in(node.key_type)):
            raise UnsupportedTypeError(
                f"{type_name(services[0])} is a service, and a reference to one cannot be the key of a dict: "
                "make it the value"
            )
        if isinstance(node, shapes.NamedTupleType):
            _no_code_inside(node)
        if isinstance(node, CarriedShape) and (services := services_in(node.inner)):
            raise UnsupportedTypeError(
                f"{type_name(node.cls)} travels as {type_name(node.to)}, which holds a reference to "
                f"{type_name(services[0])}: let it travel as data"
            )
        if isinstance(node, CarriedShape) and _holds_itself(node):
            raise UnsupportedTypeError(
                f"{type_name(node.cls)} travels as {type_name(node.to)}, which holds it again: let it travel as a "
                "dataclass, one of whose fields may hold it"
            )
        if isinstance(node, CarriedShape) and (key := _key_as_text(node.inner)) is not None:
            raise UnsupportedTypeError(
                f"within {type_name(node.cls)}, a dict cannot have keys of {type_name(key.cls)}: declare str, and "
                "convert them"
            )
        if isinstance(node, shapes.CustomType):
            service = service_class(node.cls)
            if service is not None:
                _let_instances_be_checked(service)
            elif not is_array_type(_class_of(node)):
                raise UnsupportedTypeError(_advice(node.cls))
        elif isinstance(cls := getattr(node, "cls", None), type) and is_service(cls):
            raise UnsupportedTypeError(
                f"{type_name(cls)} is a service and has fields, and could travel as either: declare an interface that "
                "it implements, whose objects travel as references"
            )
    return shape


def _key_as_text(shape: shapes.Type) -> CarriedShape | None:
    """A class that travels as a text and is the key of a dict in a type. msgspec makes no objects of such keys where it
    converts what was decoded already.
    """
    for node in walk(shape):
        if isinstance(node, shapes.DictType):
            key = node.key_type
            for each in key.types if isinstance(key, shapes.UnionType) else (key,):
                if isinstance(each, CarriedShape) and each.to is str:
                    return each
    return None


def _holds_itself(carried: CarriedShape) -> bool:
    """Whether there is no class with fields between an object and those of its class within it."""
    return any(node is carried for node in walk(carried.inner, within_fields=False))


def runs_code(shape: shapes.Type) -> bool:
    """Whether a type is, or holds, a class whose code runs when its objects are made of their fields."""
    nodes: Iterator[Any] = walk(shape)
    return any(construction_of(node.cls).runs for node in nodes if hasattr(node, "fields"))


def _no_code_inside(named_tuple: shapes.NamedTupleType) -> None:
    for field in named_tuple.fields:
        if runs_code(field.type):
            name = type_name(named_tuple.cls)
            raise UnsupportedTypeError(
                f"{name}.{field.name} has a class that checks its objects when they are made, and a NamedTuple cannot "
                f"hold such an object: make {name} a dataclass"
            )


def services_in(shape: shapes.Type) -> tuple[type, ...]:
    """The service classes that a type names: their objects travel as references."""
    found = [service_class(node.cls) for node in walk(shape) if isinstance(node, shapes.CustomType)]
    return tuple(dict.fromkeys(cls for cls in found if cls is not None))


def _let_instances_be_checked(service: type) -> None:
    # msgspec checks what it decoded with isinstance(), which a Protocol refuses unless it is runtime-checkable.
    if getattr(service, "_is_protocol", False) and not getattr(service, "_is_runtime_protocol", False):
        typing.runtime_checkable(service)


def holds_arrays(shape: shapes.Type) -> bool:
    """Whether values of the type may have buffers beside the message: it names arrays or tables, or it says ``Any``
    somewhere.
    """
    return holds_tables(shape) or any(
        isinstance(node, shapes.AnyType) or (isinstance(node, shapes.CustomType) and service_class(node.cls) is None)
        for node in walk(shape)
    )


def holds_tables(shape: shapes.Type) -> bool:
    """Whether values of the type may have tables in them, whose data lie beside the message."""
    return any(isinstance(node, CarriedShape) and node.bare is Beside for node in walk(shape))


def _class_of(node: shapes.CustomType) -> Any:
    return getattr(node.cls, "__origin__", node.cls)


def _one_line(problem: Exception) -> str:
    text = " ".join(str(problem).replace("`", "").split()) or type(problem).__name__
    if found := re.match(_ALIKE, text):
        return _alike(found["kind"], re.sub(r"\b(?:\w+\.)+(?=\w)", "", found["union"]))
    if "unions containing a custom type" in text:
        kind = text.rpartition(" - type ")[2].removesuffix(" is not supported")
        return f"{kind} may not be a union: beside a service or an array only None may stand; take them as two"
    if isinstance(problem, NotImplementedError) and "2**63" in text:
        return (
            "the ints of an enum, a Literal or a tag are within -2**63 to 2**63 - 1, and one is not: make it a text, "
            "or shorter"
        )
    if text.startswith(("Type 'typing.Self'", "Type 'typing_extensions.Self'")):
        return "Self is not looked up; write the name of the class, in quotes"
    if text == f"Type '{any!r}' is not supported":
        return "any is a function; write Any, from typing"
    return text


def _alike(kind: str, union: str) -> str:
    """Why a union is refused whose members look alike in a message, and what to do."""
    kinds = {
        "str-like": ("as text or bytes", "take one of them, or two parameters of which one is None"),
        "int-like": ("as whole numbers", "take one of them"),
        "array-like": ("as arrays", "take one of them, such as list"),
        "enum": ("by their values", "take one of them, or an enum with the members of both"),
    }
    maps = ("as maps", "make each of them a msgspec.Struct with tag=True, which tells them apart")
    form, advice = next((told for word, told in kinds.items() if word in kind), maps)
    return f"the members of {union} are sent {form}, and could not be told apart: {advice}"


def _advice(cls: Any) -> str:
    name = type_name(cls)
    module: str = getattr(cls, "__module__", "")
    if module in ("collections.abc", "typing") and name.startswith(("Iter", "Async", "Gener")):
        return f"{name} cannot be inside another type: a stream is a whole parameter or the whole result"
    if name == "Callable":
        return "a function needs the types of its parameters and its result: write Callable[[int], str], for example"
    if cls is object:
        return "object cannot be encoded; write Any for a value of any type"
    if module.partition(".")[0] == "numpy":
        return f"numpy's {name} cannot be an annotation; write int, float, bool or str (its values may still be passed)"
    if (instead := remedy(cls)) is not None:
        return f"{name} cannot be encoded; {instead}"
    if module.partition(".")[0] in sys.stdlib_module_names and module != "__main__":
        return f"{name} cannot be encoded; use a type that msgspec supports, such as list, dict or a dataclass"
    return (
        f"{name} cannot be encoded; make it a dataclass, a msgspec.Struct, a TypedDict or a NamedTuple, say as what it "
        f"travels with nearcall.register_type({name}, ...), or make it a service if its objects shall stay where they "
        "are"
    )
