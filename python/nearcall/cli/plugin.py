"""``nearcall plugin new|check|run|list|pack|install|explain|shim``."""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib.util
import logging
import sys
import tempfile
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..types.shown import shown
from . import UsageError, plugin_shim
from .parsing import add_action

if TYPE_CHECKING:
    from ..plugin.manifests.manifest import Manifest, Permission
    from ..plugin.points.settings import PluginEvent

__all__ = ["add_to"]

_MANIFEST = """\
id = "{id}"
name = "{name}"
version = "0.1.0"
summary = "Says in one line what it does."
author = "Your name <you@example.org>"
entry = "{module}:start"

[host]
api = ">=1.0, <2"

[permissions]
# The services of the host that it needs, and why. Users read this.
# speech = "Speaks what it has filtered."
"""
_MODULE = '''\
"""{name}: a plugin."""

from nearcall import plugin

# The host's interface says what there is to extend and to use:
#
#     from host_api import Speech, spoken_text
#
#     speech = plugin.use("speech", Speech)
#
#     @spoken_text.handler
#     def louder(text: str) -> str:
#         return text.upper()


def start() -> None:
    """The host has connected: from here on its services can be called."""
    print("{name} is running")


@plugin.on_stop
def stop() -> None:
    """The host is about to end this process."""
'''


def add_to(commands: Any) -> None:
    """Adds the command to the parser."""
    parser = commands.add_parser(
        "plugin", help="make, check, try, pack and install plugins", description="Everything about plugins."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    def action(name: str, run: Any, text: str, what: str, meaning: str, many: bool = False) -> Any:
        sub = add_action(actions, name, run, text)
        sub.add_argument(what.lower(), type=Path, metavar=what, help=meaning, nargs="+" if many else None)
        return sub

    own = "the plugin's directory"
    new = action("new", _new, "begin a plugin", "DIRECTORY", "where to; its name becomes the id")
    new.add_argument("--id", help="the plugin's id, if it is not the directory's name")
    check = action("check", _check, "say what is wrong with plugins, without running them", "DIRECTORY", own, many=True)
    run = action("run", _run, "run one plugin and show what it does, until Ctrl-C", "DIRECTORY", own)
    for each in (check, run):
        each.add_argument(
            "--path", action="append", default=[], help="a directory that it may import from, such as the host's"
        )
    run.add_argument("--api", default="1.0", help="the version of the host's interface (default: 1.0)")
    run.add_argument("--allow", action="append", default=[], metavar="PERMISSION", help="grant files, network, ...")
    run.add_argument("--once", action="store_true", help="end when it is clear whether it starts")
    action("list", _list, "list the plugins in a host's directory", "DIRECTORY", "where the host has its plugins")
    pack = action("pack", _pack, "pack a plugin into one file", "DIRECTORY", own)
    pack.add_argument("-o", "--output", type=Path, help="the file (default: ID-VERSION.plugin.zip, here)")
    install = action("install", _install, "unpack a plugin into a host's directory", "FILE", "what pack has made")
    install.add_argument("directory", type=Path, metavar="DIRECTORY", help="where the host has its plugins")
    install.add_argument("--replace", action="store_true", help="replace the plugin if it is there already")
    action("explain", _explain, "say what a plugin may do if it is granted all it asks for", "DIRECTORY", own)
    plugin_shim.add_to(actions)


def _read(directory: Path) -> Manifest:
    try:
        from ..plugin.manifests.manifest import read_manifest
    except ModuleNotFoundError as error:
        raise UsageError(f"plugins need {error.name}: pip install 'nearcall[plugins]'") from None
    return read_manifest(directory)


def _new(options: argparse.Namespace) -> None:
    directory: Path = options.directory
    if directory.exists() and any(directory.iterdir()):
        raise UsageError(f"{directory} is there and not empty: name another directory")
    name = directory.resolve().name
    module = "".join(char if char.isalnum() and char.isascii() else "_" for char in name.lower())
    module = f"plugin_{module}" if not module[:1].isalpha() else module
    directory.mkdir(parents=True, exist_ok=True)
    values = {"id": options.id or name.lower(), "name": name, "module": module}
    (directory / "plugin.toml").write_text(_MANIFEST.format(**values), encoding="utf-8")
    (directory / f"{module}.py").write_text(_MODULE.format(**values), encoding="utf-8")
    _read(directory)
    print(f"{directory} has a plugin.toml and {module}.py. Try it: nearcall plugin run {directory}")


def _check(options: argparse.Namespace) -> int:
    from ..plugin.manifests.manifest import ManifestError

    wrong = 0
    for directory in options.directory:
        try:
            manifest = _read(directory)
        except ManifestError as error:
            print(error)
            wrong += len(error.mistakes)
            continue
        module, _, function = manifest.entry.partition(":")
        folders = [directory, *options.path]
        if not _importable(module, folders):
            where = ", ".join(map(str, folders))
            todo = f"write {module}.py, or name the host's directory with --path"
            print(f"{manifest.path}: entry: there is no module '{module}' in {where}: {todo}")
            wrong += 1
        elif function and (mistake := _missing(module, function, folders)):
            print(f"{manifest.path}: entry: {mistake}")
            wrong += 1
        else:
            print(f"{directory}: {manifest.id} {manifest.version} is well")
    return 1 if wrong else 0


def _importable(module: str, folders: list[str | Path]) -> bool:
    """Whether there is such a module, in one of the folders or on Python's path. None of its code is run."""
    top = module.partition(".")[0]
    if any(Path(each, top).is_dir() or Path(each, f"{top}.py").is_file() for each in folders):
        return True
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return False


def _missing(module: str, function: str, folders: list[str | Path]) -> str | None:
    """Why a module of one of the folders has no such function, as far as its text tells. None of its code is run."""
    path = Path(*module.split("."))
    ways = [Path(each, way) for each in folders for way in (path.with_suffix(".py"), path / "__init__.py")]
    file = next((way for way in ways if way.is_file()), None)
    if file is None:
        return None
    try:
        names = _names_in(file.read_bytes())
    except (SyntaxError, ValueError) as error:
        return f"{file} is no Python: {error}"
    if names is None or function in names:
        return None
    close = difflib.get_close_matches(function, names, n=1)
    return f"{file} has no function '{function}'{f': did you mean {close[0]}?' if close else ''}"


def _names_in(source: bytes) -> set[str] | None:
    """The names in the text of a module outside its functions and classes; ``None`` if it may have others.

    Raises:
        SyntaxError, ValueError: it is no Python.
    """
    names: set[str] = set()
    inner = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    todo: list[ast.AST] = [ast.parse(source)]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if isinstance(node, inner):
                names.add(node.name)
                continue
            if isinstance(node, ast.alias):
                if node.name == "*":
                    return None
                names.add(node.asname or node.name.partition(".")[0])
            elif isinstance(node, ast.Name):
                names.add(node.id)
            todo.append(node)
    # With these it may make names as it runs.
    return None if names & {"__getattr__", "globals", "vars", "locals", "setattr", "exec", "sys"} else names


def _run(options: argparse.Namespace) -> int:
    from ..plugin.host.host import PluginHost

    manifest = _read(options.directory)
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s", stream=sys.stderr)
    logging.getLogger("nearcall").setLevel(logging.WARNING)
    logging.getLogger("nearcall.plugin").setLevel(logging.INFO)

    def tell(event: PluginEvent) -> None:
        print(f"{event.plugin}: {event.kind}: {event.text}", flush=True)

    def ask(_manifest: Manifest, permission: Permission) -> bool:
        return permission.name in options.allow

    # Files that the plugin keeps are removed at the end: this is a trial.
    with tempfile.TemporaryDirectory(prefix="nearcall-plugin-") as data:
        host = PluginHost(
            [options.directory.resolve()],
            api=options.api,
            name="nearcall plugin run",
            ask=ask,
            on_event=tell,
            paths=options.path,
            data=data,
            reload=True,
        )
        with host:
            state = host.plugins[manifest.id].state
            if not options.once:
                threading.Event().wait()
    return 0 if state == "running" else 1


def _list(options: argparse.Namespace) -> int:
    from ..plugin.manifests.manifest import MANIFEST, ManifestError

    found = sorted(options.directory.glob(f"*/{MANIFEST}"))
    if not found:
        raise UsageError(f"there is no plugin in {options.directory}: each is in a directory of its own")
    rows: list[tuple[str, str, str]] = []
    wrong = 0
    for path in found:
        try:
            manifest = _read(path.parent)
            rows.append((manifest.id, manifest.version, manifest.summary))
        except ManifestError as error:
            wrong += 1
            count = len(error.mistakes)
            text = f"{count} mistake{'s' if count > 1 else ''}: see nearcall plugin check {path.parent}"
            rows.append((shown(path.parent.name), "-", shown(text)))
    widths = [max(len(row[at]) for row in rows) for at in (0, 1)]
    for name, version, text in rows:
        print(f"{name:{widths[0]}}  {version:{widths[1]}}  {text}")
    return 1 if wrong else 0


def _pack(options: argparse.Namespace) -> None:
    from ..plugin.manifests.packing import pack

    _read(options.directory)
    print(pack(options.directory, options.output))


def _install(options: argparse.Namespace) -> None:
    from ..plugin.manifests.packing import install

    manifest = install(options.file, options.directory, replace=options.replace)
    print(f"{manifest.id} {manifest.version} is in {manifest.directory}")
    for permission in manifest.permissions:
        print(f"  it asks for {permission.name}: {permission.why}")


def _explain(options: argparse.Namespace) -> None:
    from ..plugin.manifests.explaining import explain

    print(explain(_read(options.directory)))
