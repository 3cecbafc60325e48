"""Which launch comes when."""

from __future__ import annotations

from collections import Counter

import pytest

from made_up import scenario
from nearcall_lab.engine.order import Order, groups_of, rounds

TEXT = """
title = "x"
[[cells]]
mechanisms = ["fast", "slow", "on-a-loop"]
size = [1, 2]
"""


def test_groups_are_what_a_reader_compares() -> None:
    cells = [planned.cell for planned in scenario(TEXT).planned]
    assert groups_of(cells) == [[(0,), (1,), (2,)], [(3,), (4,), (5,)]]
    assert groups_of(cells, "all") == [[(0, 3), (1, 4), (2, 5)]]


@pytest.mark.parametrize("order", ["abba", "rounds"])
@pytest.mark.parametrize("launches", [1, 4, 5])
def test_every_launch_comes_once_and_the_order_is_repeatable(order: Order, launches: int) -> None:
    groups = [[(0,), (1,), (2,)], [(3, 5), (4,)]]
    slots = list(rounds(groups, 0, launches, order, 1))
    assert Counter((tuple(sorted(slot.cells)), slot.number) for slot in slots) == {
        (batch, number): 1 for group in groups for batch in group for number in range(launches)
    }
    assert slots == list(rounds(groups, 0, launches, order, 1))
    assert slots != list(rounds(groups, 0, launches, order, 2))


def test_abba_gives_every_mechanism_the_same_mean_position() -> None:
    for seed in range(5):
        slots = list(rounds([[(0,), (1,), (2,), (3,)]], 0, 6, "abba", seed))
        for at in range(0, len(slots), 8):
            places = {i: [p for p in range(8) if slots[at + p].cells == (i,)] for i in range(4)}
            assert {sum(found) for found in places.values()} == {7}


def test_launches_of_a_group_stand_side_by_side() -> None:
    slots = list(rounds([[(0,), (1,)], [(2,), (3,)], [(4,), (5,)]], 0, 4, "abba", 3))
    for at in range(0, len(slots), 4):
        assert len({slot.cells[0] // 2 for slot in slots[at : at + 4]}) == 1


def test_within_a_launch_abba_gives_every_cell_the_same_mean_position() -> None:
    slots = list(rounds([[(0, 1, 2, 3, 4), (5, 6)]], 0, 4, "abba", 3))
    for at in (0, 4):
        first, second, third, fourth = (slot.cells for slot in slots[at : at + 4])
        assert (first, second) == (fourth[::-1], third[::-1])
    assert len({slot.cells for slot in slots if len(slot.cells) == 5}) == 4


@pytest.mark.parametrize("key", ["placement", "client_processes", "same_process"])
def test_only_cells_that_ask_for_the_same_processes_share_them(key: str) -> None:
    other = {"placement": '"same"', "client_processes": "2\nconnections = 2", "same_process": "true"}[key]
    text = TEXT + f'[[cells]]\nmechanisms = ["fast", "slow"]\nsize = 3\n{key} = {other}\n'
    cells = [planned.cell for planned in scenario(text).planned]
    assert groups_of(cells, "all") == [[(0, 3), (1, 4), (2, 5)], [(6,), (7,)]]


def test_what_comes_later_does_not_depend_on_what_came_before() -> None:
    groups = [[(0,), (1,), (2,)], [(3,), (4,), (5,)]]
    assert list(rounds(groups, 0, 8, "abba", 1))[24:] == list(rounds(groups, 4, 8, "abba", 1))
