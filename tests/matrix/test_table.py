"""The page about failures is what the cells say."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from matrix import rows
from matrix.points import AT_ONCE_POINTS, POINTS
from matrix.table import CONTROLS, ON_SPARK, ROWS, text

DOCS = Path(__file__).parents[2] / "docs" / "faults.md"


def test_the_page_is_up_to_date() -> None:
    assert DOCS.read_text() == text(), "make faults"


def test_every_line_of_a_table_is_whole() -> None:
    for part in text().split("\n## ")[1:]:
        lines = [line for line in part.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1, part.splitlines()[0]


def test_what_is_met_on_spark_are_points() -> None:
    assert set(ON_SPARK) <= {point.name for point in (*POINTS, *AT_ONCE_POINTS)}


TESTS = Path(__file__).parents[1]


def row_id(row: Any) -> str:
    return str(row.guard if isinstance(row, rows.Control) else row[0])


def proven() -> set[tuple[str, str]]:
    """(FILE.TEST, row) of every marker `proves`, without importing or running anything."""
    found = set()
    for path in TESTS.rglob("test_*.py"):
        text = path.read_text()
        if "mark.proves(" not in text:
            continue
        folder = path.parent.relative_to(TESTS).as_posix()
        file = path.stem if folder in ("matrix", ".") else f"{folder}/{path.stem}"
        for function in ast.parse(text).body:
            for mark in function.decorator_list if isinstance(function, ast.FunctionDef) else ():
                if isinstance(mark, ast.Call) and ast.unparse(mark.func) == "pytest.mark.proves":
                    found |= {(f"{file}.{function.name}", ast.literal_eval(argument)) for argument in mark.args}
    return found


def test_every_row_and_the_test_that_proves_it_name_each_other() -> None:
    wanted = {(row.held, row_id(row)) for row in (*ROWS, *CONTROLS) if row.held}
    assert wanted - proven() == set(), "rows whose test does not have the marker"
    assert proven() - wanted == set(), "markers that no row has"


def test_a_row_names_a_control_that_there_is() -> None:
    guards = [control.guard for control in CONTROLS]
    assert len(guards) == len(set(guards))
    assert {row.control for row in ROWS} - {""} <= set(guards)
