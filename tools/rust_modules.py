"""Which file of a Rust crate uses which, by its `use` items and the paths in its code.

What a file gives on from modules below it (`pub use`) counts as use only if its own code names it: who takes such a
name uses the file in which it stands. Unit tests are left out: they may use what they like.

Methods are not seen: a file that calls another one's method on a type of a third knows only the third.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from circles import circles

Module = tuple[str, ...]

COMMENTS_AND_TEXTS = re.compile(r'//[^\n]*|/\*.*?\*/|b?"(?:\\.|[^"\\])*"', re.DOTALL)
TESTS = re.compile(r"#\[cfg\(test\)\]\s*(?:pub(?:\([^)]*\))?\s+)?mod\s+\w+\s*(?:;|\{.*?\n\}\n?)", re.DOTALL)
VISIBILITY = re.compile(r"\bpub\([^)]*\)")
USE = re.compile(r"^[ \t]*(pub\s+)?use\s+([^;]+);", re.MULTILINE)
DECLARED = re.compile(r"\bmod\s+\w+\s*;")
PATH = re.compile(r"(?<![\w:])[a-z]\w*(?:::\w+)+")


def expanded(tree: str) -> Iterator[list[str]]:
    """The paths of one `use` item, each as its segments; the name that `as` gives comes last, behind an `as`."""
    tree = tree.strip()
    brace = tree.find("{")
    if brace < 0:
        path, _, name = tree.partition(" as ")
        yield [part.strip() for part in path.split("::")] + (["as", name.strip()] if name else [])
        return
    before = [part.strip() for part in tree[:brace].split("::") if part.strip()]
    depth, begin, inside = 0, 0, tree[brace + 1 : tree.rfind("}")]
    for at, char in enumerate(f"{inside},"):
        depth += {"{": 1, "}": -1}.get(char, 0)
        if char == "," and depth == 0:
            if inside[begin:at].strip():
                yield from ([*before, *rest] for rest in expanded(inside[begin:at]))
            begin = at + 1


class Crate:
    """The files of one crate's `src`, as modules."""

    def __init__(self, source: Path) -> None:
        self.files: dict[Module, Path] = {}
        for file in sorted(source.rglob("*.rs")):
            parts = file.relative_to(source).with_suffix("").parts
            if parts[-1] in {"lib", "mod"}:
                parts = parts[:-1]
            if parts[:1] not in {("main",), ("bin",)} and "tests" not in parts:
                self.files[parts] = file
        self.uses: dict[Module, list[tuple[bool, list[str]]]] = {}
        self.code: dict[Module, str] = {}
        self.given_on: dict[Module, dict[str, list[str]]] = {}
        for module, file in self.files.items():
            text = TESTS.sub("", COMMENTS_AND_TEXTS.sub('""', file.read_text(encoding="utf-8")))
            text = VISIBILITY.sub("pub", text)
            items = [(bool(item[1]), path) for item in USE.finditer(text) for path in expanded(item[2])]
            self.uses[module] = items
            self.code[module] = DECLARED.sub("", USE.sub("", text))
            self.given_on[module] = {path[-1]: path for public, path in items if public}

    def find(self, path: list[str], at: Module) -> Module | None:
        """The module in which a path ends that is written in another one; `None`: it is not of this crate."""
        if "as" in path:
            path = path[: path.index("as")]
        here, rest = at, list(path)
        if rest[0] == "crate":
            here, rest = (), rest[1:]
        elif rest[0] not in {"self", "super"} and (*at, rest[0]) not in self.files:
            return None  # of another crate, or of something that a `use` names
        while rest and rest[0] in {"self", "super"}:
            here, rest = (here[:-1] if rest[0] == "super" else here), rest[1:]
        while rest and (*here, rest[0]) in self.files:
            here, rest = (*here, rest[0]), rest[1:]
        given = self.given_on.get(here, {}).get(rest[0]) if rest else None
        found = self.find(given, here) if given and given != path else None
        return here if found is None else found

    def known_by(self, module: Module) -> set[Module]:
        """The modules that a module's file uses."""
        paths = [match[0].split("::") for match in PATH.finditer(self.code[module])]
        for public, path in self.uses[module]:
            below = self.find(path, module)
            gives_on = public and below is not None and below[: len(module)] == module
            if not gives_on or re.search(rf"\b{re.escape(path[-1])}\b", self.code[module]):
                paths.append(path)
        found = {self.find(path, module) for path in paths}
        return {other for other in found if other is not None and other != module and other in self.files}

    def circles(self) -> list[list[Path]]:
        """Files that use each other, directly or by way of others: one list for each such group."""
        groups = circles({module: self.known_by(module) for module in self.files})
        return [sorted(self.files[module] for module in group) for group in groups]

    def circles_of_folders(self) -> list[list[Module]]:
        """Folders, and files beside them, of which some file uses one of the others and the other way round: one list
        for each such group. What is in one folder counts as one.
        """
        known = {module: self.known_by(module) for module in self.files}
        found: list[list[Module]] = []
        for folder in sorted({module[:depth] for module in known for depth in range(len(module))}):
            inside = len(folder) + 1
            graph: dict[Module, set[Module]] = {}
            for module, others in known.items():
                if module[: len(folder)] == folder:
                    below = {other[:inside] for other in others if other[: len(folder)] == folder}
                    graph.setdefault(module[:inside], set()).update(below - {module[:inside]})
            found += circles(graph)
        return found
