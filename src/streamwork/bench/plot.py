"""Bar charts with error bars, and one chart of lines, as small SVG files for light and dark pages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from typing import Any, NamedTuple

from streamwork.bench.chart import CHART_STYLE, Chart, chart_height, chart_lines
from streamwork.bench.tables import Figure, figure, row, short
from streamwork.components.duration import seconds

PEERS = frozenset(
    {"tws", "native", "bytewax", "loop", "plain", "spark", "cold", "flink", "pathway", "quix", "baseline"}
)
"""They are drawn in another colour than what is ours."""

WIDTH, LEFT, RIGHT = 760, 170, 110  # of the whole; of the names; of the figures behind the longest bar
LINE, BAR, TITLE = 24, 14, 30

STYLE = """
  text { font: 13px Helvetica, Arial, sans-serif; fill: #24292f }
  .page { fill: #ffffff } .title { font-weight: bold } .dim { fill: #57606a }
  .ours { fill: #4a80c0 } .peer { fill: #b0b8c1 } .spread { stroke: #24292f; stroke-width: 1.5 }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .page { fill: #0d1117 } .dim { fill: #9da7b1 }
    .ours { fill: #5b9be0 } .peer { fill: #5a636e } .spread { stroke: #e6edf3 }
  }
"""


class Group(NamedTuple):
    title: str
    bars: dict[str, Figure]


class Plot(NamedTuple):
    unit: str
    groups: list[Group]


def plot(bench: str, numbers: Mapping[str, Any]) -> Plot | Chart | None:
    """The plot of a benchmark; None if there is none for it."""
    groups: list[Group] = []
    match bench:
        case "keyed-state":
            unit = "events per second"
            groups = [
                Group(f"{int(keys):,} keys", _column(found, "events_per_s")) for keys, found in numbers["keys"].items()
            ]
        case "windows" | "joins":
            unit = "events per second"
            groups = [
                Group(name.replace("_", "-"), _column(found, "events_per_s"))
                for name, found in numbers.items()
                if name != "settings"
            ]
        case "ysb-inside" | "ysb-log":
            unit = "events per second"
            groups = [Group("typed columns", _column(numbers["modes"], "events_per_s"))]
            groups += [Group("seven-field JSON", _column(numbers["json"], "events_per_s"))] if "json" in numbers else []
        case "ysb-rates" | "ysb-batches":
            across = "rate" if bench == "ysb-rates" else "events_per_batch"
            lines = {
                system: [(float(row[across]), float(row["p99_ms"])) for row in rows if not row["behind"]]
                for system, rows in numbers["systems"].items()
            }
            if not any(lines.values()):
                return None
            return Chart(
                "milliseconds from the last event of a window to its right count, p99",
                "events per second; a line ends where the system falls behind"
                if bench == "ysb-rates"
                else "events that come in one checkpoint interval",
                lines,
            )
        case "ysb-state" | "ysb-baseline" | "ysb-million":
            unit = "events per second"
            groups = [Group("", _column(numbers["systems"], "events_per_s"))]
        case "semantics":
            unit = "events per second"
            groups = [
                Group(name, _column(numbers[name], "events_per_s"))
                for name in ("sqlite", "appends", "postgres")
                if name in numbers
            ]
        case "state-size":
            unit = "milliseconds of an epoch"
            names = {"p50_ms": "median", "p99_ms": "p99"}
            groups = [Group(title, _column(numbers["epoch_ms"], name)) for name, title in names.items()]
        case "recovery":
            unit = "seconds from kill -9 to the first completed new epoch"
            groups = [Group(mode, _column(found, "total")) for mode, found in numbers["seconds"].items()]
        case "live":
            series = {mode: _points(rows, "p99_ms") for mode, rows in numbers["rates"].items()}
            if not any(series.values()):
                return None
            return Chart(
                "milliseconds from a transaction to its decision, p99; the dashed line is at 20",
                "transactions per second; rates at which decisions are missing are not drawn",
                series,
                limit=20.0,
            )
        case "interval" | "interval-live":
            found = numbers["intervals"].items()
            return Chart(
                "milliseconds from an event to its visible row",
                "checkpoint_every, in milliseconds",
                {
                    title: [(seconds(every) * 1000, float(row[name])) for every, row in found]
                    for title, name in (("p99", "p99_ms"), ("median", "p50_ms"))
                },
            )
        case "recovery-standby":
            unit = "seconds without output after kill -9"
            groups = [Group(mode, _column(found, "gap")) for mode, found in numbers["seconds"].items()]
        case "log":
            unit = "events per second"
            groups = [Group("", {name: figure(numbers[name]) or Figure(None) for name in ("append", "read")})]
        case "engine":
            unit = "events per second"
            columns = {"engine": "events_per_s", "loop": "loop_events_per_s"}
            groups = [
                Group(title, {name: figure(found[column]) or Figure(None) for name, column in columns.items()})
                for title, found in numbers["cases"].items()
            ]
        case _:
            return None
    return Plot(unit, groups)


def _column(found: Mapping[str, Any], name: str) -> dict[str, Figure]:
    """One figure of each contestant."""
    rows = {one: row(cells) for one, cells in found.items() if isinstance(cells, dict)}
    return {one: cells[name] for one, cells in rows.items() if cells and name in cells}


def _points(rows: Mapping[str, Any], name: str) -> list[tuple[float, float]]:
    """One figure by rate, where it is known."""
    return sorted((float(rate), float(found[name])) for rate, found in rows.items() if found.get(name))


def svg(drawn: Plot | Chart, title: str) -> str:
    """The whole file."""
    style = STYLE
    if isinstance(drawn, Chart):
        style += CHART_STYLE
        lines, height = list(chart_lines(drawn, WIDTH)), chart_height()
    else:
        most = max(one.high or float(one.value or 0) for group in drawn.groups for one in group.bars.values())
        lines = list(_lines(drawn, (WIDTH - LEFT - RIGHT) / most))
        height = TITLE + sum(LINE * (len(group.bars) + bool(group.title)) + 8 for group in drawn.groups) + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" role="img" '
            f'aria-label="{escape(title)}">',
            f"<style>{style}</style>",
            f'<rect class="page" width="{WIDTH}" height="{height}" rx="6"/>',
            *lines,
            "</svg>\n",
        ]
    )


def _lines(drawn: Plot, scale: float) -> Iterator[str]:
    yield f'<text class="dim" x="12" y="20">{escape(drawn.unit)}; the line in a bar goes from the least to the most</text>'
    top = float(TITLE)
    for group in drawn.groups:
        if group.title:
            yield f'<text class="title" x="12" y="{top + 16:g}">{escape(group.title)}</text>'
            top += LINE
        for name, one in group.bars.items():
            middle, value = top + LINE / 2, float(one.value or 0)
            kind = "peer" if name in PEERS else "ours"
            end = LEFT + scale * max(value, one.high or 0)
            yield f'<text x="{LEFT - 10}" y="{middle + 4:g}" text-anchor="end">{escape(name.replace("_", "-"))}</text>'
            yield (
                f'<rect class="{kind}" x="{LEFT}" y="{middle - BAR / 2:g}" width="{scale * value:.1f}" height="{BAR}" rx="2"/>'
            )
            if one.spread and one.low is not None and one.high is not None:
                left, right = LEFT + scale * one.low, LEFT + scale * one.high
                yield f'<path class="spread" d="M{left:.1f} {middle:g}H{right:.1f}"/>'
            yield f'<text class="dim" x="{end + 8:.1f}" y="{middle + 4:g}">{short(value)}</text>'
            top += LINE
        top += 8
