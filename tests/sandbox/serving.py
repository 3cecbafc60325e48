"""A program that confines itself, and only then imports the service that it offers to the process that started it."""

from __future__ import annotations

from pathlib import Path

import nearcall
from nearcall.sandbox import Policy, confine


def main() -> None:
    confine(Policy(read=(str(Path(__file__).parents[1]),)))
    from tests.sandbox.services import Work

    nearcall.serve(Work(), "stdio:")
