"""Reads a module's stub or source, without running it, and finds what can be called from another process."""

from __future__ import annotations

import ast
import builtins
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

__all__ = [
    "Attribute",
    "Class",
    "Copied",
    "Function",
    "LeftOut",
    "Module",
    "Parameter",
    "Point",
    "Shared",
    "Variable",
    "locate",
    "read_module",
]

_KINDS = ("action", "filter", "decider", "accumulating_decider", "chain")
_VALUES = {"NamedTuple", "TypedDict", "Struct", "Enum", "IntEnum", "StrEnum", "Flag", "IntFlag"}
_MAPPINGS = {"MutableMapping", "Mapping", "dict", "Dict"}
_NOT_SENT = {"Callable", "Generator", "IO", "ModuleType", "TextIO", "BinaryIO", "Type", "object", "type"}
_SIDES = ("at_host", "at_plugin")
_TAKEN = {"self", "_host", "_module"}
"""Names that the generated code uses."""
_WORD = re.compile(r"[A-Za-z_]\w*")


class Parameter(NamedTuple):
    """One parameter of a function, as written."""

    name: str
    type: str
    default: str
    """The default as written; empty if there is none."""
    kind: str
    """``"positional"``, ``"any"`` or ``"named"``."""


class Function(NamedTuple):
    """A function."""

    name: str
    parameters: tuple[Parameter, ...]
    returns: str
    doc: str


class Point(NamedTuple):
    """An extension point: a function whose decorator tells the kind."""

    kind: str
    options: str
    """The decorator's arguments, as written."""
    function: Function


class Variable(NamedTuple):
    """A variable of the module."""

    name: str
    type: str


class Shared(NamedTuple):
    """A variable that is a mapping."""

    name: str
    value: str
    """The type of its values."""
    depth: int
    """How many mappings are inside each other."""


class Copied(NamedTuple):
    """Something without behaviour, which is the same on both sides: a class of values, a constant, an alias."""

    name: str
    text: str


class Attribute(NamedTuple):
    """An attribute of a class's objects."""

    name: str
    type: str
    default: str
    """The default as written; empty if there is none."""
    changes: bool
    """Whether it can be assigned."""


class Class(NamedTuple):
    """A class with behaviour, whose objects are on one side and are called from the other."""

    name: str
    at_host: bool
    doc: str
    made_of: tuple[Parameter, ...]
    """The arguments of which an object is made."""
    methods: tuple[Function, ...]
    attributes: tuple[Attribute, ...]


class LeftOut(NamedTuple):
    """Something that cannot be used from another process, and why."""

    line: int
    name: str
    why: str


class Module(NamedTuple):
    """The content of a stub."""

    name: str
    file: str
    package: bool
    doc: str
    imports: tuple[str, ...]
    """The imports that the annotations need."""
    copied: tuple[Copied, ...]
    errors: tuple[str, ...]
    """The names of copied classes that are exceptions."""
    functions: tuple[Function, ...]
    points: tuple[Point, ...]
    variables: tuple[Variable, ...]
    shared: tuple[Shared, ...]
    classes: tuple[Class, ...]
    left_out: tuple[LeftOut, ...]


def locate(given: str) -> tuple[str, Path]:
    """A module's name and the file that describes it: its stub if it has one.

    Args:
        given: The file, or the name of a module that can be imported from here.

    Raises:
        FileNotFoundError: there is no such file.
    """
    path = Path(given)
    if path.suffix in (".py", ".pyi"):
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {given}")
        return (path.resolve().parent.name if path.stem == "__init__" else path.stem), path
    inside = Path(*given.split("."))
    for folder in (Path.cwd(), *map(Path, sys.path)):
        for end in (".pyi", "/__init__.pyi", ".py", "/__init__.py"):
            found = folder / f"{inside}{end}"
            if found.is_file():
                return given, found
    raise FileNotFoundError(f"there is no source or stub of a module '{given}': name its file, such as {inside}.pyi")


def read_module(name: str, path: Path) -> Module:
    """Reads a stub or a source.

    Raises:
        OSError: it cannot be read.
        SyntaxError: the file is no Python.
    """
    return _Reader(name, path).module()


class _Reader:
    def __init__(self, name: str, path: Path) -> None:
        self._name = name
        self._path = path
        self._text = path.read_text(encoding="utf-8")
        self._tree = ast.parse(self._text, str(path))
        self._imports: dict[str, str] = {}
        self._copied: dict[str, Copied] = {}
        self._methods: set[str] = set()
        """Names of the service's methods."""
        self._needing: dict[str, tuple[ast.stmt, list[ast.expr]]] = {}
        """For each copied name its statement, and the expressions whose names it needs."""
        self._errors: list[str] = []
        self._functions: dict[str, Function] = {}
        self._points: dict[str, Point] = {}
        self._variables: dict[str, Variable] = {}
        self._shared: dict[str, Shared] = {}
        self._classes: dict[str, Class] = {}
        self._left_out: list[LeftOut] = []
        self._all = self._declared()

    def module(self) -> Module:
        body = list(_flat(self._tree.body))
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._take_import(node)
        for node in body:  # first the classes and aliases, which the annotations of the others may name
            if isinstance(node, ast.ClassDef):
                self._take_class(node)
            elif isinstance(node, (ast.Assign, ast.AnnAssign)):
                self._take_alias(node)
        self._drop_unknown()
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self._take_function(node)
        for node in body:
            if isinstance(node, ast.ClassDef) and _sides(node):
                self._take_sided(node)
        for node in body:
            if isinstance(node, ast.AnnAssign):
                self._take_variable(node)
            elif isinstance(node, ast.Assign):
                self._take_assigned(node)
        return Module(
            name=self._name,
            file=self._path.name,
            package=self._path.stem == "__init__",
            doc=(ast.get_docstring(self._tree) or "").partition("\n")[0],
            imports=tuple(self._needed()),
            copied=tuple(self._copied.values()),
            errors=tuple(self._errors),
            functions=tuple(self._functions.values()),
            points=tuple(self._points.values()),
            variables=tuple(self._variables.values()),
            shared=tuple(self._shared.values()),
            classes=tuple(self._classes.values()),
            left_out=tuple(sorted(self._left_out)),
        )

    def _declared(self) -> set[str] | None:
        """The names in ``__all__``; ``None`` if there is no ``__all__`` that can be read."""
        for node in self._tree.body:
            if isinstance(node, ast.Assign) and any(_named(target, "__all__") for target in node.targets):
                try:
                    return set(ast.literal_eval(node.value))
                except (ValueError, TypeError):
                    return None
        return None

    def _public(self, name: str) -> bool:
        return name in self._all if self._all is not None else not name.startswith("_")

    def _leave_out(self, node: ast.stmt, name: str, why: str) -> None:
        self._left_out.append(LeftOut(node.lineno, name, why))

    def _source(self, node: ast.AST) -> str:
        return ast.get_source_segment(self._text, node) or ast.unparse(node)

    # Imports.

    def _take_import(self, node: ast.Import | ast.ImportFrom) -> None:
        for alias in node.names:
            known = alias.asname or alias.name.partition(".")[0]
            renamed = f" as {alias.asname}" if alias.asname else ""
            if isinstance(node, ast.Import):
                self._imports[known] = f"import {alias.name}{renamed}"
            elif node.level == 0 and node.module not in ("__future__", "_typeshed"):  # shims cannot import from these
                self._imports[known] = f"from {node.module} import {alias.name}{renamed}"

    def _needed(self) -> Iterator[str]:
        texts = [each.text for each in self._copied.values()]
        texts += [each.type for each in self._variables.values()] + [each.value for each in self._shared.values()]
        for function in (*self._functions.values(), *(point.function for point in self._points.values())):
            texts += [function.returns, *(f"{each.type} {each.default}" for each in function.parameters)]
        for each in self._classes.values():
            texts += [f"{one.type} {one.default}" for one in each.made_of]
            texts += [f"{one.type} {one.default}" for one in each.attributes]
            for method in each.methods:
                texts += [method.returns, *(f"{one.type} {one.default}" for one in method.parameters)]
        words = set(_WORD.findall(" ".join(texts)))
        return (text for name, text in self._imports.items() if name in words)

    def _unfit(self, *types: ast.expr | None) -> str | None:
        """Why values of these annotations cannot be sent; ``None`` if no reason is found."""
        for word in _names(types):
            if word in _NOT_SENT:
                return f"'{word}' cannot be sent"
            if not self._known(word):
                return f"'{word}' is not known here, or was left out"
        return None

    def _known(self, word: str) -> bool:
        return word in self._imports or word in self._copied or hasattr(builtins, word)

    # Classes, constants and aliases.

    def _take_class(self, node: ast.ClassDef) -> None:
        if not self._public(node.name) or _sides(node):
            return
        bases = {_last(base) for base in node.bases}
        decorators = {_last(decorator) for decorator in node.decorator_list}
        if any(base.endswith(("Error", "Exception")) for base in bases):
            self._errors.append(node.name)
        elif not (bases & _VALUES or "dataclass" in decorators):
            why = (
                "is a class with behaviour: say in a stub, by @shims.at_host or @shims.at_plugin, where its objects are"
            )
            self._leave_out(node, node.name, why)
            return
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)])
        text = textwrap.dedent("\n".join(self._text.splitlines()[first - 1 : node.end_lineno]))
        self._copied[node.name] = Copied(node.name, text)
        fields = [field.annotation for field in node.body if isinstance(field, ast.AnnAssign)]
        self._needing[node.name] = node, [*node.bases, *fields]

    def _take_sided(self, node: ast.ClassDef) -> None:
        """Takes a class whose objects are called from the other side."""
        if not self._public(node.name):
            return
        at_host = _sides(node) == ["at_host"]
        made_of: tuple[Parameter, ...] = ()
        methods: dict[str, Function] = {}
        attributes: dict[str, Attribute] = {}
        why = None
        if len(node.decorator_list) > 1 or node.keywords or any(not _named(base, "object") for base in node.bases):
            why = "has bases or other decorators: write all that it has in one class in a stub"
        for each in node.body:
            if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name) and each.target.id[0] != "_":
                self._take_attribute(node, each, each.target.id, attributes)
            elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name == "__init__":
                # Objects of a plugin's own class are made by the plugin, so any arguments will do.
                if at_host and (found := self._method(node, each, methods)) is not None:
                    made_of = found.parameters
                elif at_host:
                    why = "cannot be made from another process: see its __init__"
            elif isinstance(each, (ast.FunctionDef, ast.AsyncFunctionDef)) and each.name[0] != "_":
                decorators = [_last(decorator) for decorator in each.decorator_list]
                if decorators == ["property"] and each.returns is not None and not self._unfit(each.returns):
                    attributes[each.name] = Attribute(each.name, self._source(each.returns), "", changes=False)
                elif decorators == ["setter"] and each.name in attributes:
                    attributes[each.name] = attributes[each.name]._replace(changes=True)
                elif (found := self._method(node, each, methods)) is not None:
                    methods[each.name] = found
        if clash := {f"{what}_{name}" for name in attributes for what in ("get", "set")} & set(methods):
            why = f"needs a method '{clash.pop()}', as there is one already"
        if (name := ("new_" if at_host else "made_") + node.name) in self._methods or node.name in self._functions:
            why = f"needs a function '{name}', as there is one already"
        if why is not None:
            self._leave_out(node, node.name, why)
            return
        self._methods.add(name)
        doc = ast.get_docstring(node) or ""
        found_methods, found_attributes = tuple(methods.values()), tuple(attributes.values())
        self._classes[node.name] = Class(node.name, at_host, doc, made_of, found_methods, found_attributes)

    def _take_attribute(
        self, owner: ast.ClassDef, node: ast.AnnAssign, name: str, attributes: dict[str, Attribute]
    ) -> None:
        why = self._unfit(node.annotation)
        if _last(node.annotation) in ("ClassVar", "Final"):
            why = "belongs to the class, and not to its objects"
        if why is not None:
            self._leave_out(node, f"{owner.name}.{name}", why)
            return
        default = self._source(node.value) if node.value is not None and _literal(node.value) else ""
        attributes[name] = Attribute(name, self._source(node.annotation), default, changes=True)

    def _method(
        self, owner: ast.ClassDef, node: ast.FunctionDef | ast.AsyncFunctionDef, methods: dict[str, Function]
    ) -> Function | None:
        """A method without its first parameter, the object; ``None`` if the method is left out."""
        plain = [*node.args.posonlyargs, *node.args.args]
        if node.decorator_list:
            why: str | None = f"has the decorator {self._source(node.decorator_list[0])}: write plain methods in a stub"
        elif not plain or node.args.posonlyargs:
            why = "does not take its object as the first of ordinary parameters"
        elif node.name in methods:
            why = "is declared more than once"
        else:
            node.args.args = plain[1:]
            why = self._why_not_called(node)
        if why is not None:
            self._leave_out(node, f"{owner.name}.{node.name}", why)
            return None
        return self._function(node)

    def _take_alias(self, node: ast.Assign | ast.AnnAssign) -> None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if not isinstance(target, ast.Name) or node.value is None or not self._public(target.id):
            return
        final = isinstance(node, ast.Assign) or _last(node.annotation) in ("Final", "TypeAlias")
        constant = final and target.id.isupper() and _literal(node.value)
        alias = isinstance(node, ast.AnnAssign) and _last(node.annotation) == "TypeAlias"
        if constant or alias:
            self._copied[target.id] = Copied(target.id, self._source(node))
            self._needing[target.id] = node, [node.value] if alias else []

    def _drop_unknown(self) -> None:
        """Leaves out copies that need unknown names, then copies that need those, and so on."""
        while unfit := [name for name, (_, types) in self._needing.items() if not all(map(self._known, _names(types)))]:
            for name in unfit:
                node, types = self._needing.pop(name)
                missing = next(word for word in _names(types) if not self._known(word))
                del self._copied[name]
                self._leave_out(node, name, f"needs '{missing}', which is not known here, or was left out")
        self._errors = [name for name in self._errors if name in self._copied]

    # Functions and extension points.

    def _take_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        name = node.name
        if not self._public(name):
            return
        kinds = [each for each in node.decorator_list if _last(each) in _KINDS]
        why = self._why_not(node, kinds)
        if why is not None:
            self._leave_out(node, name, why)
            return
        function = self._function(node)
        if not kinds:
            self._functions[name] = function
            self._methods.add(name)
            return
        options = ""
        if isinstance(kinds[0], ast.Call):
            options = ", ".join(f"{each.arg}={self._source(each.value)}" for each in kinds[0].keywords)
        self._points[name] = Point(_last(kinds[0]), options, function)

    def _why_not(self, node: ast.FunctionDef | ast.AsyncFunctionDef, kinds: list[ast.expr]) -> str | None:
        if len(node.decorator_list) > len(kinds):
            return f"has the decorator {self._source(node.decorator_list[0])}, whose meaning is not known here"
        if len(kinds) > 1 or node.name in self._functions or node.name in self._points:
            self._functions.pop(node.name, None)
            self._points.pop(node.name, None)
            return "is declared more than once"
        return self._why_not_called(node)

    def _why_not_called(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
        """Why a function cannot be called from another process, by its parameters and its result; ``None`` if it
        can.
        """
        arguments = node.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if isinstance(node, ast.AsyncFunctionDef):
            return "is a coroutine: plugins and host call each other from threads"
        if arguments.vararg or arguments.kwarg:
            return "takes any number of arguments: name them in a stub"
        result = "None" if node.name == "__init__" else self._returns(node)
        if result is None or any(each.annotation is None for each in every):
            return "does not say the types of its parameters and its result: say them in a stub"
        for parameter in every:
            if parameter.arg in _TAKEN:
                return f"has a parameter '{parameter.arg}', a name that the shim needs"
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None and not _literal(default):
                return f"has the default {self._source(default)}: write the value in a stub"
        return self._unfit(node.returns, *(each.annotation for each in every))

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Function:
        arguments = node.args
        plain = [*arguments.posonlyargs, *arguments.args]
        defaults = [None] * (len(plain) - len(arguments.defaults)) + [*arguments.defaults]
        found = [
            (each, default, "positional" if at < len(arguments.posonlyargs) else "any")
            for at, (each, default) in enumerate(zip(plain, defaults, strict=True))
        ]
        named = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
        found += [(each, default, "named") for each, default in named]
        parameters = tuple(
            Parameter(
                each.arg,
                self._source(each.annotation) if each.annotation else "",
                self._source(default) if default is not None else "",
                kind,
            )
            for each, default, kind in found
        )
        return Function(node.name, parameters, self._returns(node) or "None", ast.get_docstring(node) or "")

    def _returns(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> str | None:
        """The annotation of the result. In a source, a function that returns nothing needs no annotation."""
        if node.returns is not None:
            return self._source(node.returns)
        return None if self._path.suffix == ".pyi" or any(map(_gives, _own(node.body))) else "None"

    # Variables.

    def _take_variable(self, node: ast.AnnAssign) -> None:
        name = node.target.id if isinstance(node.target, ast.Name) else ""
        if not name or not self._public(name) or name in self._copied:
            return
        kind, depth = node.annotation, 0
        while isinstance(kind, ast.Subscript) and _last(kind.value) in _MAPPINGS:
            key, inner = kind.slice.elts if isinstance(kind.slice, ast.Tuple) else (kind.slice, kind.slice)
            if not _named(key, "str"):
                self._leave_out(node, name, "is a mapping whose keys are no texts")
                return
            kind, depth = inner, depth + 1
        if _last(kind) == "Final":
            why: str | None = "is a constant without a value that could be written down: write it in a stub"
        else:
            why = self._unfit(kind)
        made = {f"{what}_{name}" for what in (("find", "put", "remove", "keys_of") if depth else ("get", "set"))}
        if clash := made & self._methods:
            why = f"needs a method '{clash.pop()}', as there is one already"
        if why is not None:
            self._leave_out(node, name, why)
            return
        self._methods |= made
        if depth:
            self._shared[name] = Shared(name, self._source(kind), depth)
        else:
            self._variables[name] = Variable(name, self._source(kind))

    def _take_assigned(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and self._public(target.id) and target.id not in self._copied:
                why = "has no annotation: say its type; for an extension point write '@filter def ...' in a stub"
                self._leave_out(node, target.id, why)


def _sides(node: ast.ClassDef) -> list[str]:
    """The names of the class's decorators that tell where its objects are."""
    return [name for each in node.decorator_list if (name := _last(each)) in _SIDES]


def _own(body: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """The nodes of a function's own body, without those of functions and classes inside it."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            yield from _own(ast.iter_child_nodes(node))


def _gives(node: ast.AST) -> bool:
    return isinstance(node, (ast.Yield, ast.YieldFrom)) or (isinstance(node, ast.Return) and node.value is not None)


def _flat(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements of a module, those under ``if TYPE_CHECKING`` and the like included."""
    for node in body:
        if isinstance(node, ast.If):
            yield from _flat(node.body)
        elif isinstance(node, ast.Try):
            yield from _flat([*node.body, *node.orelse])
        else:
            yield node


def _last(node: ast.expr) -> str:
    """The last part of a dotted name, subscripted or called; empty for anything else."""
    if isinstance(node, ast.Call):
        return _last(node.func)
    if isinstance(node, ast.Subscript):
        return _last(node.value)
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _literal(node: ast.expr) -> bool:
    try:
        return ast.literal_eval(node) is not ...
    except (ValueError, TypeError):
        return False


def _names(types: Iterable[ast.expr | None]) -> Iterator[str]:
    """The names in annotations, also in annotations that are strings. Of a dotted name it gives the first part."""
    for kind in types:
        if kind is None:
            continue
        literal: set[int] = set()
        for node in ast.walk(kind):
            if isinstance(node, ast.Subscript) and _last(node) == "Literal":
                literal.update(id(each) for each in ast.walk(node.slice))
            if isinstance(node, ast.Name):
                yield node.id
            elif isinstance(node, ast.Attribute) and node.attr in _NOT_SENT:
                yield node.attr
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in literal:
                try:
                    yield from _names([ast.parse(node.value, mode="eval").body])
                except SyntaxError:
                    yield node.value
