"""The text of a module with interfaces, for ``nearcall stub``, and whether a module that was written before says the
same.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import keyword
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from ..types.shown import shown
from ..types.special import IN_LOOPS

__all__ = [
    "CannotBeWritten",
    "Interface",
    "Method",
    "Parameter",
    "class_name",
    "is_free",
    "module_text",
    "what_differs",
]


class CannotBeWritten(TypeError):
    """Something has no counterpart in a module; the message is one line that says what."""


class Parameter(NamedTuple):
    """A parameter of a method."""

    name: str
    annotation: str
    default: str | None = None
    by_position: bool = True
    by_name: bool = True


class Method(NamedTuple):
    """A method, as its service declares it."""

    name: str
    parameters: Sequence[Parameter]
    stream: str
    """The name of the parameter that is a stream, or nothing; its annotation is that of an item."""
    returns: str
    """The annotation of the result, or of an item of the stream."""
    streams_out: str
    """``"Stream"``; where clients implement it ``"Iterator"`` or ``"Generator"``. Nothing if there is no stream."""
    marks: Sequence[str]
    """``"oneway"`` and the like."""
    doc: str | None


class Interface(NamedTuple):
    """An interface: a class of the module."""

    name: str
    service: str
    bases: Sequence[str]
    """The interfaces that it extends."""
    errors: Sequence[str]
    methods: Sequence[Method]
    doc: str | None


_STANDARD: Final = ("builtins", "collections.abc", "datetime", "decimal", "types", "typing", "uuid")
_INDENT: Final = "    "
_LONGEST: Final = 20_000
"""Characters of a docstring; a server's may be longer."""
_TAKEN: Final = frozenset({"bool", "bytearray", "bytes", "dict", "float", "frozenset", "int", "list", "memoryview"}) | {
    *("object", "set", "str", "tuple", "msgspec", "nearcall", "numpy", "collections", "datetime", "decimal", "typing"),
    *("types", "uuid"),
}
"""Names that annotations need, and that no class may have."""


def class_name(name: str, taken: Iterable[str], prefix: str = "") -> str:
    """A name for a class of the module: like ``name``, and unlike those that are taken.

    Raises:
        CannotBeWritten: it has no letter of which a name could be made.
    """
    base = prefix + "".join(re.findall(r"\w+", name))
    if not base.isidentifier():
        raise CannotBeWritten(f"Python can give no class the name '{shown(name)}'")
    used, found, number = set(taken), base, 2
    while found in used or not is_free(found) or found.startswith("__"):
        found, number = f"{base}{number}", number + 1
    return found


def is_free(name: str) -> bool:
    """Whether a class or a field can have a name without hiding what annotations need."""
    return name.isidentifier() and not keyword.iskeyword(name) and name not in _TAKEN


def module_text(
    source: str,
    modules: Iterable[str],
    classes: Sequence[Sequence[str]],
    interfaces: Sequence[Interface],
    *,
    for_loop: bool,
) -> str:
    """The text of a module.

    Args:
        source: Of what it is made.
        modules: What it imports beside the standard library and nearcall.
        classes: The lines of classes of values.
        interfaces: The interfaces, each after those that it extends.
        for_loop: Whether the interfaces are for clients in event loops, or for threads.
    """
    body: list[str] = []
    for lines in classes:
        body += ["", "", *lines]
    for interface in interfaces:
        body += ["", "", *_interface(interface, for_loop)]
    text = "\n".join(body)
    command = "nearcall stub --async" if for_loop else "nearcall stub"
    lines = [f'"""Made by ``{command}`` of {source}; do not edit."""', "", "from __future__ import annotations", ""]
    lines += [f"import {module}" for module in _STANDARD if f"{module}." in text]
    lines += [""] * (lines[-1] != "")
    others = {*modules, "nearcall", *(["msgspec"] if "msgspec." in text else [])}
    lines += [f"import {module}" for module in sorted(others.difference(_STANDARD))]
    names = [interface.name for interface in interfaces]
    names += [found[1] for lines_of in classes for line in lines_of if (found := re.match(r"class ([^\W_]\w*)", line))]
    lines += ["", "__all__ = [", *(f'    "{name}",' for name in sorted(names)), "]"]
    return "\n".join([*lines, *body]) + "\n"


def _interface(interface: Interface, for_loop: bool) -> Iterator[str]:
    errors = f", errors=[{', '.join(interface.errors)}]" if interface.errors else ""
    yield f'@nearcall.service(name="{interface.service}"{errors})'
    bases = list(interface.bases) or (["nearcall.aio.Interface"] if for_loop else [])
    yield f"class {interface.name}({', '.join([*bases, 'typing.Protocol'])}):"
    doc = list(_docstring(interface.doc, _INDENT))
    yield from doc
    for number, method in enumerate(interface.methods):
        if doc or number:
            yield ""
        yield from _method(_as_python_calls(method, interface.name), for_loop)
    if not doc and not interface.methods:
        yield f"{_INDENT}pass"


_OF_EXIT: Final = (
    Parameter("kind", "type[BaseException] | None"),
    Parameter("error", "BaseException | None"),
    Parameter("traceback", "types.TracebackType | None"),
)


def _as_python_calls(method: Method, interface: str) -> Method:
    """The method as a ``with`` calls it."""
    if method.name == "__enter__" and method.returns == "None":
        return method._replace(returns=interface)
    return method._replace(parameters=_OF_EXIT) if method.name == "__exit__" else method


def _method(method: Method, for_loop: bool) -> Iterator[str]:
    yield from (f"{_INDENT}@nearcall.{mark}" for mark in method.marks)
    parts = ["self"]
    for place, parameter in enumerate(method.parameters):
        following = method.parameters[place + 1 : place + 2]
        if not parameter.by_position and (place == 0 or method.parameters[place - 1].by_position):
            parts.append("*")
        annotation = parameter.annotation
        if parameter.name == method.stream:
            annotation = f"collections.abc.Iterable[{annotation}]"
            annotation = f"collections.abc.Async{annotation[16:]} | {annotation}" if for_loop else annotation
        default = "" if parameter.default is None else f" = {parameter.default}"
        parts.append(f"{parameter.name}: {annotation}{default}")
        if not parameter.by_name and (not following or following[0].by_name):
            parts.append("/")
    returns = method.returns
    if method.streams_out:
        returns = _stream(method.streams_out, returns, for_loop)
    defined = "async def" if for_loop and not method.streams_out else "def"
    doc = list(_docstring(method.doc, _INDENT * 2))
    name = IN_LOOPS.get(method.name, method.name) if for_loop else method.name
    yield f"{_INDENT}{defined} {name}({', '.join(parts)}) -> {returns}:{'' if doc else ' ...'}"
    if doc:
        yield from (*doc, f"{_INDENT * 2}...")


def _stream(kind: str, item: str, for_loop: bool) -> str:
    """The annotation of a stream from the server."""
    if kind == "Stream":
        return f"nearcall.{'aio.AsyncStream' if for_loop else 'Stream'}[{item}]"
    sent = "" if kind == "Iterator" else ", None" if for_loop else ", None, None"
    return f"collections.abc.{'Async' if for_loop else ''}{kind}[{item}{sent}]"


def _docstring(doc: str | None, indent: str) -> Iterator[str]:
    """The lines of a docstring; a server may have written it."""
    text = shown(inspect.cleandoc(doc or ""), _LONGEST, keep="\n\t").replace("\\", "\\\\").replace('"""', "'''").strip()
    if not text:
        return
    lines = (text + " " if text.endswith('"') else text).splitlines()
    if len(lines) == 1:
        yield f'{indent}"""{lines[0]}"""'
        return
    yield f'{indent}"""{lines[0]}'
    yield from (f"{indent}{line}".rstrip() for line in lines[1:])
    yield f'{indent}"""'


def what_differs(written: str, now: str, name: str) -> list[str]:
    """The lines in which a module differs from what would be written now. How it is laid out, in what order it imports,
    what its comments are and by what name its source was given does not count.

    Args:
        written: The module's text.
        now: What would be written.
        name: The module's file, for the lines.
    """
    try:
        before = _plain(written)
    except (SyntaxError, ValueError) as error:
        raise CannotBeWritten(f"{name} is no module of Python: {error}") from None
    return list(difflib.unified_diff(before, _plain(now), name, "what the service says now", n=1, lineterm=""))


def _plain(text: str) -> list[str]:
    body = ast.parse(text).body
    imports = [each for each in body if isinstance(each, ast.Import)]
    others = [each for each in body if not isinstance(each, (ast.Import, ast.Expr))]
    names = sorted(f"import {alias.name}" for each in imports for alias in each.names)
    return [*names, *(line for each in others for line in ast.unparse(each).splitlines())]
