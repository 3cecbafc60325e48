"""Check that every part of the repository knows only the parts below it (docs/adr/0001-floors.md).

Usage: python tools/check_floors.py [root]
Prints one line for each breach and ends with status 1 if there is any.
"""

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from circles import circles
from python_modules import Package
from rust_modules import Crate

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

# From the ground up. A crate may depend on those on lower floors; neighbours on one floor do not know each other.
FLOORS: list[set[str]] = [
    {"platform"},
    {"ring"},
    {"wire"},
    {"http"},
    {"transport"},
    {"core"},
    {"route", "sandbox"},
    {"python", "rmr"},
    {"models"},
]
FLOOR_OF = {f"nearcall-{name}": floor for floor, names in enumerate(FLOORS) for name in names}
# The files of a crate have an order among themselves, too: no two of them know each other, not even by way of others.
# The models are compiled from other crates' files.
MAY_HAVE_CIRCLES = {"models"}
DEPENDENCY_TABLES = ("dependencies", "dev-dependencies", "build-dependencies")
PYTHON_CRATES = {"pyo3", "pyo3-ffi", "pyo3-build-config", "numpy", "pythonize"}
LOCK_CRATES = {"crossbeam", "crossbeam-channel", "crossbeam-utils", "parking_lot", "parking_lot_core", "spin"}
IO_CRATES = {"libc", "mio", "nix", "rustix", "socket2", "tokio"}
NAMES_PYO3 = re.compile(r"\bpyo3\w*::|\bextern\s+crate\s+pyo3|#\[py(class|function|methods|module)\b")
DOES_IO = re.compile(r"\bstd::(fs|net|os|process)\b")
# Clippy cannot find the methods of PyO3's token, nor tell the atomics of a crate's sync.rs from the standard library's:
# it looks through re-exports. The locks it can: see clippy.toml.
WAITS_FOR_INTERPRETER = re.compile(r"\bPython::(try_)?attach\w*\(|\.detach\(")
INTERPRETER = "interpreter.rs"
NAMES_ATOMICS = re.compile(r"\b(std|core)::sync::atomic\b|(?<!\bloom::sync::)\batomic::")
STRONGER_THAN_RELAXED = re.compile(r"\bOrdering::(Acquire|Release|AcqRel|SeqCst)\b")
ATOMICS = "sync.rs"
LAB = "nearcall_lab"

# The rooms of the Python package, from the ground up: its folders, and the modules beside them. Rooms on one floor do
# not know each other either; within a room modules may import others, but no two each other.
ROOMS: list[set[str]] = [
    {"_core", "lazy"},
    {"status", "metadata_pairs"},
    {"errors"},
    {"types"},
    {"log", "options", "codec"},
    {"service", "sandbox"},
    {"call"},
    {"auth", "directory", "health", "introspection", "observe", "reflection"},
    {"references"},
    {"loops"},
    {"client"},
    {"aio"},
    {"server"},
    {"plugin", "grpcio", "route", "profile"},
    {"__init__"},  # what users import; the command line is one of them
    {"testing", "cli"},
    {"__main__"},
]
FLOOR_OF_ROOM = {name: floor for floor, names in enumerate(ROOMS) for name in names}
PACKAGE = "nearcall"


def dependencies(manifest: dict[str, Any]) -> Iterator[str]:
    """Names of all packages a manifest depends on, those of tests, build scripts and single platforms included."""
    for holder in (manifest, *manifest.get("target", {}).values()):
        for table in DEPENDENCY_TABLES:
            for key, value in holder.get(table, {}).items():
                yield value.get("package", key) if isinstance(value, dict) else key


def check_manifest(path: Path) -> Iterator[str]:
    """Breaches in one crate's Cargo.toml."""
    manifest = tomllib.loads(path.read_text(encoding="utf-8"))
    name: str = manifest["package"]["name"]
    if name != f"nearcall-{path.parent.name}":
        yield f"the crate is named {name}; its folder asks for nearcall-{path.parent.name}"
        return
    if name not in FLOOR_OF:
        yield f"{name} has no floor: enter it in FLOORS in tools/check_floors.py and in CONTRIBUTING.md"
        return
    if manifest.get("lints", {}).get("workspace") is not True:
        yield f"{name} does not take the workspace's lints: add `[lints] workspace = true`"
    for other in dependencies(manifest):
        if other != name and FLOOR_OF.get(other, -1) >= FLOOR_OF[name]:
            yield f"{name} depends on {other}, which is not below it"
        if other in PYTHON_CRATES and name != "nearcall-python":
            yield f"{name} depends on {other}: only crates/python may know Python"
        if other in LOCK_CRATES:
            yield f"{name} depends on {other}: locks are those of crates/platform/src/lock.rs (docs/adr/0015)"
        if other in {*IO_CRATES, "nearcall-platform"} and name == "nearcall-wire":
            yield f"{name} depends on {other}: the wire format does no I/O"


def check_rust(path: Path, crate: str) -> Iterator[str]:
    """Breaches in one Rust source file of a crate (given by its folder's name)."""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        code = line.split("//", 1)[0]
        if crate != "python" and NAMES_PYO3.search(code):
            yield f"line {number} names PyO3: only crates/python may know Python"
        if crate == "wire" and DOES_IO.search(code):
            yield f"line {number} does I/O: the wire format is pure functions over bytes"
        if crate == "python" and path.name != INTERPRETER and WAITS_FOR_INTERPRETER.search(code):
            yield f"line {number} waits for the interpreter: use attach and detach of src/gil/{INTERPRETER}"
        if crate == "python" and STRONGER_THAN_RELAXED.search(code):
            yield f"line {number} orders memory: that is for the core, where it has a model"
        if crate != "python" and "src" in path.parts and path.name != ATOMICS and NAMES_ATOMICS.search(code):
            yield f"line {number} names the standard library's atomics: use those of the crate's {ATOMICS}"


def check_circles(source: Path) -> Iterator[tuple[Path, str]]:
    """Files and folders of one crate that know each other, given its `src`; each group of files with its first."""
    for circle in Crate(source).circles():
        names = ", ".join(str(file.relative_to(source)) for file in circle)
        yield circle[0], f"these files know each other, and one must not: {names}"
    for folders in Crate(source).circles_of_folders():
        names = ", ".join("/".join(folder) or "lib.rs" for folder in folders)
        yield source, f"these folders know each other, and one must not: {names}"


def check_modules(folder: Path) -> Iterator[tuple[Path, str]]:
    """Modules of the package that import each other, given its folder; each group with its first file.

    What only type checkers import may close a circle of two: a thing names what it was made by.
    """
    package = Package(folder)
    for types, most in ((False, 1), (True, 2)):
        for circle in circles(package.graph(types=types)):
            names = ", ".join(".".join(module) for module in circle)
            if len(circle) > most:
                yield package.files[circle[0]], f"these modules import each other, and one must not: {names}"


def check_python(path: Path) -> Iterator[str]:
    """Breaches in one Python file of the runtime."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [node.module or ""]
        for name in names:
            if name.split(".")[0] in {LAB, "tests"}:
                yield f"line {node.lineno} imports {name}: the runtime knows neither its lab nor its tests"


def imported_rooms(node: ast.Import | ast.ImportFrom, inside: tuple[str, ...]) -> Iterator[str]:
    """The rooms that an import statement names.

    Args:
        node: The statement.
        inside: The package that the module is in, below nearcall: empty, or a room and folders in it.
    """
    paths: list[list[str]] = []
    if isinstance(node, ast.Import):
        names = [alias.name.split(".") for alias in node.names]
        paths = [[*name[1:], "__init__"] for name in names if name[0] == PACKAGE]
    else:
        path = node.module.split(".") if node.module else []
        if node.level:
            path = [*inside[: len(inside) + 1 - node.level], *path]
        elif path[0] == PACKAGE:
            path = path[1:]
        else:
            return
        # `from . import x`: x is a room, or a name that the package itself gives.
        ends = [alias.name if alias.name in FLOOR_OF_ROOM else "__init__" for alias in node.names]
        paths = [path] if path else [[end] for end in ends]
    yield from (path[0] for path in paths)


def check_rooms(path: Path, package: Path) -> Iterator[str]:
    """Breaches of the order of the rooms in one Python file of the package.

    An import inside a function counts like any other: what is imported later is known all the same.
    """
    parts = path.relative_to(package).with_suffix("").parts
    room = parts[0]
    if room not in FLOOR_OF_ROOM:
        yield "is in no room: enter its folder in ROOMS in tools/check_floors.py and in CONTRIBUTING.md"
        return
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            continue
        for other in imported_rooms(node, parts[:-1]):
            if other == room:
                continue
            if other not in FLOOR_OF_ROOM:
                yield f"line {node.lineno} imports {other}, which is no room"
            elif FLOOR_OF_ROOM[other] >= FLOOR_OF_ROOM[room]:
                yield f"line {node.lineno} imports {other}, which is not below {room}"


def breaches(root: Path) -> Iterator[tuple[Path, str]]:
    """All breaches under a repository's root, with the file each is in."""
    for manifest in sorted((root / "crates").glob("*/Cargo.toml")):
        yield from ((manifest, text) for text in check_manifest(manifest))
        for source in sorted(manifest.parent.rglob("*.rs")):
            yield from ((source, text) for text in check_rust(source, manifest.parent.name))
        if manifest.parent.name not in MAY_HAVE_CIRCLES:
            yield from check_circles(manifest.parent / "src")
    package = root / "python" / PACKAGE
    yield from check_modules(package)
    for source in sorted(package.rglob("*.py*")):
        if source.suffix in {".py", ".pyi"}:
            yield from ((source, text) for text in check_python(source))
        if source.suffix == ".py":  # the stub of the compiled module names types of those who use it
            yield from ((source, text) for text in check_rooms(source, package))


def main() -> int:
    """Run the check on the repository, or on the root given as the only argument."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent.parent
    found = list(breaches(root))
    for path, text in found:
        print(f"{path.relative_to(root)}: {text}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
