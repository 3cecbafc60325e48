"""Write the reference of the Python package, from its docstrings, as web pages.

Usage: python tools/make_reference.py [folder]    (default: out/docs/python)
Ends with status 1 if something public is left out.
"""

import re
import sys
import warnings
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pdoc.docstrings
import pdoc.render

import nearcall

LATER = ["sandbox", "testing"]
"""Public modules that `import nearcall` does not name."""


def resolve(module: ModuleType) -> None:
    """Imports what a module, and those in it, import when it is first used: pdoc looks for what is there."""
    for name in module.__all__:
        try:
            value = getattr(module, name)
        except AttributeError:
            value = import_module(f"{module.__name__}.{name}")
        setattr(module, name, value)
        if isinstance(value, ModuleType):
            resolve(value)


def without_marks(read: Any) -> Any:
    """A reader of docstrings that knows what two colons before an example mean."""

    def reader(text: str, *arguments: Any) -> Any:
        return read(re.sub(r"^::\n|(?<=\S):(?=:$)|(?<=\.) ::$", "", text, flags=re.MULTILINE), *arguments)

    return reader


def make(folder: Path) -> list[str]:
    """Writes the pages; the warnings that something is left out."""
    nearcall.__all__ += LATER
    resolve(nearcall)
    pdoc.docstrings.rst = without_marks(pdoc.docstrings.rst)
    pdoc.render.configure(docformat="google", show_source=False, footer_text=f"nearcall {nearcall.__version__}")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        pdoc.pdoc(
            "nearcall", "!nearcall.service", output_directory=folder
        )  # the decorator, not the folder of that name
    return [str(warning.message) for warning in caught if "does not resolve" in str(warning.message)]


if __name__ == "__main__":
    target = Path(sys.argv[1] if len(sys.argv) > 1 else "out/docs/python")
    left_out = make(target)
    print(*left_out, sep="\n", end="\n" if left_out else "")
    sys.exit(bool(left_out))
