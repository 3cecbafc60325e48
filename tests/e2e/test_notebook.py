"""The notebook in `examples/notebook` says what it is shown to say."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import nbclient
import nbformat

EXAMPLE = Path(__file__).resolve().parents[2] / "examples/notebook"


def shown(cells: Any) -> list[list[str]]:
    """What each cell has printed, and the kinds of what it has drawn."""
    return [[_shown(output) for output in cell.get("outputs", ())] for cell in cells]


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return str(output.text)
    if output.output_type == "execute_result":
        return str(output.data["text/plain"])
    return " ".join(sorted(output.get("data", {"error": None})))


def test_the_notebook_runs_as_it_is_shown() -> None:
    notebook = cast("Any", nbformat).read(EXAMPLE / "instrument.ipynb", 4)  # it says no types
    before = shown(notebook.cells)
    nbclient.NotebookClient(notebook, timeout=60, resources={"metadata": {"path": str(EXAMPLE)}}).execute()
    assert shown(notebook.cells) == before
