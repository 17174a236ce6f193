"""The dashboard and the alert rules: their metrics and labels exist, alerts fire when they should, their commands exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from observe.promql import Scrape, Unknown, Vector, evaluate, labels, parse, problems
from streamwork.cli.main import cli
from streamwork.observe.metrics import METRICS

FOLDER = Path(__file__).parents[2] / "docs" / "monitoring"
KNOWN: Mapping[str, frozenset[str]] = {
    series: frozenset(metric.labels) | ({"le"} if series.endswith("_bucket") else set())
    for metric in METRICS
    for series in metric.series
} | {"up": frozenset({"job", "instance"})}  # made by Prometheus itself
DASHBOARD = json.loads((FOLDER / "grafana-dashboard.json").read_text())
RULES: Mapping[str, Any] = {
    rule["alert"]: rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
}


def wrong(expression: str, legend: str = "") -> list[str]:
    """What is wrong with an expression, and with the labels that its legend shows."""
    try:
        parsed = parse(expression.replace("$__rate_interval", "5m"))
    except Unknown as error:
        return [str(error)]
    shown = re.findall(r"\{\{\s*(\w+)\s*\}\}", legend)
    left = labels(parsed, KNOWN)
    return [*problems(parsed, KNOWN), *(f"the result has no label {name}" for name in shown if name not in left)]


# ---- the dashboard --------------------------------------------------------------------------------------------------


def targets(dashboard: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    for panel in dashboard["panels"]:
        for one in panel["targets"]:
            yield panel["title"], one["expr"], one["legendFormat"]


def test_every_expression_of_the_dashboard_fits_the_metrics() -> None:
    found = list(targets(DASHBOARD))
    assert len(found) >= 20
    for title, expression, legend in found:
        assert wrong(expression, legend) == [], title
        assert 'job=~"$job"' in expression, f"{title} does not heed the choice of jobs"
    (query,) = [one["query"] for one in DASHBOARD["templating"]["list"] if one["name"] == "job"]
    metric, label = re.fullmatch(r"label_values\((\w+), (\w+)\)", query).groups()  # type: ignore[union-attr]
    assert label in KNOWN[metric]


def test_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken and at["x"] + at["w"] <= 24, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.parametrize(
    ("expression", "legend", "problem"),
    [
        ("streamwork_lagg", "", "streamwork_lagg is no metric"),
        ('streamwork_lag{partitions="0"}', "", "streamwork_lag has no label partitions"),
        ("sum by (component) (streamwork_lag)", "", "no label component to aggregate by"),
        ("sum by (source) (streamwork_lag)", "{{partition}}", "the result has no label partition"),
        ("rate(streamwork_lag[5m])", "", "rate of streamwork_lag, which is no counter"),
        ("rate(streamwork_epochs_total)", "", "rate needs a range"),
        ("streamwork_lag and on (step) streamwork_running", "", "no label step on both sides"),
    ],
)
def test_control_what_does_not_fit_is_noticed(expression: str, legend: str, problem: str) -> None:
    assert problem in wrong(expression, legend)


@pytest.mark.parametrize("text", ["streamwork_lag{", "sum(", "absent(streamwork_lag)", "streamwork_lag streamwork_lag"])
def test_control_what_cannot_be_parsed_is_noticed(text: str) -> None:
    assert wrong(text)


# ---- alert rules ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RULES)
def test_an_alert_names_metrics_that_exist_and_says_what_to_do(name: str) -> None:
    rule = RULES[name]
    assert wrong(rule["expr"]) == []
    left = labels(parse(rule["expr"]), KNOWN)
    for text in rule["annotations"].values():
        assert set(re.findall(r"\$labels\.(\w+)", text)) <= left, name
    assert rule["labels"]["severity"] in {"critical", "warning", "info"}
    commands = re.findall(r"`(streamwork [^`]+)`", rule["annotations"]["runbook"])
    assert commands or "streamwork_" in rule["annotations"]["runbook"]
    for command in commands:
        check_command(command)


def check_command(text: str) -> None:
    """The command and its options exist."""
    words = shlex.split(re.sub(r"\{\{[^}]*\}\}", "job", text))[1:]
    command: click.Command = cli
    while isinstance(command, click.Group):
        command = command.commands[words.pop(0)]
    options = {name for one in command.params for name in one.opts}
    assert {word for word in words if word.startswith("-")} <= options, text


def test_control_a_command_that_does_not_exist_is_noticed() -> None:
    with pytest.raises(KeyError):
        check_command("streamwork fix {{ $labels.job }}")
    with pytest.raises(AssertionError):
        check_command("streamwork status {{ $labels.job }} --why")


def one(**mine: str) -> frozenset[tuple[str, str]]:
    return frozenset({"job": "usage", **mine}.items())


Series = dict[str, Vector]
LAG = one(source="clicks", partition="0", unit="events")
EDGE = one(sender="a[0]", receiver="b[0]")
SOURCE_OF = {
    "StreamworkUnreachable": ("up", frozenset({("job", "streamwork"), ("instance", "h:1")}), (1, 1), (1, 0)),
    "StreamworkNotRunning": ("streamwork_running", one(), (1, 1), (1, 0)),
    "StreamworkRestartLoop": ("streamwork_driver_starts_total", one(), (5, 7), (5, 8)),
    "StreamworkStopped": ("streamwork_verdict", one(verdict="stopped", component="a"), (0, 0), (0, 1)),
    "StreamworkEpochsRepeated": ("streamwork_epochs_total", one(outcome="abandoned"), (3, 5), (3, 6)),
    "StreamworkFallingBehind": ("streamwork_lag_seconds", one(source="clicks"), (900, 300), (0, 301)),
    "StreamworkUnderPressure": ("streamwork_channel_full_seconds_total", EDGE, (0, 140), (0, 160)),
    "StreamworkSlowSink": ("streamwork_verdict", one(verdict="slow sink", component=""), (1, 0), (0, 1)),
    "StreamworkSkewedKey": ("streamwork_verdict", one(verdict="skewed key", component="a"), (1, 0), (0, 1)),
    "StreamworkGrowingState": ("streamwork_verdict", one(verdict="growing state", component="a"), (1, 0), (0, 1)),
    "StreamworkDeadLetters": ("streamwork_dead_letters_total", one(component="a"), (9, 9), (9, 10)),
    "StreamworkDroppedEvents": ("streamwork_channel_dropped_events_total", EDGE, (9, 9), (9, 10)),
    "StreamworkInDoubt": ("streamwork_in_doubt_epochs_total", one(), (2, 2), (0, 1)),
    "StreamworkRetrying": ("streamwork_retrying_events", one(component="a"), (1, 0), (0, 1)),
    "StreamworkCheckpointSetAside": ("streamwork_quarantined_checkpoints", one(), (1, 0), (0, 1)),
}
"""Alert -> a series with values five minutes ago and now: so that it is quiet, and so that it fires."""


def fires(expression: str, *scrapes: Scrape) -> bool:
    return bool(evaluate(parse(expression), scrapes))


@pytest.mark.parametrize("name", SOURCE_OF)
def test_an_alert_fires_when_it_should_and_else_is_quiet(name: str) -> None:
    metric, series, quiet, alarming = SOURCE_OF[name]

    def scrapes(values: tuple[float, float]) -> list[Scrape]:
        return [Scrape(1000.0 + 300 * at, {metric: {series: float(value)}}) for at, value in enumerate(values)]

    assert not fires(RULES[name]["expr"], *scrapes(quiet))
    assert fires(RULES[name]["expr"], *scrapes(alarming))
    assert not fires(RULES[name]["expr"], Scrape(1000.0, {})), "nothing is known"


@pytest.mark.parametrize(("age", "lag", "alarm"), [(69, 1, False), (71, 1, True), (5000, 0, False)])
def test_the_alert_about_an_old_checkpoint(age: float, lag: float, alarm: bool) -> None:
    """An idle job completes no checkpoints, and is quiet."""
    series: Series = {
        "streamwork_checkpoint_timestamp_seconds": {one(): 10_000.0 - age},
        "streamwork_checkpoint_interval_seconds": {one(): 1.0},
        "streamwork_lag": {LAG: lag},
    }
    assert fires(RULES["StreamworkCheckpointOld"]["expr"], Scrape(10_000.0, series)) is alarm


@pytest.mark.parametrize(("slow", "alarm"), [(0, False), (9, False), (11, True)])
def test_the_alert_about_latency(slow: int, alarm: bool) -> None:
    """Of a thousand events, so many take more than a second."""

    def buckets(times: int) -> Series:
        counts = {"0.5": 900, "1.0": 1000 - slow, "2.5": 1000, "+Inf": 1000}
        return {
            "streamwork_latency_seconds_bucket": {
                one(sink="out", le=bound): float(times * events) for bound, events in counts.items()
            }
        }

    scrapes = [Scrape(1000.0 + 300 * at, buckets(at + 1)) for at in range(2)]
    assert fires(RULES["StreamworkLatencyHigh"]["expr"], *scrapes) is alarm
    still = [Scrape(1000.0 + 300 * at, buckets(1)) for at in range(2)]
    assert not fires(RULES["StreamworkLatencyHigh"]["expr"], *still), "no event comes"


def test_every_alert_is_evaluated() -> None:
    assert set(RULES) == {*SOURCE_OF, "StreamworkCheckpointOld", "StreamworkLatencyHigh"}


def test_the_evaluator() -> None:
    """Histograms and divisions, which no alert uses."""
    buckets = {one(le=bound): value for bound, value in (("0.1", 0.0), ("1.0", 10.0), ("+Inf", 10.0))}
    found = evaluate(parse("histogram_quantile(0.5, x_bucket)"), [Scrape(0.0, {"x_bucket": buckets})])
    assert found == {one(): pytest.approx(0.55)}
    restarted = [Scrape(at, {"x_total": {one(): value}}) for at, value in ((0.0, 5.0), (10.0, 7.0), (20.0, 1.0))]
    assert evaluate(parse("increase(x_total[1m])"), restarted) == {one(): 3.0}
    assert evaluate(parse("2 * x_total / 4"), restarted) == {one(): 0.5}
