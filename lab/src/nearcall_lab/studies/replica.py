"""What the programs that repeat a study's published method have in common.

A replica measures as the study did, mistakes included, so that a reader can see where the published figure comes from.
The corrected tables use none of its results. It runs in a process of its own and writes one JSON object: ``{"tables":
{table id: {row: [value per column]}}, "checks": {flaw id: {name: value}}}``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from nearcall_lab.failure import explain

Cells = list["float | None"]
TRIAL = 0.01
"""A smaller share of a study's work only tries out whether all of it runs: then what has no share of its own, such as
the sizes of bursts, is smaller, too.
"""


@dataclass
class Findings:
    """The replica's tables, and the numbers that show the study's flaws."""

    tables: dict[str, dict[str, Cells]] = field(default_factory=dict)
    checks: dict[str, dict[str, float]] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    """The reason in one line, by row, for rows that could not run here."""
    further: dict[str, tuple[str, list[str]]] = field(default_factory=dict)
    """Title and columns of tables that the study does not have, by id; their rows are in `tables`."""

    def add(self, table: str, title: str, columns: list[str]) -> None:
        """Adds a table that the study does not have; `put` fills it."""
        self.further[table] = (title, columns)
        self.tables.setdefault(table, {})

    def put(self, table: str, row: str, values: Cells) -> None:
        """Fills one row."""
        self.tables.setdefault(table, {})[row] = values

    def check(self, flaw: str, **values: float) -> None:
        """Adds numbers that show one flaw."""
        self.checks.setdefault(flaw, {}).update(values)

    def attempt(self, row: str, work: Callable[[], object]) -> None:
        """Runs one row's work; a failure becomes its problem, and the other rows go on."""
        say(row)
        try:
            work()
        except Exception as error:  # any error of a peer goes into the table
            self.problems[row] = explain(error)


PROGRESS = "nearcall-lab progress: "
"""Prefix that distinguishes lines of `say` from what peers write to the same stream, such as the tracebacks of their
servers.
"""


def say(text: str) -> None:
    """Write one line of progress for the process that runs the replica."""
    print(f"{PROGRESS}{text}", file=sys.stderr, flush=True)


def main(run: Callable[[Findings, float], None]) -> None:
    """Entry point of a replica: ``--out FILE`` and ``--scale`` (1 is the study's own amount of work)."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    args = parser.parse_args()

    def keep() -> None:
        fresh = args.out.with_suffix(".new")
        fresh.write_text(json.dumps(vars(findings), indent=1))
        fresh.replace(args.out)

    class Kept(Findings):
        """Written down after each row: one that hangs must not cost the others."""

        def attempt(self, row: str, work: Callable[[], object]) -> None:
            super().attempt(row, work)
            keep()

    findings = Kept()
    try:
        run(findings, args.scale)
    finally:
        keep()
    # Some of the peers keep threads that never end.
    sys.stderr.flush()
    os._exit(0)
