"""Which module of a Python package imports which.

An import inside a function counts like any other: what is imported later is known all the same. One under `if
TYPE_CHECKING` names types only, and is counted apart. What a package's `__init__` gives on from the modules below it is
no use of its own: who imports such a name uses the module in which it stands.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

Module = tuple[str, ...]


def imports(tree: ast.AST, *, types_only: bool = False) -> Iterator[tuple[bool, ast.Import | ast.ImportFrom]]:
    """The import statements below a node, each with whether only type checkers read it."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            for child in node.body:
                yield from imports(ast.Module([child], []), types_only=True)
            for child in node.orelse:
                yield from imports(ast.Module([child], []), types_only=types_only)
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield types_only, node
        else:
            yield from imports(node, types_only=types_only)


class Package:
    """The modules of one package, given its folder."""

    def __init__(self, folder: Path) -> None:
        self.name = folder.name
        self.files: dict[Module, Path] = {}
        for file in sorted(folder.rglob("*.py")):
            parts = file.relative_to(folder).with_suffix("").parts
            self.files[parts[:-1] if parts[-1] == "__init__" else parts] = file
        self.trees = {module: ast.parse(file.read_text(encoding="utf-8")) for module, file in self.files.items()}
        self.given_on: dict[Module, dict[str, tuple[Module, str]]] = {}
        for module, file in self.files.items():
            if file.name == "__init__.py":
                self.given_on[module] = {
                    alias.asname or alias.name: (origin, alias.name)
                    for _, node in imports(self.trees[module])
                    if isinstance(node, ast.ImportFrom) and (origin := self.origin(node, module)) is not None
                    for alias in node.names
                }

    def origin(self, node: ast.ImportFrom, module: Module) -> Module | None:
        """Where `from … import` looks, if that is in this package."""
        path = tuple(node.module.split(".")) if node.module else ()
        if node.level:
            inside = module if self.files[module].name == "__init__.py" else module[:-1]
            return (*inside[: len(inside) + 1 - node.level], *path)
        return path[1:] if path[0] == self.name else None

    def find(self, origin: Module, name: str) -> Module | None:
        """The module in which a name stands that is imported from another one."""
        if (*origin, name) in self.files:
            return (*origin, name)
        given = self.given_on.get(origin, {}).get(name)
        if given and given != (origin, name):
            return self.find(*given)
        return origin if origin in self.files else None

    def known_by(self, module: Module, *, types: bool) -> set[Module]:
        """The modules that one imports; with `types`, also those of which only type checkers know."""
        found: set[Module | None] = set()
        is_init = self.files[module].name == "__init__.py"
        for types_only, node in imports(self.trees[module]):
            if types_only and not types:
                continue
            if isinstance(node, ast.Import):
                names = [tuple(alias.name.split(".")) for alias in node.names]
                found |= {name[1:] for name in names if name[0] == self.name}
            elif (origin := self.origin(node, module)) is not None:
                below = is_init and origin[: len(module)] == module
                found |= set() if below else {self.find(origin, alias.name) for alias in node.names}
        return {other for other in found if other is not None and other != module and other in self.files}

    def graph(self, *, types: bool) -> dict[Module, set[Module]]:
        """Each module and those that it knows."""
        return {module: self.known_by(module, types=types) for module in self.files}
