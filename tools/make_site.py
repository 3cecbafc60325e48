"""Build the documentation site from the pages there are, and the reference of the Python package from its docstrings.

Usage: python tools/make_site.py [folder]    (default: out/docs)

The pages (README, CHANGELOG, docs/, examples/, the lab's) are written for the forge, and stay where they are. This tool
copies them aside and changes what a site needs: the README of a folder becomes its index, a code block with the name of
a file gets a caption, and a file or a folder that a page links to becomes a page that shows it. The side bar has the
order of docs/README.md. Sphinx makes the site of that.

Ends with status 1 at a warning, at a link that leads nowhere, and if something public is not in the reference.
"""

from __future__ import annotations

import ast
import inspect
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import nearcall

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = ROOT / "tools/site"
PAGES = ["*.md", "docs/**/*.md", "lab/README.md", "lab/docs/**/*.md", "examples/**/*.md"]
PICTURES = {".svg", ".png"}
LANGUAGES = {
    ".go": "go",
    ".html": "html",
    ".java": "java",
    ".js": "javascript",
    ".proto": "protobuf",
    ".py": "python",
    ".rs": "rust",
    ".toml": "toml",
}
"""Of the files that pages link to; others are shown as text."""

FENCE = re.compile(r"^(```+)(\w*) ?(.*)$")
LINK = re.compile(r"(?<=\]\()(?!https?:|#)([^)\s]+)(?=\))")
TITLE = re.compile(r"^# (.+)$", re.MULTILINE)
LATER = ["sandbox", "testing"]
"""Public modules that `import nearcall` does not name."""
MORE = "More"
"""The caption over pages that docs/README.md does not list."""


def pages() -> list[Path]:
    """All pages, below the root of the repository."""
    found = {path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern)}
    return sorted(path for path in found if "node_modules" not in path.parts and "target" not in path.parts)


def place(path: Path) -> Path:
    """Where the page of a file or folder is in the site's source."""
    if path.name == "README.md":
        return path.with_name("index.md")
    if path.suffix == ".md" or path.suffix in PICTURES:
        return path
    if (ROOT / path / "README.md").is_file():
        return path / "index.md"
    return path.with_name(f"{path.name}.md")


def outside_code(text: str, change: Callable[[str], str]) -> str:
    """Changes each line that is not in a block of code; the block's first line becomes one with a caption."""
    lines: list[str] = []
    closing = ""
    for line in text.split("\n"):
        fence = FENCE.match(line)
        if closing:
            closing = "" if line == closing else closing
            lines.append(line)
        elif fence:
            closing = fence[1]
            name = fence[3].split(" ")[0]
            begin = [f"{closing}{{code-block}} {fence[2]}", f":caption: {name}", ":dedent:", ""]
            lines += begin if "." in name else [line]
        else:
            lines.append(change(line))
    return "\n".join(lines)


class Source:
    """The source of the site, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._made: set[Path] = set()

    def add(self, page: Path, more: str = "") -> None:
        """Adds a page, and what it links to."""
        text = (ROOT / page).read_text(encoding="utf-8")
        changed = outside_code(text, lambda line: LINK.sub(lambda found: self._link(page, found), line))
        self.write(place(page), changed + more)

    def _link(self, page: Path, found: re.Match[str]) -> str:
        path, _, anchor = found[1].partition("#")
        target = Path(os.path.normpath(ROOT / page.parent / path)).relative_to(ROOT)
        if target.suffix in PICTURES:
            self._copy(target)
        elif target.suffix != ".md":
            self._show(target)
        link = os.path.relpath(place(target), place(page).parent)
        return f"{link}#{anchor}" if anchor else link

    def _show(self, target: Path) -> None:
        """A page that shows a file, or what is in a folder."""
        if (ROOT / target / "README.md").is_file() or place(target) in self._made:
            return
        self._made.add(place(target))
        head = f"---\norphan: true\n---\n\n# {target}\n\n"
        if (ROOT / target).is_dir():
            inside = [target / path.name for path in sorted((ROOT / target).iterdir()) if path.suffix in LANGUAGES]
            for path in inside:
                self._show(path)
            links = "\n".join(f"- [{path.name}]({target.name}/{path.name}.md)" for path in inside)
            self.write(place(target), f"{head}{links}\n")
        else:
            text = (ROOT / target).read_text(encoding="utf-8")
            language = LANGUAGES.get(target.suffix, "text")
            self.write(place(target), f"{head}``````{language}\n{text}\n``````\n")

    def _copy(self, target: Path) -> None:
        (self._folder / target).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / target, self._folder / target)

    def write(self, path: Path, text: str) -> None:
        """Adds a page that the site alone has."""
        (self._folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self._folder / path).write_text(text, encoding="utf-8")


def tree(caption: str, base: Path, entries: list[str]) -> str:
    """A part of the side bar; entries are below the root."""
    below = [os.path.relpath(entry, base) for entry in entries]
    named = [f":caption: {caption}"] if caption else []
    return "\n".join(["", "", "```{toctree}", ":hidden:", *named, "", *below, "```", ""])


def side_bar() -> Iterator[tuple[str, list[Path]]]:
    """Captions and pages, in the order in which docs/README.md names them; what it does not name is last."""
    index = ROOT / "docs/README.md"
    rest = set(pages()) - {Path("README.md"), Path("docs/README.md")}
    rest -= {
        path for path in rest if path.parent.name in ("adr", "measurements", "studies") and path.name != "README.md"
    }
    head, *parts = re.split(r"^## ", index.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for part in (f"Start\n{head}", *parts):
        caption, _, text = part.partition("\n")
        named: list[Path] = []
        for link in LINK.findall(text):
            path = Path(os.path.normpath(index.parent / link.partition("#")[0])).relative_to(ROOT)
            if path in rest:
                rest.remove(path)
                named.append(path)
        yield caption, named
    yield MORE, sorted(rest)


def public(module: ModuleType) -> Iterator[tuple[ModuleType, list[str]]]:
    """The public modules from this one on, each with its public names, imported where they would be when first used."""
    names: list[str] = []
    inside: list[ModuleType] = []
    for name in [*module.__all__, *(LATER if module is nearcall else [])]:
        try:
            value = getattr(module, name)
        except AttributeError:
            value = import_module(f"{module.__name__}.{name}")
        setattr(module, name, value)
        if isinstance(value, ModuleType):
            inside.append(value)
        elif not name.startswith("__"):
            names.append(name)
    yield module, names
    for each in inside:
        yield from public(each)


def said(module: ModuleType, name: str) -> str:
    """What the line after a value's assignment says of it; it may be in any file of the module's folder."""
    for path in sorted(Path(str(module.__file__)).parent.rglob("*.py")):
        body = ast.parse(path.read_text(encoding="utf-8")).body
        for line, after in pairwise(body):
            targets = getattr(line, "targets", [getattr(line, "target", None)])
            text = after.value if isinstance(after, ast.Expr) else None
            if any(getattr(each, "id", "") == name for each in targets) and isinstance(text, ast.Constant):
                return str(text.value)
    return ""


def reference(module: ModuleType, names: list[str]) -> str:
    """The page of a module; Sphinx reads the docstrings, but those of values, which have their class's."""
    lines = [f"# {module.__name__}", "", "```{eval-rst}", f".. automodule:: {module.__name__}", ""]
    for name in names:
        value = getattr(module, name)
        if isinstance(value, type):
            kind = "exception" if issubclass(value, BaseException) else "class"
            lines += [f".. auto{kind}:: {name}", "   :members:", ""]
        elif inspect.isroutine(value):
            lines += [f".. autofunction:: {name}", ""]
        else:
            shown = value if isinstance(value, str) else repr(value).replace("typing.", "")
            lines += [f".. py:data:: {name}", f"   :value: {shown}", "", f"   {said(module, name)}", ""]
    return "\n".join([*lines, "```", ""])


def not_in_the_reference(folder: Path) -> Iterator[str]:
    """Public names without a place in the site."""
    for module, names in public(nearcall):
        page = folder / "reference" / f"{module.__name__}.html"
        found = Links(page.read_text(encoding="utf-8")).anchors if page.exists() else set[str]()
        yield from (f"{page.name}: {name} is missing" for name in names if f"{module.__name__}.{name}" not in found)


def stage(folder: Path, rust: bool) -> None:
    """Writes the source of the site; ``rust``: whether the reference of the crates lies beside it."""
    shutil.rmtree(folder, ignore_errors=True)
    source = Source(folder)
    modules = dict(public(nearcall))
    for module, names in modules.items():
        source.write(Path("reference", f"{module.__name__}.md"), reference(module, names))
    crates = '<a href="../rust/nearcall_core/index.html">The crates</a> have one of their own.' if rust else ""
    text = f"# Reference\n\nAll public names of the Python package, by module. {crates}\n\n```{{toctree}}\n"
    source.write(Path("reference/index.md"), text + "\n".join(module.__name__ for module in modules) + "\n```\n")
    below: dict[Path, list[Path]] = {}
    for index in ("docs/adr", "docs/measurements"):
        below[Path(index, "README.md")] = [path.relative_to(ROOT) for path in sorted((ROOT / index).glob("0*.md"))]
    below[Path("examples/grpc/README.md")] = [page for page in pages() if page.match("examples/grpc/*/README.md")]
    below[Path("lab/README.md")] = [path.relative_to(ROOT) for path in sorted((ROOT / "lab/docs").rglob("*.md"))]
    children = {path for paths in below.values() for path in paths}
    for page in pages():
        entries = [str(place(path)) for path in below.get(page, [])]
        more = tree("", place(page).parent, entries) if entries else ""
        if page == Path("README.md"):
            for caption, named in side_bar():
                inside = [str(place(path)) for path in named if path not in children]
                if caption == "Start":
                    inside = ["docs/index", *inside, "reference/index"]
                more += tree(caption, Path(), inside) if inside else ""
        source.add(page, more)


class Links(HTMLParser):
    """What a page of the site links to, and where it can be linked to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """What the parser calls at each tag."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            elif name in ("href", "src") and value and not re.match(r"\w+:|//", value):
                self.links.append(value)


def broken(folder: Path) -> Iterator[str]:
    """The links of the site that lead nowhere."""
    read = {
        path: Links(path.read_text(encoding="utf-8")) for path in folder.rglob("*.html") if "rust" not in path.parts
    }
    for page, links in read.items():
        for link in links.links:
            path, _, anchor = link.partition("#")
            target = Path(os.path.normpath(page.parent / unquote(path.partition("?")[0]))) if path else page
            if target.is_dir():
                target /= "index.html"
            if not target.exists() or (anchor and target in read and unquote(anchor) not in read[target].anchors):
                yield f"{page.relative_to(folder)}: {link}"


def build(folder: Path) -> int:
    """Writes the site; the exit status."""
    from sphinx.cmd.build import build_main

    source, doctrees = folder.parent / "site/source", folder.parent / "site/doctrees"
    stage(source, rust=(folder / "rust/nearcall_core").exists())
    strict = ["-q", "-W", "--keep-going", "-E", "-j", "auto", "-b", "html"]
    status = build_main([*strict, "-c", str(SETTINGS), "-d", str(doctrees), str(source), str(folder)])
    faults = [*broken(folder), *not_in_the_reference(folder)]
    print(*faults, sep="\n", end="\n" if faults else "")
    return status or bool(faults)


if __name__ == "__main__":
    sys.exit(build(Path(sys.argv[1] if len(sys.argv) > 1 else "out/docs").resolve()))
