"""Reading what a study wrote."""

from __future__ import annotations

from pathlib import Path

from nearcall_lab.results.store import decode_file
from nearcall_lab.studies.model import StudyResult

FILE = "study.json"


def read_study(path: Path) -> StudyResult:
    """A study by its directory or its ``study.json``. Raises `StoreError` with one line of reason."""
    file = path / FILE if path.is_dir() else path
    return decode_file(file, StudyResult, hint="nearcall-lab study makes such a directory")
