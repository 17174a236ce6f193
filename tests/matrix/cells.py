"""The cells of the matrix on the local host: where a life breaks, the sinks of the job, and what it promises.

The quick tier runs a few of them (`quick_few`): every point meets every kind of sink and every promise that it knows, every kind of
sink meets every promise, and so does every choice of sinks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from matrix.faults import Fault
from matrix.points import AT_ONCE_POINTS, POINTS, RECOVERY, Point
from matrix.promises import PROMISES
from matrix.targets import AT_ONCE, PREVIEWED, SINKS, kind_of
from tiers import pairs, quick_few

PREVIEW_POINTS = [
    *POINTS,
    Point("mid preview", Fault("rows written to *__preview"), POINTS[1].outcome, 7),
    Point("between two previews", Fault("rows written to *__preview", 2), POINTS[1].outcome, 8),
]


@dataclass(frozen=True, eq=False)
class Cell:
    point: Point
    name: str
    sinks: tuple[str, ...]
    promise: str

    def __str__(self) -> str:
        return f"{self.point.name}-{self.name}-{self.promise}"


def met(cell: Cell) -> set[Hashable]:
    """The pairs that a cell meets."""
    return {*pairs(cell.point.name, kind_of(cell.sinks), cell.promise), ("sinks", cell.name, cell.promise)}


def _cells(points: list[Point], sinks: dict[str, tuple[str, ...]], promise: str, semantics: str) -> list[Cell]:
    return [
        Cell(point, name, some, promise)
        for point in points
        for name, some in sinks.items()
        if point.only(some) and semantics in (point.semantics or semantics)
    ]


CELLS = [
    *_cells(POINTS, SINKS, "exactly-once", "exactly-once"),
    *_cells(PREVIEW_POINTS, PREVIEWED, "read-uncommitted", "exactly-once"),
    *(
        cell
        for promise, (semantics, _) in PROMISES.items()
        for cell in _cells(AT_ONCE_POINTS, AT_ONCE, promise, semantics)
    ),
]
_PARAMETERS = quick_few(CELLS, met, str)


def cells(*promises: str) -> list[Any]:
    """Parameters of a test: the cells of these promises."""
    return [parameter for parameter in _PARAMETERS if parameter.values[0].promise in promises]


def each(cases: Sequence[Any], sinks: dict[str, tuple[str, ...]] = SINKS) -> list[Any]:
    """Parameters of a test: every case (name, values...) with every choice of sinks; quick: each case, and each kind of sink."""
    return quick_few(
        [(case, name) for case in cases for name in sinks],
        lambda cell: {("case", cell[0][0]), kind_of(sinks[cell[1]])},
        name=lambda cell: f"{cell[0][0]}-{cell[1]}",
        values=lambda cell: [*cell[0][1:], sinks[cell[1]]],
    )


def recovery_cells() -> list[Any]:
    """Parameters of a test: every step of a start, with every choice of sinks; what was left to do, where it breaks, the sinks."""
    starts = [(step, name) for step in RECOVERY for name in SINKS]
    return quick_few(
        starts,
        lambda start: {(start[0][0], kind_of(SINKS[start[1]])), start[1]},
        name=lambda start: f"{start[0][0]}-{start[1]}",
        values=lambda start: [*start[0][1:], SINKS[start[1]]],
    )
