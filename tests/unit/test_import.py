"""Importing the library must stay cheap: it brings in only what every user needs."""

from __future__ import annotations

import subprocess
import sys

import pytest

MODULES = "import nearcall.service, nearcall.errors, nearcall.description"


@pytest.mark.parametrize("unwanted", ["numpy", "argparse", "asyncio", "difflib", "nearcall.cli", "pickle"])
def test_import_leaves_out(unwanted: str) -> None:
    code = f"{MODULES}; import sys; sys.exit({unwanted!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
