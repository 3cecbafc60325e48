"""Fields of two numbers, size and connections, in the report."""

from __future__ import annotations

from pathlib import Path

from made_up import Lab, carried_out
from nearcall_lab.report.charts import heat
from nearcall_lab.report.model import prepare
from nearcall_lab.results.model import Launch

FIELD = """
title = "Field"
[run]
launches = 3
[[cells]]
mechanisms = ["fast"]
size = [15, 1_000]
connections = [1, 4]
[[cells]]
mechanisms = ["fast", "slow"]
size = 15
connections = 10
"""


def test_a_field_has_a_place_for_each_size_and_number_of_connections(tmp_path: Path) -> None:
    lab = Lab()
    lab.failing["fast, 1 KB echo, 4 connections"] = "no luck"
    rate, p99 = heat.figures(prepare([carried_out(tmp_path / "run", lab, FIELD)]))
    assert rate.head == ["calls per second at", "1 connection", "4 connections"]
    # What was measured at one size only is no field, and of the other mechanism nothing is.
    assert rate.rows == [["Fast, 15 B", "40.0", "40.0"], ["Fast, 1 KB", "40.0", "failed"]]
    assert p99.rows[0] == ["Fast, 15 B", "too few", "too few"]
    assert str(rate.drawing).count('class="heat"') == 4
    assert str(rate.drawing).count('fill-opacity="0.00"') == 4, "one number alone has no shade, and a failure none"


def test_the_most_is_the_darkest(tmp_path: Path) -> None:
    lab = Lab()

    def change(launch: Launch) -> None:
        launch.wall_s = 10.0 / (launch.position + 1)

    lab.change = change
    rate, _ = heat.figures(prepare([carried_out(tmp_path / "run", lab, FIELD)]))
    drawing = str(rate.drawing)
    assert 'fill-opacity="0.95"' in drawing
    assert 'fill-opacity="0.05"' in drawing
    assert 'class="cell paper"' in drawing, "letters on a dark place are light"


def test_a_run_without_such_cells_has_no_field(tmp_path: Path) -> None:
    assert heat.figures(prepare([carried_out(tmp_path / "run", Lab())])) == []
