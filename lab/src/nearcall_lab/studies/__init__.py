"""Five published studies: their figures, their method as published, and the same questions answered by sound
measurements.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from nearcall_lab.studies.model import Study

NAMES = {
    "art": "nearcall_lab.studies.art",
    "rpyc-http": "nearcall_lab.studies.rpyc_http",
    "grpc-burst": "nearcall_lab.studies.grpc_burst",
    "rmr": "nearcall_lab.studies.rmr",
    "shm": "nearcall_lab.studies.shm",
}


def study(name: str) -> Study:
    """The study of that name. Raises `KeyError`."""
    return cast("Study", import_module(f"{NAMES[name]}.study").STUDY)


def titles() -> dict[str, str]:
    """Title of each study, by name."""
    return {name: study(name).published()[0] for name in NAMES}
