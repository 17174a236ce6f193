"""Two tiers of tests: `make test` runs the quick ones, `make test-all` the rest.

A test is quick unless it says otherwise, at its own place:

    @pytest.mark.slow                        every case of it is in the rest
    @pytest.mark.slow(mode="microbatch")     the cases with this value of a parameter, or one of a list or range, are;
                                             as `pytestmark`: those of a module
    pytest.param(..., marks=SLOW)            this case is
    @pytest.mark.parametrize(NAME, quick_every(3, CASES))     two of three cases are
    @pytest.mark.parametrize(NAMES, quick_few(CELLS, met))    all cases are but a few, which meet everything the others do

A test of Hypothesis is in both tiers unless it says otherwise: the quick one runs a part of its examples.

`pytest FILE` runs both tiers of a file; `--tier quick` and `--tier rest` choose one.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import pytest
from _pytest.mark import ParameterSet

TIERS = ("quick", "rest", "all")
SLOW = pytest.mark.slow
FEW_EXAMPLES = 5
_SEEN: set[Any] = set()
"""Functions and classes whose examples are fewer already: several cases may share one."""
Cell = TypeVar("Cell")


def is_slow(item: pytest.Item) -> bool:
    """Does a marker put this case into the rest?

    A marker of a test that names a parameter which the test does not have is an error; one of a module is about those that have it.
    """
    return any(_fits(item, node, marker) for node, marker in item.iter_markers_with_node("slow"))


def _fits(item: pytest.Item, node: pytest.Item | pytest.Collector, marker: pytest.Mark) -> bool:
    given: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    taken = getattr(item, "fixturenames", ())
    unknown = [*marker.args, *(name for name in marker.kwargs if name not in taken)]
    if unknown and node is item:
        raise pytest.UsageError(f"{item.nodeid}: the marker slow names {unknown}, which is no parameter of the test")
    return not unknown and all(given.get(name) in _values(value) for name, value in marker.kwargs.items())


def _values(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list | range) else [value]


def tiers_of(item: pytest.Item) -> set[str]:
    if is_slow(item):
        return {"rest"}
    return {"quick", "rest"} if is_property(item) else {"quick"}


def is_property(item: pytest.Item) -> bool:
    """Does Hypothesis make the examples of this test?"""
    return bool(getattr(getattr(item, "obj", None), "is_hypothesis_test", False))


def run_fewer_examples(item: Any) -> None:
    """Let a test of Hypothesis run a quarter of its examples, and not fewer than a few. A state machine has its settings in its
    class; those of a function can only be changed where Hypothesis keeps them.
    """
    holder, name = item.cls, "settings"
    if not hasattr(holder, name):
        holder, name = getattr(item.obj, "__func__", item.obj), "_hypothesis_internal_use_settings"
    if holder in _SEEN:
        return
    _SEEN.add(holder)
    given = getattr(holder, name)
    fewer = max(min(FEW_EXAMPLES, given.max_examples), given.max_examples // 4)
    setattr(holder, name, hypothesis.settings(given, max_examples=fewer))


def pairs(*levels: Hashable) -> set[tuple[Hashable, ...]]:
    """The pairs of factor levels that a cell meets."""
    return set(combinations(levels, 2))


def covering(cells: Sequence[Cell], met: Callable[[Cell], Iterable[Hashable]]) -> list[Cell]:
    """A few of the cells that together meet everything that any cell meets, in the order of the cells.

    Greedy: always the first cell among those that meet most of what is missing. The same cells give the same choice.
    """
    meets = [frozenset(met(cell)) for cell in cells]
    missing = set[Hashable]().union(*meets)
    chosen = set[int]()
    while missing:
        best = max(range(len(cells)), key=lambda number: len(meets[number] & missing))
        chosen.add(best)
        missing -= meets[best]
    return [cell for number, cell in enumerate(cells) if number in chosen]


def quick_few(
    cells: Sequence[Cell],
    met: Callable[[Cell], Iterable[Hashable]],
    name: Callable[[Cell], str],
    values: Callable[[Cell], Sequence[Any]] = lambda cell: [cell],
) -> list[Any]:
    """Parameters of a test: all cells, those that `covering` leaves out marked slow."""
    few = covering(cells, met)
    return [
        pytest.param(*values(cell), id=name(cell), marks=() if any(cell is one for one in few) else SLOW)
        for cell in cells
    ]


def quick_every(step: int, cases: Iterable[Any]) -> list[Any]:
    """Parameters of a test: all cases, but for the first of each `step` marked slow. A tuple is one value."""
    return [case if number % step == 0 else _slow(case) for number, case in enumerate(cases)]


def _slow(case: Any) -> Any:
    if isinstance(case, ParameterSet):
        return pytest.param(*case.values, id=case.id, marks=[*case.marks, SLOW])
    return pytest.param(case, marks=SLOW)


# ---- hooks of pytest ------------------------------------------------------------------------------------------------------

LEFT = pytest.StashKey[int]()
"""How many tests of the selection belong to the other tier."""
FOUND = pytest.StashKey[dict[tuple[Path, str], set[str]]]()
"""(file, test) -> the tiers that its cases belong to, of all that was collected."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--tier", choices=TIERS, default="all", help="quick: without tests marked slow; rest: only those; all (default)"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests of the tier, and put them in order.

    Tests with the longest time limits start first, so that none of them is the last to end. Those on Spark are next to each other:
    one of two workers has them all as long as the other has work of its own, and only one JVM is started.
    """
    tiers = {item: tiers_of(item) for item in items}
    config.stash[FOUND] = found = {}
    for item in items:
        found.setdefault((item.path, getattr(item, "originalname", item.name)), set()).update(tiers[item])
    tier = config.getoption("tier")
    left = [item for item in items if tier != "all" and tier not in tiers[item]]
    if tier == "quick":
        for item in filter(is_property, items):
            run_fewer_examples(item)
    config.stash[LEFT] = len(left)
    config.hook.pytest_deselected(items=left)
    dropped = set(left)
    items[:] = sorted((item for item in items if item not in dropped), key=_order)


def _order(item: pytest.Item) -> tuple[float, bool]:
    limit = item.get_closest_marker("timeout")
    return -float(limit.args[0]) if limit is not None else 0.0, item.get_closest_marker("spark") is None


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist reports what it has left to the process that prints the summary."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["left"] = session.config.stash.get(LEFT, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    node.config.stash[LEFT] = getattr(node, "workeroutput", {}).get("left", 0)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    tier, left = config.getoption("tier"), config.stash.get(LEFT, 0)
    if tier != "all" and not config.getoption("collectonly"):
        ran = sum(len(terminalreporter.getreports(outcome)) for outcome in ("passed", "failed", "skipped"))
        other = {"quick": "`make test-all` runs the rest", "rest": "`make test` runs the quick ones"}[tier]
        terminalreporter.write_line(f"tier {tier}: {ran:,} tests were run; {other}: {left:,} tests")
