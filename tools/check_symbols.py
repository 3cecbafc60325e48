"""Whether every promised Python that is here exports the C functions that the binding declares by itself.

PyO3 knows which function came with which version. What `crates/python` declares in an `extern` block of its own, nobody
checks: a function that Python 3.10 lacks is found only when `import nearcall` fails there. Prints one line for each
version; ends with status 1 if one of them lacks a function.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from try_versions import ROOT, find, promised

SOURCES = ROOT / "crates" / "python" / "src"
_BLOCK = re.compile(r'extern "C(?:-unwind)?" \{(.*?)^\}', re.DOTALL | re.MULTILINE)
_FUNCTION = re.compile(r"\bfn (_?Py\w+)\(")
_LACKING = "import ctypes, sys; print(*(name for name in sys.argv[1:] if not hasattr(ctypes.pythonapi, name)))"


def declared(source: str) -> list[str]:
    """The functions of Python's that Rust source declares in blocks of its own."""
    return [name for block in _BLOCK.findall(source) for name in _FUNCTION.findall(block)]


def lacking(python: Path, names: list[str]) -> list[str]:
    """Those that a Python does not export."""
    command = [python, "-I", "-c", _LACKING, *names]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.split()


def main() -> int:
    """The exit status."""
    names = sorted({name for file in SOURCES.rglob("*.rs") for name in declared(file.read_text(encoding="utf-8"))})
    failed = False
    for version in promised():
        python = find(version)
        if python is None:
            print(f"Python {version}: not here, not checked")
        elif missing := lacking(python, names):
            print(f"Python {version} has no {', '.join(missing)}, which crates/python declares")
            failed = True
        else:
            print(f"Python {version}: has all {len(names)} functions that crates/python declares")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
