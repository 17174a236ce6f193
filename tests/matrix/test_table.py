"""The page about failures is what the cells say."""

from __future__ import annotations

from pathlib import Path

from matrix import rows
from matrix.points import AT_ONCE_POINTS, POINTS
from matrix.table import ON_SPARK, text

DOCS = Path(__file__).parents[2] / "docs" / "faults.md"


def test_the_page_is_up_to_date() -> None:
    assert DOCS.read_text() == text(), "make faults"


def test_every_line_of_a_table_is_whole() -> None:
    for part in text().split("\n## ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1, part.splitlines()[0]


def test_what_is_met_on_spark_are_points() -> None:
    assert set(ON_SPARK) <= {point.name for point in (*POINTS, *AT_ONCE_POINTS)}


def test_every_row_names_a_test_that_holds_it() -> None:
    here = Path(__file__).parent
    for row in (*rows.EXACTLY, *rows.AT_ONCE, *rows.REFUSED, *rows.CONTROLS):
        file, _, test = row.held.partition(".")
        folder = here.parent if "/" in file else here
        assert not file or f"\ndef {test}(" in (folder / f"{file}.py").read_text(), row
