"""Importing the library must stay cheap: it brings in only what every user needs."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout


SUBPROCESS = pytest.param(
    "subprocess", marks=pytest.mark.skipif(sys.version_info < (3, 11), reason="uuid of Python 3.10 imports it")
)


@pytest.mark.parametrize(
    "unwanted",
    [
        "numpy",
        "argparse",
        "asyncio",
        "difflib",
        "importlib.metadata",
        "inspect",
        "logging",
        "msgspec",
        "nearcall.cli",
        "nearcall.testing",
        "pickle",
        "ssl",
        SUBPROCESS,
    ],
)
def test_import_leaves_out(unwanted: str) -> None:
    assert run(f"import nearcall, sys; print({unwanted!r} in sys.modules)") == "False\n"


def test_threads_serve_and_call_without_asyncio() -> None:
    code = """
import sys, nearcall

@nearcall.service
class Calculator:
    def add(self, a: int, b: int) -> int:
        return a + b

with nearcall.Server(Calculator(), "inproc://import"), nearcall.connect("inproc://import", Calculator) as calc:
    assert calc.add(1, 2) == 3
print([name for name in ("asyncio", "numpy", "pickle") if name in sys.modules])
"""
    assert run(code) == "[]\n"


def test_aio_is_there_when_it_is_asked_for() -> None:
    assert run("import nearcall; print(nearcall.aio.connect.__module__)") == "nearcall.aio.channel\n"
    assert run("from nearcall import *; print(aio.connect.__module__)") == "nearcall.aio.channel\n"


def test_what_is_not_there_is_said() -> None:
    code = """
import nearcall
try:
    nearcall.conect
except AttributeError as error:
    print(error)
"""
    assert run(code) == "module 'nearcall' has no attribute 'conect'\n"


@pytest.mark.parametrize("package", ["nearcall", "nearcall.directory", "nearcall.plugin", "nearcall.sandbox"])
def test_type_checkers_see_what_is_imported_later(package: str) -> None:
    """A package's table, what type checkers read in its place, and its ``__all__`` say the same."""
    module = importlib.import_module(package)
    assert module.__file__ is not None
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    [block] = [node for node in tree.body if isinstance(node, ast.If)]
    checked = {
        alias.name: node.module
        for node in block.body
        if isinstance(node, ast.ImportFrom) and node.level
        for alias in node.names
    }
    [call] = [node for node in ast.walk(ast.Module(block.orelse, [])) if isinstance(node, ast.Call)]
    table = {name: home for home, names in ast.literal_eval(call.args[1]).items() for name in names}
    modules = [ast.literal_eval(keyword.value) for keyword in call.keywords]
    assert {**table, **dict.fromkeys(modules[0] if modules else [])} == checked
    assert set(module.__all__) - {"__version__"} == set(checked)
    for name in module.__all__:
        assert name in dir(module)
        getattr(module, name)


@pytest.mark.parametrize("package", ["nearcall", "nearcall.directory", "nearcall.plugin", "nearcall.sandbox"])
def test_no_module_takes_the_place_of_a_name(package: str) -> None:
    """Importing a module below a package sets its name there, whatever the package's table says."""
    code = f"""
import importlib, pkgutil, types
package = importlib.import_module({package!r})
below = [each.name for each in pkgutil.iter_modules(package.__path__)]
meant = {{"aio", "auth", "directory", "grpcio", "health", "introspection", "observe", "plugin", "route"}}
for name in {{*below}} & {{*package.__all__}} - meant:
    importlib.import_module(f"{{package.__name__}}.{{name}}")
    assert not isinstance(getattr(package, name), types.ModuleType), name
"""
    run(code)
