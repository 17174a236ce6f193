"""`Picture`: an SVG with a light and a dark set of colours, the same bytes for the same content."""

from __future__ import annotations

from datetime import datetime
from html import escape
from typing import Literal

Anchor = Literal["start", "middle", "end"]
Colours = dict[str, str]

LIGHT: Colours = {
    "page": "#ffffff",
    "ink": "#1f2430",
    "muted": "#5b6472",
    "grid": "#d9dde5",
    "one": "#2f67b1",
    "one-fill": "#dce9fb",
    "two": "#8a4f06",
    "two-fill": "#fdebd0",
    "good": "#1f7a43",
    "good-fill": "#dcf3e4",
    "bad": "#b82525",
    "bad-fill": "#fbe0de",
}
DARK: Colours = {
    "page": "#0d1117",
    "ink": "#e6edf3",
    "muted": "#9aa5b4",
    "grid": "#30363d",
    "one": "#79b0ff",
    "one-fill": "#15304f",
    "two": "#f2b761",
    "two-fill": "#463010",
    "good": "#5fd38d",
    "good-fill": "#12351f",
    "bad": "#ff8880",
    "bad-fill": "#4a1d1b",
}
FONT = "Helvetica, Arial, sans-serif"
CODE = "Menlo, Consolas, monospace"


class Picture:
    """Elements are drawn in the order in which they are added. `colour` is a name in `LIGHT` and `DARK`."""

    def __init__(self, width: int, height: int, title: str) -> None:
        self._size = (width, height)
        self._title = title
        self._elements: list[str] = []

    def text(
        self, x: float, y: float, text: str, colour: str = "ink", anchor: Anchor = "start", style: str = ""
    ) -> None:
        """`style` is any of: bold, small, code."""
        classes = " ".join([colour, *style.split()])
        self._elements.append(
            f'<text x="{number(x)}" y="{number(y)}" class="{classes}" text-anchor="{anchor}">{escape(text, False)}</text>'
        )

    def line(self, x: float, y: float, to_x: float, to_y: float, colour: str, style: str = "") -> None:
        """`style` is any of: dashed, thin, arrow."""
        tip = ' marker-end="url(#tip)"' if "arrow" in style.split() else ""
        classes = " ".join(["line", f"{colour}-line", *(one for one in style.split() if one != "arrow")])
        ends = f'x1="{number(x)}" y1="{number(y)}" x2="{number(to_x)}" y2="{number(to_y)}"'
        self._elements.append(f'<line {ends} class="{classes}"{tip}/>')

    def steps(self, points: list[tuple[float, float]], colour: str) -> None:
        """A line through the points, horizontal before it is vertical."""
        x, y = points[0]
        path = f"M{number(x)} {number(y)}" + "".join(f"H{number(x)}V{number(y)}" for x, y in points[1:])
        self._elements.append(f'<path d="{path}" class="line {colour}-line" fill="none"/>')

    def box(self, x: float, y: float, width: float, height: float, colour: str, style: str = "") -> None:
        """`style` is any of: dashed, thin."""
        place = f'x="{number(x)}" y="{number(y)}" width="{number(width)}" height="{number(height)}"'
        classes = " ".join(["line", f"{colour}-line", f"{colour}-fill", *style.split()])
        self._elements.append(f'<rect {place} rx="4" class="{classes}"/>')

    def dot(self, x: float, y: float, colour: str, hollow: bool = False) -> None:
        classes = f"line {colour}-line {'page' if hollow else colour}"
        self._elements.append(f'<circle cx="{number(x)}" cy="{number(y)}" r="5" class="{classes}"/>')

    def svg(self) -> str:
        width, height = self._size
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-family="{FONT}">',
            f"<title>{escape(self._title, False)}</title>",
            "<style>",
            "text { font-size: 14px } .small { font-size: 12px } .bold { font-weight: bold }",
            f".code {{ font-family: {CODE}; font-size: 13px }}",
            ".line { stroke-width: 1.5 } .thin { stroke-width: 1 } .dashed { stroke-dasharray: 5 4 }",
            *_rules(LIGHT),
            "@media (prefers-color-scheme: dark) {",
            *_rules(DARK),
            "}",
            "</style>",
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" orient="auto">'
            '<path d="M0 0L10 5L0 10z" class="ink"/></marker></defs>',
            f'<rect width="{width}" height="{height}" class="page"/>',
            *self._elements,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _rules(colours: Colours) -> list[str]:
    """For each colour, a class that fills with it, and one that draws lines in it."""
    return [
        f".{name} {{ fill: {colour} }}" + (f" .{name}-line {{ stroke: {colour} }}" if "fill" not in name else "")
        for name, colour in colours.items()
    ]


def number(value: float) -> str:
    return f"{round(value, 1):g}"


class TimeAxis:
    """Event time from left to right."""

    def __init__(self, begin: datetime, end: datetime, left: float, right: float) -> None:
        self._begin, self._left = begin, left
        self._scale = (right - left) / (end - begin).total_seconds()
        self.begin, self.end = begin, end

    def x(self, time: datetime) -> float:
        return self._left + (min(max(time, self.begin), self.end) - self._begin).total_seconds() * self._scale


def lanes(spans: list[tuple[float, float]]) -> list[int]:
    """For each span, the first lane in which it overlaps none of the spans before it."""
    ends: list[float] = []
    found: list[int] = []
    for begin, end in spans:
        lane = next((lane for lane, taken in enumerate(ends) if taken <= begin), len(ends))
        ends[lane : lane + 1] = [end]
        found.append(lane)
    return found
