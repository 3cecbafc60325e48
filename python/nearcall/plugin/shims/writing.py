"""Writes the files of a shim: an interface for both sides, a module for plugins, a service class for the host."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

from .reading import Attribute, Class, Function, Module, Parameter, Point, Shared

__all__ = ["class_name", "files", "permission"]

_WIDTH = 120
"""Most characters of a line."""
_STANDARD = "from __future__ import annotations\n"


def permission(name: str) -> str:
    """The permission by which plugins ask for a module: ``synthDriverHandler`` is ``synthdriverhandler``."""
    return name.replace(".", "_").strip("_").lower()


def class_name(name: str) -> str:
    """The class of a module's service: ``speech.commands`` is ``SpeechCommands``."""
    parts = name.replace(".", "_").split("_")
    return "".join(part[:1].upper() + part[1:] for part in parts)


def files(module: Module) -> dict[Path, str]:
    """All files of a module's shim, by their paths in the folder where they belong."""
    own = Path("shims", *module.name.split("."))
    shim = own / "__init__.py" if module.package else own.with_suffix(".py")
    interface = f"{_flat(module.name)}_api"
    found = {Path(f"{interface}.py"): _interface(module), shim: _shim(module, interface)}
    if _has_service(module):
        found[Path(f"{_flat(module.name)}_host.py")] = _host(module, interface)
    return found


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _has_service(module: Module) -> bool:
    return bool(module.functions or module.variables or module.shared or module.classes)


def _text(*parts: str) -> str:
    return "".join(parts).rstrip("\n") + "\n"


# The interface.


def _interface(module: Module) -> str:
    head = _docstring(
        f"What plugins use of {module.name}: made from {module.file} by 'nearcall plugin shim'. Both sides import it.",
        "",
    )
    protocol = ["from typing import Protocol"] if _has_service(module) else []
    imports = _imports([*protocol, *module.imports])
    ours = "\nimport nearcall\n" if _has_service(module) else "\n"
    ours += "from nearcall import plugin\n" if module.points else ""
    ours += "from nearcall.plugin import shims\n" if _has_service(module) else ""
    parts = [head, "\n", _STANDARD, imports, ours if module.points or _has_service(module) else ""]
    parts += [f"\n\n{each.text}\n" for each in module.copied]
    errors = ", ".join(["*shims.ERRORS", *module.errors])
    for each in module.classes:
        parts += [f"\n\n@nearcall.service(errors=[{errors}])\n", f"class {each.name}(Protocol):\n"]
        parts += [_docstring(each.doc or f"An object of {module.name}.{each.name}.", "    ")]
        parts += [f"\n{_declared(method)}" for method in _methods_of_object(each)]
    if _has_service(module):
        parts += [f"\n\n@nearcall.service(errors=[{errors}])\n", f"class {class_name(module.name)}(Protocol):\n"]
        parts += [_docstring(module.doc or f"The functions and variables of {module.name}.", "    ")]
        parts += [f"\n{_declared(each)}" for each in _methods(module)]
    for point in module.points:
        parts += ["\n\n", _point(module, point)]
    if module.points:
        names = ", ".join(point.function.name for point in module.points)
        parts += [f"\n\nPOINTS = [{names}]\n"]
    return _text(*parts)


def _methods(module: Module) -> Iterator[Function]:
    """The methods of the service."""
    yield from module.functions
    for variable in module.variables:
        yield Function(f"get_{variable.name}", (), variable.type, "")
        value = Parameter("value", variable.type, "", "any")
        yield Function(f"set_{variable.name}", (value,), "None", "")
    for shared in module.shared:
        yield from _methods_of(shared)
    for each in module.classes:
        yield _maker(each)


def _maker(each: Class) -> Function:
    """The method of the service by which a plugin makes an object at the host, or passes one to it."""
    if each.at_host:
        return Function(f"new_{each.name}", each.made_of, each.name, "")
    return Function(f"made_{each.name}", (Parameter("made", each.name, "", "any"),), "None", "")


def _getter(attribute: Attribute) -> Function:
    return Function(f"get_{attribute.name}", (), attribute.type, "")


def _setter(attribute: Attribute) -> Function:
    return Function(f"set_{attribute.name}", (Parameter("value", attribute.type, "", "any"),), "None", "")


def _methods_of_object(each: Class) -> Iterator[Function]:
    """The methods of the service by which the other side calls an object."""
    yield from each.methods
    for attribute in each.attributes:
        yield _getter(attribute)
        if attribute.changes:
            yield _setter(attribute)


def _methods_of(shared: Shared) -> Iterator[Function]:
    keys, value = Parameter("keys", "list[str]", "", "any"), Parameter("value", shared.value, "", "any")
    yield Function(f"find_{shared.name}", (keys,), f"list[{shared.value}]", "")
    yield Function(f"put_{shared.name}", (keys, value), "None", "")
    yield Function(f"remove_{shared.name}", (keys,), "bool", "")
    yield Function(f"keys_of_{shared.name}", (keys,), "list[str]", "")


def _declared(method: Function) -> str:
    head = _def(method, "    ", itself=True)
    return f"{head}\n{_docstring(method.doc, '        ')}        ...\n" if method.doc else f"{head} ...\n"


def _point(module: Module, point: Point) -> str:
    named = any(option.startswith("name=") for option in point.options.split(", "))
    name = [] if named else [f'name="{module.name}.{point.function.name}"']
    options = ", ".join([*name, point.options] if point.options else name)
    doc = _docstring(point.function.doc, "    ")
    return f"@plugin.{point.kind}({options})\n{_def(point.function, '')}\n{doc}    raise NotImplementedError\n"


# The module for plugins.


def _shim(module: Module, interface: str) -> str:
    head = _docstring(f"{module.name} for plugins: made from {module.file} by 'nearcall plugin shim'.", "")
    typed = ["from typing import TYPE_CHECKING"] if module.variables else []
    parts = [head, "\n", _STANDARD, _imports([*typed, *_used(module)]), f"\nimport {interface} as _api\n"]
    names = ", ".join(sorted(each.name for each in module.copied))
    if names:
        parts += [f"from {interface} import {names}\n"]
    parts += ["\nfrom nearcall.plugin import shims as _shims\n"]
    public = [each.name for each in module.functions] + [each.name for each in module.copied]
    public += [each.name for each in module.variables] + [each.name for each in module.shared]
    public += [each.name for each in module.classes]
    public += [point.function.name for point in module.points]
    parts += ["\n", _names("__all__", sorted(public))]
    if _has_service(module):
        parts += [f'\n_host = _shims.use("{permission(module.name)}", _api.{class_name(module.name)})\n']
    parts += [f'{each.name} = _shims.Shared(_host, "{each.name}", {each.depth})\n' for each in module.shared]
    parts += [f"{each.function.name} = _shims.Registered(_api.{each.function.name})\n" for each in module.points]
    for function in module.functions:
        parts += [
            "\n\n",
            _def(function, ""),
            "\n",
            _docstring(function.doc, "    "),
            _calling(function, "_host", "    "),
        ]
    for each in module.classes:
        parts += ["\n\n", *(_class_at_host(each) if each.at_host else _class_at_plugin(each))]
    if module.variables:
        parts += ["\n\nif TYPE_CHECKING:\n", *(f"    {each.name}: {each.type}\n" for each in module.variables)]
        listed = ", ".join(f'"{each.name}"' for each in module.variables)
        parts += ["else:\n", f"    _shims.variables(__name__, _host, [{listed}])\n"]
    return _text(*parts)


def _used(module: Module) -> list[str]:
    """The imports that the signatures in the shim need. The interface imports names for the copied classes."""
    return list(module.imports) if module.functions or module.variables or module.classes else []


def _class_at_host(each: Class) -> Iterator[str]:
    """The class by which a plugin makes an object at the host."""
    yield f"class {each.name}:\n" + _docstring(each.doc or "Its objects are the host's.", "    ")
    init = Function("__init__", each.made_of, "None", "")
    new = Function(f"new_{each.name}", each.made_of, each.name, "")
    yield f"\n{_def(init, '    ', itself=True)}\n"
    yield f"        self._nearcall = _shims.away(_host.{new.name}({_passed(new)}))\n"
    for method in each.methods:
        yield f"\n{_def(method, '    ', itself=True)}\n{_docstring(method.doc, '        ')}"
        yield _calling(method, "self._nearcall", "        ")
    for attribute in each.attributes:
        get, name = Function(attribute.name, (), attribute.type, ""), attribute.name
        yield f"\n    @property\n{_def(get, '    ', itself=True)}\n        return self._nearcall.get_{name}()\n"
        if attribute.changes:
            setter = Function(name, _setter(attribute).parameters, "None", "")
            yield f"\n    @{name}.setter\n{_def(setter, '    ', itself=True)}\n"
            yield f"        self._nearcall.set_{name}(value)\n"


def _class_at_plugin(each: Class) -> Iterator[str]:
    """The class that add-ons derive from, and the service class by which the host calls its objects."""
    yield f"class {each.name}(_shims.AtPlugin):\n" + _docstring(each.doc or "The host calls its objects.", "    ")
    yield "\n" if each.attributes else ""
    for attribute in each.attributes:
        yield f"    {attribute.name}: {attribute.type}" + (f" = {attribute.default}\n" if attribute.default else "\n")
    for method in each.methods:
        yield f"\n{_def(method, '    ', itself=True)}\n{_docstring(method.doc, '        ')}"
        nothing = "" if method.doc else "        pass\n"
        yield nothing if method.returns == "None" else "        raise NotImplementedError\n"
    yield f"\n    def _nearcall_hand_over(self) -> None:\n        _host.made_{each.name}(_{each.name}(self))\n"
    yield f"\n\nclass _{each.name}(_api.{each.name}):\n"
    yield f"    def __init__(self, made: {each.name}) -> None:\n        self._made = made\n"
    for method, expression in _on_object(each):
        returns = "" if method.returns == "None" else "return "
        yield f"\n{_def(method, '    ', itself=True)}\n        with _shims.turn:\n            {returns}{expression}\n"


def _on_object(each: Class) -> Iterator[tuple[Function, str]]:
    """The methods of an object's service, each with its expression on ``self._made``."""
    for method in each.methods:
        yield method, f"self._made.{method.name}({_passed(method)})"
    for attribute in each.attributes:
        yield _getter(attribute), f"self._made.{attribute.name}"
        if attribute.changes:
            yield _setter(attribute), f'setattr(self._made, "{attribute.name}", value)'


def _calling(function: Function, target: str, indent: str) -> str:
    returns = "" if function.returns == "None" else "return "
    return f"{indent}{returns}{target}.{function.name}({_passed(function)})\n"


def _passed(function: Function) -> str:
    return ", ".join(f"{each.name}={each.name}" if each.kind == "named" else each.name for each in function.parameters)


# The host's service.


def _host(module: Module, interface: str) -> str:
    name = class_name(module.name)
    head = _docstring(f"{module.name} as a service for plugins: made from {module.file} by 'nearcall plugin shim'.", "")
    classes = [each.name for each in module.classes]
    copied = ", ".join(sorted([name, *classes, *(each.name for each in module.copied)]))
    theirs = [each for each in module.classes if not each.at_host]
    imports = [*module.imports, *(["from collections.abc import Callable"] if theirs else [])]
    parts = [head, "\n", _STANDARD, _imports(imports), f"\nimport {module.name} as _module\n"]
    parts += [f"from {interface} import {copied}\n", "\nfrom nearcall.plugin import shims\n"]
    for each in module.classes:
        if each.at_host:
            parts += ["\n\n", *_object_of_host(module, each)]
    parts += [f"\n\nclass {name}OfHost({name}):\n"]
    parts += [
        _docstring(
            f'Calls the module {module.name}. Give it to plugins: services={{"{permission(module.name)}": '
            f"{name}OfHost()}}.\n\nArgs:\n    run: Calls a function where the module's code may run, such as in "
            "the main thread."
            + "".join(f"\n    on_{each.name}: Called there with each object that a plugin makes." for each in theirs),
            "    ",
        )
    ]
    told = [f"on_{each.name}: Callable[[{each.name}], object]" for each in theirs]
    parameters = ["self", "run: shims.Run = shims.at_once", *(["*", *told] if told else [])]
    parts += ["\n", _wrapped("    def __init__(", parameters, ") -> None:"), "\n        self._run = run\n"]
    parts += [f"        self._on_{each.name} = on_{each.name}\n" for each in theirs]
    for function in module.functions:
        parts += [
            "\n",
            _def(function, "    ", itself=True),
            "\n",
            _running(f"_module.{function.name}({_passed(function)})", function),
        ]
    for variable in module.variables:
        own = Function(f"get_{variable.name}", (), variable.type, "")
        value = Parameter("value", variable.type, "", "any")
        setting = Function(f"set_{variable.name}", (value,), "None", "")
        parts += ["\n", _def(own, "    ", itself=True), "\n", _running(f"_module.{variable.name}", own)]
        parts += ["\n", _def(setting, "    ", itself=True), "\n"]
        parts += [_running(f'setattr(_module, "{variable.name}", value)', setting)]
    for shared in module.shared:
        for method in _methods_of(shared):
            what = method.name.removesuffix(f"_{shared.name}")
            value_too = "value, " if what == "put" else ""
            call = f"shims.{what}(_module.{shared.name}, keys, {value_too}{shared.depth})"
            parts += ["\n", _def(method, "    ", itself=True), "\n", _running(call, method)]
    for each in module.classes:
        method = _maker(each)
        call = f"_module.{each.name}({_passed(method)})" if each.at_host else f"self._on_{each.name}(made)"
        parts += ["\n", _def(method, "    ", itself=True), "\n"]
        if each.at_host:
            parts += [f"        return {each.name}OfHost(self._run(lambda: {call}), self._run)\n"]
        else:
            parts += [_running(call, method)]
    return _text(*parts)


def _object_of_host(module: Module, each: Class) -> Iterator[str]:
    """The class of the service that a plugin gets for an object that it has made at the host."""
    yield f"class {each.name}OfHost({each.name}):\n"
    yield _docstring(f"An object of {module.name}.{each.name}, for a plugin.", "    ")
    yield f"\n    def __init__(self, made: _module.{each.name}, run: shims.Run) -> None:\n"
    yield "        self._made = made\n        self._run = run\n"
    for method, expression in _on_object(each):
        yield f"\n{_def(method, '    ', itself=True)}\n{_running(expression, method)}"


def _running(expression: str, function: Function) -> str:
    returns = "" if function.returns == "None" else "return "
    return f"        {returns}self._run(lambda: {expression})\n"


# Pieces of Python.


def _def(function: Function, indent: str, *, itself: bool = False) -> str:
    """A function's head, in one line if it fits."""
    parameters = ["self"] if itself else []
    kinds = [each.kind for each in function.parameters]
    for at, each in enumerate(function.parameters):
        if each.kind == "named" and "named" not in kinds[:at]:
            parameters.append("*")
        equals = " = " if each.type else "="
        parameters.append(f"{each.name}: {each.type}" + (f"{equals}{each.default}" if each.default else ""))
        if each.kind == "positional" and kinds[at + 1 : at + 2] != ["positional"]:
            parameters.append("/")
    return _wrapped(f"{indent}def {function.name}(", parameters, f") -> {function.returns}:")


def _wrapped(head: str, items: Sequence[str], tail: str) -> str:
    """Items between brackets: in one line, in one line of their own, or each in its own."""
    line = f"{head}{', '.join(items)}{tail}"
    indent = " " * (len(head) - len(head.lstrip()))
    inside = f"{indent}    {', '.join(items)}"
    if len(line) <= _WIDTH:
        return line
    if len(inside) <= _WIDTH:
        return f"{head}\n{inside}\n{indent}{tail}"
    return f"{head}\n" + "".join(f"{indent}    {item},\n" for item in items) + f"{indent}{tail}"


def _names(variable: str, names: Sequence[str]) -> str:
    quoted = [f'"{name}"' for name in names]
    line = f"{variable} = [{', '.join(quoted)}]\n"
    if len(line) <= _WIDTH + 1:
        return line
    return f"{variable} = [\n" + "".join(f"    {name},\n" for name in quoted) + "]\n"


def _imports(lines: Sequence[str]) -> str:
    """Imports in the order that formatters want: modules first, then names from modules."""
    names: dict[str, set[str]] = {}
    for line in lines:
        module, _, name = line.partition(" import ")
        names.setdefault(module, set()).add(name)
    found = [f"{module} import {', '.join(sorted(each))}" if any(each) else module for module, each in names.items()]
    found.sort(key=lambda line: (line.startswith("from"), line))
    return "\n" + "".join(f"{line}\n" for line in found) if found else ""


def _docstring(text: str, indent: str) -> str:
    """A docstring; none for an empty text."""
    if not text:
        return ""
    safe = text.replace("\\", "\\\\").replace('"""', "'''")
    safe = f"{safe} " if safe.endswith('"') else safe
    lines = [line for each in safe.splitlines() for line in (_filled(each, len(indent)) if each.strip() else [""])]
    if len(lines) == 1 and len(lines[0]) + len(indent) + 6 <= _WIDTH:
        return f'{indent}"""{lines[0]}"""\n'
    body = "\n".join(f"{indent}{line}" if line else "" for line in lines)
    return f'{indent}"""{body.lstrip()}\n{indent}"""\n'


def _filled(line: str, used: int) -> list[str]:
    indent = line[: len(line) - len(line.lstrip())]
    return textwrap.wrap(line, _WIDTH - used - 3, subsequent_indent=indent, break_long_words=False) or [""]
