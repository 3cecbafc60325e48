"""Reading what a study wrote."""

from __future__ import annotations

from pathlib import Path

import msgspec

from nearcall_lab.results.store import StoreError
from nearcall_lab.studies.model import StudyResult

FILE = "study.json"


def read_study(path: Path) -> StudyResult:
    """A study by its directory or its ``study.json``. Raises `StoreError` with one line of reason."""
    file = path / FILE if path.is_dir() else path
    try:
        content = file.read_bytes()
    except OSError as error:
        raise StoreError(f"{file}: {error.strerror}; nearcall-lab study makes such a directory") from None
    try:
        return msgspec.json.decode(content, type=StudyResult)
    except msgspec.DecodeError as error:  # ValidationError is one
        raise StoreError(f"{file}: broken: {error}") from None
