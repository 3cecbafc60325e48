"""Which launch comes when.

Cells that differ in nothing but their mechanism form a group: they are what a reader compares, so their launches stand
next to each other in time. A group's launches of one number, or of two, form a block; all groups do their first block
before any does its second, so that a run which ends early has a bit of everything.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from nearcall_lab.scenario.cell import Cell

Order = Literal["abba", "rounds"]
"""``abba``: in a block of two numbers every mechanism comes once in a random order and once in its reverse, so that a
drift of the machine meets all of them alike. ``rounds``: every number in a random order of its own."""


@dataclass(frozen=True)
class Slot:
    """One launch to be made."""

    index: int
    """The cell's place in the scenario."""
    number: int


def groups_of(cells: Sequence[Cell]) -> list[list[int]]:
    """Indices of cells by what is done, in the scenario's order."""
    found: dict[str, list[int]] = {}
    for index, cell in enumerate(cells):
        found.setdefault(msgspec.structs.replace(cell, mechanism="").digest(), []).append(index)
    return list(found.values())


def block_length(order: Order) -> int:
    """Launch numbers in one block."""
    return 2 if order == "abba" else 1


def block(group: Sequence[int], first: int, numbers: int, order: Order, seed: int) -> list[Slot]:
    """The launches of one group with the numbers from `first`. The same arguments always give the same order."""
    shuffled = list(group)
    # A text as the seed, so that what comes does not depend on how many blocks came before: a resumed run goes on as
    # it would have done.
    random.Random(f"{seed}/{first}/{group[0]}").shuffle(shuffled)
    slots = [Slot(index, first) for index in shuffled]
    for number in range(first + 1, first + numbers):
        if order == "abba":
            shuffled.reverse()
        slots += [Slot(index, number) for index in shuffled]
    return slots


def rounds(groups: Sequence[Sequence[int]], first: int, end: int, order: Order, seed: int) -> Iterator[Slot]:
    """All launches with numbers from `first` up to, but not including, `end`."""
    step = block_length(order)
    for start in range(first, end, step):
        turn = list(groups)
        random.Random(f"{seed}/{start}").shuffle(turn)
        for group in turn:
            yield from block(group, start, min(step, end - start), order, seed)
