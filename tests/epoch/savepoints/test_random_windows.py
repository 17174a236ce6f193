"""Random graphs of windows, joins and tables, saved, evolved, rescaled, renamed, moved and rolled back at random epochs: the
results are those of a run that never stopped.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from streamwork import Refused
from streamwork.epoch import assigning
from streamwork.epoch.recovery import fit
from streamwork.job.node import Node
from streamwork.state.restore_plan import ComponentPlan
from tiers import quick_every
from timed_graphs import HOWS, KINDS, SOURCES, Life, Plan, Stage, check, run_to_the_end

PARALLELISMS = [1, 2, 3, 5]
ALL_AT_ONCE = [
    Life(2, (3, 2), 2, True, True, 0, 3),
    Life(2, (1,), 1, False, False, 1, 5),
    Life(1, (2,), 2, True, True, 0, 4),
]
EVERY_KIND = Plan(tuple(Stage(kind, -1, -2, "full", 1) for kind in KINDS), 2, 1)
SMALL = Plan((Stage("fixed", -1, -2), Stage("interval", -1, -2, "full")), 2, 1)
DEEP = Plan(
    (Stage("interval", -2, -1, "full"), Stage("session", 0, 0), Stage("table", -1, 1, "left"), Stage("fixed", 2, 2)),
    2,
    3,
)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """One to four stages; each reads sources, and earlier stages whose results are final."""
    stages: list[Stage] = []
    for _ in range(draw(st.integers(1, 4))):
        so_far = Plan(tuple(stages), 1, 0)
        read = st.sampled_from(
            [*range(-len(SOURCES), 0), *(n for n in range(len(stages)) if not so_far.is_corrected(n))]
        )
        kind, how = draw(st.sampled_from(KINDS)), draw(st.sampled_from(HOWS))
        stages.append(Stage(kind, draw(read), draw(read), how, draw(st.sampled_from([0, 2]))))
    return Plan(tuple(stages), draw(st.integers(1, 3)), draw(st.integers(0, 1000)))


any_lives = st.lists(
    st.builds(
        Life,
        epochs=st.integers(0, 3),
        parallelisms=st.lists(st.sampled_from(PARALLELISMS), min_size=1, max_size=3).map(tuple),
        rises=st.integers(0, 2),
        renames=st.booleans(),
        moves=st.booleans(),
        regrets=st.sampled_from([0, 0, 1, 2]),
        events=st.integers(2, 7),
    ),
    min_size=1,
    max_size=3,
)


@settings(max_examples=24, deadline=None)
@given(plan=plans(), lives=any_lives)
def test_any_history_of_windows_and_joins(plan: Plan, lives: list[Life]) -> None:
    note(replay(plan, lives))
    check(plan, lives)


def replay(plan: Plan, lives: list[Life]) -> str:
    """The command that replays a history."""
    return f"PYTHONPATH=tests python -c {shlex.quote(f'from timed_graphs import *; check({plan!r}, {lives!r})')}"


def test_a_replay_command_replays() -> None:
    words = shlex.split(replay(DEEP, ALL_AT_ONCE))
    checked: list[Any] = []
    names = {one.__name__: one for one in (Plan, Stage, Life)}
    exec(words[-1].partition("; ")[2], {**names, "check": lambda *given: checked.append(given)})
    assert words[:3] == ["PYTHONPATH=tests", "python", "-c"] and checked == [(DEEP, ALL_AT_ONCE)]


@pytest.mark.parametrize(
    "plan",
    [pytest.param(EVERY_KIND, id="every kind", marks=pytest.mark.slow), pytest.param(DEEP, id="deep")],
)
def test_all_changes_at_once(plan: Plan) -> None:
    check(plan, ALL_AT_ONCE)


@pytest.mark.parametrize(
    ("plan", "life"),
    [
        pytest.param(
            Plan((Stage("table", -1, -2, "left"), Stage("session", 0, 0)), 2, 2),
            Life(1, (2,), 0, False, False, 0, 2),
            id="a result of a join that is late",
        ),
        pytest.param(
            Plan((Stage("table", -1, -2), Stage("sliding", -2, 0, "inner", 2)), 1, 1008),
            Life(1, (2, 2), 0, False, False, 0, 2),
            id="a correction behind a restart that sets the minimum back",
        ),
    ],
)
def test_what_random_graphs_have_found(plan: Plan, life: Life) -> None:
    check(plan, [life, replace(life, epochs=0, parallelisms=(1, 1), events=4)])


def test_every_sink_of_the_examples_has_rows() -> None:
    """An oracle without rows would agree with anything. Late events of some stages are the exception."""
    for plan in (EVERY_KIND, DEEP):
        results = run_to_the_end(plan, [])
        empty = {sink for sink, rows in results.items() if not rows}
        assert all(sink.startswith("late-") for sink in empty), empty
        assert any(rows for sink, rows in results.items() if sink.startswith("late-"))


# ---- negative controls ------------------------------------------------------------------------------------------------------


def differ(plan: Plan, lives: list[Life]) -> set[str]:
    """The sinks whose results are not those of a run that never stopped."""
    whole, stopped = run_to_the_end(plan, []), run_to_the_end(plan, lives)
    return {sink for sink in whole if stopped[sink] != whole[sink]}


@pytest.mark.parametrize("kind", quick_every(3, [*KINDS, "versions"]))
def test_control_state_that_is_not_restored_is_noticed(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each kind of component in turn. `versions` is the table of a join."""
    layout, given_up = fit._layout, set[str]()

    def forgetful(node: Node, groups: int, instances: Any, stored_in: Path) -> ComponentPlan | Refused:
        if node.id in (f"{kind}-0-v0", f"table-0-{kind}-v0") and any(instances.values()):
            given_up.add(node.id)
            instances = dict.fromkeys(instances, ())
        return layout(node, groups, instances, stored_in)

    plan = Plan((Stage("table" if kind == "versions" else kind, -1, -2, "full", 2),), 2, 1)
    lives = [Life(2, (2,), 0, False, False, 0, 4)]
    assert differ(plan, lives) == set()
    monkeypatch.setattr(fit, "_layout", forgetful)
    assert differ(plan, lives), "a run without that state has other results"
    assert given_up, "there was state"


def test_control_watermarks_that_are_not_restored_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigning, "partition_watermarks", lambda *_: {})
    assert differ(SMALL, ALL_AT_ONCE)


def test_control_windows_that_stay_where_they_were_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        ComponentPlan,
        "by_groups",
        lambda folder, chains, count, groups: ComponentPlan.as_stored(
            folder, {str(n): chains.get(str(n), ()) for n in range(count)}
        ),
    )
    assert differ(SMALL, ALL_AT_ONCE)


def test_control_a_failing_history_names_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """By the command that it prints, a failure is seen again."""
    monkeypatch.setattr(assigning, "partition_watermarks", lambda *_: {})
    code = shlex.split(replay(SMALL, ALL_AT_ONCE))[-1]
    with pytest.raises(AssertionError):
        exec(code, {})
