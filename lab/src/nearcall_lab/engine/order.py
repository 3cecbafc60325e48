"""The order of launches.

What one launch measures is a batch of cells of one mechanism: a single cell, or all that the same processes can serve.
Batches of the same work form a group: a reader compares them, so their launches are made close together in time. A
group's launches of one number, or of two, form a block; all groups do their first block before any does its second, so
that a run which ends early has some launches of every group.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from nearcall_lab.scenario.cell import Cell, CellsPerLaunch

Order = Literal["abba", "rounds"]
"""``abba``: in a block of two numbers every mechanism comes once in a random order and once in its reverse, so that a
drift of the machine affects all of them alike. ``rounds``: every number in a random order of its own.
"""

Batch = tuple[int, ...]
"""Places in the scenario of the cells that a launch measures."""


@dataclass(frozen=True)
class Slot:
    """One launch to be made."""

    cells: Batch
    """In the order in which they are measured."""
    number: int


def groups_of(cells: Sequence[Cell], per_launch: CellsPerLaunch = "one") -> list[list[Batch]]:
    """The batches, grouped by the work that is done, in the scenario's order."""
    groups: dict[str, dict[str, list[int]]] = {}
    for index, cell in enumerate(cells):
        digest = msgspec.structs.replace(cell, mechanism="").digest()
        # Only cells that need the same processes can share them.
        processes = f"{cell.placement} {cell.same_process} {cell.mode.client_processes} {cell.host} {cell.network}"
        work = digest if per_launch == "one" else processes
        groups.setdefault(work, {}).setdefault(cell.mechanism, []).append(index)
    return [[tuple(batch) for batch in group.values()] for group in groups.values()]


def block_length(order: Order) -> int:
    """Launch numbers in one block."""
    return 2 if order == "abba" else 1


def block(group: Sequence[Batch], first: int, numbers: int, order: Order, seed: int) -> list[Slot]:
    """The launches of one group with the numbers from `first`. Where their order is reversed, so is that of the cells
    within each launch. The same arguments always give the same order.
    """
    shuffled = [list(batch) for batch in group]
    # A text as the seed, so that the order does not depend on how many blocks came before: a resumed run continues as
    # it would have done.
    random.Random(f"{seed}/{first}/{group[0][0]}").shuffle(shuffled)
    for batch in shuffled:
        random.Random(f"{seed}/{first}/{batch[0]}").shuffle(batch)
    slots = [Slot(tuple(batch), first) for batch in shuffled]
    for number in range(first + 1, first + numbers):
        if order == "abba":
            shuffled.reverse()
            for batch in shuffled:
                batch.reverse()
        slots += [Slot(tuple(batch), number) for batch in shuffled]
    return slots


def rounds(groups: Sequence[Sequence[Batch]], first: int, end: int, order: Order, seed: int) -> Iterator[Slot]:
    """All launches with numbers from `first` up to, but not including, `end`."""
    step = block_length(order)
    for start in range(first, end, step):
        turn = list(groups)
        random.Random(f"{seed}/{start}").shuffle(turn)
        for group in turn:
            yield from block(group, start, min(step, end - start), order, seed)
