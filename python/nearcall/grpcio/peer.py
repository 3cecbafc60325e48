"""Imports the package ``grpcio``, which not every user has. The other modules here get it from this one."""

from __future__ import annotations

from typing import Any

try:
    import grpc
except ImportError as error:  # pragma: no cover - every environment of the tests has it
    raise ImportError(
        "nearcall.grpcio serves and calls what was written for grpcio, and that package is not installed here: "
        "pip install grpcio"
    ) from error

__all__ = ["grpc", "status_code", "status_number"]

_CODES: dict[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}


def status_code(number: int) -> grpc.StatusCode:
    """A status code as grpcio's enum."""
    return _CODES.get(number, grpc.StatusCode.UNKNOWN)


def status_number(code: Any) -> int:
    """The number of a code, which may be a number already; the number of ``UNKNOWN`` for anything else."""
    if isinstance(code, grpc.StatusCode):
        return int(code.value[0])
    return code if isinstance(code, int) and code in _CODES else int(grpc.StatusCode.UNKNOWN.value[0])
