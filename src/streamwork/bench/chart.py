"""A chart of several series of points on two logarithmic axes, as the lines of an SVG file."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from streamwork.bench.tables import short

LEFT, RIGHT, TOP, BOTTOM = 80, 130, 40, 50  # margins
PLOT_HEIGHT = 300
STEPS = (1, 2, 5)
"""The numbers at an axis: these times a power of ten."""

CHART_STYLE = """
  .grid { stroke: #d8dee4; stroke-width: 0.5 } .limit { stroke: #c04a4a; stroke-width: 1.5; stroke-dasharray: 6 4 }
  .series-0 { fill: #4a80c0; stroke: #4a80c0 } .series-1 { fill: #b07a30; stroke: #b07a30 }
  .series-2 { fill: #5a9a5a; stroke: #5a9a5a } .series-3 { fill: #9a6ab0; stroke: #9a6ab0 }
  .line { fill: none; stroke-width: 2 }
  @media (prefers-color-scheme: dark) {
    .grid { stroke: #30363d } .series-0 { fill: #5b9be0; stroke: #5b9be0 } .line { fill: none }
  }
"""

Point = tuple[float, float]


class Chart(NamedTuple):
    unit: str  # of the vertical axis
    across: str  # of the horizontal axis
    series: Mapping[str, Sequence[Point]]  # by name; each in the order of its first coordinate
    limit: float | None = None  # a line across


class _Axis(NamedTuple):
    low: float
    high: float
    start: float  # in pixels
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> _Axis:
        """From the number at or below the least value to the one at or above the largest."""
        marks = list(_numbers(min(values), max(values)))
        return cls(marks[0], marks[-1], start, end)

    def at(self, value: float) -> float:
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def marks(self) -> Iterator[float]:
        return _numbers(self.low, self.high)


def _numbers(low: float, high: float) -> Iterator[float]:
    """Those that enclose a range; at least two."""
    power = math.floor(math.log10(low))
    found = [step * 10.0**exponent for exponent in range(power, power + 20) for step in STEPS]
    first = max(number for number in found if number <= low * (1 + 1e-9))
    last = min(number for number in found if number >= high * (1 - 1e-9) and number > first)
    return (number for number in found if first <= number <= last)


def chart_height() -> int:
    return TOP + PLOT_HEIGHT + BOTTOM


def chart_lines(drawn: Chart, width: int) -> Iterator[str]:
    points = [point for series in drawn.series.values() for point in series]
    limits = [] if drawn.limit is None else [drawn.limit]
    across = _Axis.over([x for x, _ in points], LEFT, width - RIGHT)
    up = _Axis.over([*(y for _, y in points), *limits], TOP + PLOT_HEIGHT, TOP)
    yield f'<text class="dim" x="12" y="20">{escape(drawn.unit)}</text>'
    yield f'<text class="dim" x="{LEFT}" y="{TOP + PLOT_HEIGHT + 40}">{escape(drawn.across)}</text>'
    for value in across.marks():
        x = across.at(value)
        yield f'<path class="grid" d="M{x:.1f} {TOP}V{TOP + PLOT_HEIGHT}"/>'
        yield f'<text class="dim" x="{x:.1f}" y="{TOP + PLOT_HEIGHT + 18}" text-anchor="middle">{short(value)}</text>'
    for value in up.marks():
        y = up.at(value)
        yield f'<path class="grid" d="M{LEFT} {y:.1f}H{width - RIGHT}"/>'
        yield f'<text class="dim" x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>'
    if drawn.limit is not None:
        yield f'<path class="limit" d="M{LEFT} {up.at(drawn.limit):.1f}H{width - RIGHT}"/>'
    for number, (name, series) in enumerate((name, series) for name, series in drawn.series.items() if series):
        kind = f"series-{number % 4}"
        places = [(across.at(x), up.at(y)) for x, y in series]
        path = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
        yield f'<path class="{kind} line" d="M{path}"/>'
        yield from (f'<circle class="{kind}" cx="{x:.1f}" cy="{y:.1f}" r="4"/>' for x, y in places)
        x, y = places[-1]
        yield f'<text class="title" x="{x + 10:.1f}" y="{y + 4:.1f}">{escape(name)}</text>'
