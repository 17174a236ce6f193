"""The quick tier leaves nothing out that it promises to meet, and says so where it is asked for something that is not there."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

import pytest

from matrix import cells, on_spark
from matrix.points import RECOVERY
from matrix.targets import SINKS, TARGETS, kind_of
from tiers import FOUND, covering, pairs, quick_every

pytest_plugins = ["pytester"]


def unmet(cells: Sequence[Any], chosen: Sequence[Any], met: Callable[[Any], set[Hashable]]) -> set[Hashable]:
    """What some cell meets and no chosen one does."""
    return set[Hashable]().union(*map(met, cells)) - set[Hashable]().union(*map(met, chosen))


MATRICES: dict[str, tuple[Sequence[Any], Callable[[Any], set[Hashable]]]] = {
    "on the local host": (cells.CELLS, cells.met),
    "on Spark": (on_spark.product(), on_spark.met),
    "three of each": ([(a, b, c) for a in "abc" for b in "def" for c in "ghi"], lambda cell: pairs(*cell)),
}
every_matrix = pytest.mark.parametrize(("cells", "met"), MATRICES.values(), ids=MATRICES)


@every_matrix
def test_the_chosen_cells_meet_all_pairs(cells: Sequence[Any], met: Callable[[Any], set[Hashable]]) -> None:
    chosen = covering(cells, met)
    assert unmet(cells, chosen, met) == set()
    assert len(chosen) < len(cells) / 2, "few"


@every_matrix
def test_without_one_of_them_a_pair_is_missing(cells: Sequence[Any], met: Callable[[Any], set[Hashable]]) -> None:
    """The negative control: the last of them was taken for a pair that the others lack."""
    chosen = covering(cells, met)
    assert any(unmet(cells, [*chosen[:place], *chosen[place + 1 :]], met) for place in range(len(chosen)))


def test_what_a_cell_meets_is_every_pair() -> None:
    """Counted by hand, not by `met`: of point, kind of sinks and promise."""
    quick = [
        parameter.values[0] for parameter in cells.cells(*{cell.promise for cell in cells.CELLS}) if not parameter.marks
    ]
    for left, right in (("point", "kind"), ("point", "promise"), ("kind", "promise")):
        wanted, found = ({(_level(c, left), _level(c, right)) for c in some} for some in (cells.CELLS, quick))
        assert wanted == found
    starts = [parameter.id.split("-")[0] for parameter in cells.recovery_cells() if not parameter.marks]
    assert all(starts.count(name) == len({kind_of(sinks) for sinks in SINKS.values()}) for name, *_ in RECOVERY)
    assert {cell.sink for cell in on_spark.cells(every=False)} == set(TARGETS)


def _level(cell: cells.Cell, factor: str) -> str:
    return {"point": cell.point.name, "kind": kind_of(cell.sinks), "promise": cell.promise}[factor]


def test_every_third_case_is_quick_and_none_is_lost() -> None:
    two = pytest.param(8, 9, id="two", marks=pytest.mark.spark)
    cases = quick_every(3, [*range(6), pytest.param(6, 7, id="both"), two])
    marks = [[mark.name for mark in getattr(case, "marks", ())] for case in cases]
    assert marks == [[], ["slow"], ["slow"], [], ["slow"], ["slow"], [], ["spark", "slow"]]
    assert cases[:4:3] == [0, 3] and [case.values for case in cases[1:3]] == [(1,), (2,)]
    assert (cases[7].values, cases[7].id) == (two.values, two.id)


# ---- the table of tests/README.md -----------------------------------------------------------------------------------------

HERE = Path(__file__).parent
Found = dict[tuple[Path, str], set[str]]


def complaints(table: str, found: Found) -> list[str]:
    """Tests that there are not, and tiers that are not theirs. The tier is known of tests in files that pytest has collected."""
    told = []
    for promise, test, tier, control in re.findall(
        r"^\| ([^|]+) \| `(.+?)` \| ([^|]+) \| (.+?) \|$", table, re.MULTILINE
    ):
        for name in (test, *re.findall("`(.+?)`", control)):
            file, _, function = name.partition("::")
            path = HERE / file
            if not path.is_file() or f"\ndef {function}(" not in path.read_text():
                told.append(f"{promise}: there is no {name}")
        tiers = found.get((HERE / test.partition("::")[0], test.partition("::")[2]))
        if tiers is not None and tier != " and ".join(sorted(tiers)):
            told.append(f"{promise}: {test} is in {sorted(tiers)}, not {tier}")
    return told


def test_the_tests_that_the_readme_names_exist_and_are_in_their_tiers(request: pytest.FixtureRequest) -> None:
    text = (HERE / "README.md").read_text()
    assert text.count("::") > 50
    assert complaints(text, request.config.stash[FOUND]) == []


def test_a_wrong_row_is_noticed(request: pytest.FixtureRequest) -> None:
    """The negative control."""
    mine, me = "test_tiers.py", "test_a_wrong_row_is_noticed"
    table = f"| a | `{mine}::{me}` | quick | `{mine}::{me}` |\n"
    found = request.config.stash[FOUND]
    assert complaints(table, found) == []
    assert complaints(table.replace("quick", "rest"), found)
    assert complaints(table.replace(f"quick | `{mine}", "quick | `nowhere.py"), found)
    assert complaints(table.replace(f"a | `{mine}::{me}", f"a | `{mine}::test_nothing"), found)


# ---- which tests a tier has -----------------------------------------------------------------------------------------------

FILE = """
import pytest

def test_plain(): ...

@pytest.mark.slow
def test_slow(): ...

@pytest.mark.slow(mode="microbatch")
@pytest.mark.parametrize("mode", ["local", "microbatch"])
@pytest.mark.parametrize("number", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_cases(mode, number): ...
"""


@pytest.fixture
def run(pytester: pytest.Pytester) -> Callable[..., pytest.RunResult]:
    here = Path(__file__).parent
    pytester.makeconftest("from tiers import *")
    pytester.makeini(f"[pytest]\nmarkers = slow\npythonpath = {here}\naddopts = --strict-markers -p no:streamwork")
    pytester.makepyfile(FILE)
    return lambda *arguments: pytester.runpytest("-q", *arguments)


@pytest.mark.parametrize(
    "workers", [(), pytest.param(("--numprocesses", "2"), marks=pytest.mark.slow)], ids=["one process", "workers"]
)
@pytest.mark.parametrize(
    ("tier", "ran", "line"),
    [
        ("quick", 2, "tier quick: 2 tests were run; `make test-all` runs the rest: 4 tests"),
        ("rest", 4, "tier rest: 4 tests were run; `make test` runs the quick ones: 2 tests"),
    ],
)
def test_each_test_is_in_one_tier(run: Any, tier: str, ran: int, line: str, workers: tuple[str, ...]) -> None:
    result = run("--tier", tier, *workers)
    assert result.parseoutcomes()["passed"] == ran
    assert line in result.stdout.str()


def test_without_a_tier_everything_is_run(run: Any) -> None:
    result = run()
    assert result.parseoutcomes() == {"passed": 6}
    assert "tier" not in result.stdout.str()


def test_a_marker_of_a_module_is_about_the_tests_that_have_its_parameter(run: Any, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FILE + "pytestmark = pytest.mark.slow(number=1)")
    result = run("--tier", "quick")
    assert result.parseoutcomes()["passed"] == 1


def test_a_marker_may_name_several_values(run: Any, pytester: pytest.Pytester) -> None:
    for several in ("[1]", "range(2)"):
        pytester.makepyfile(FILE + f"pytestmark = pytest.mark.slow(number={several})")
        assert run("--tier", "quick").parseoutcomes()["passed"] == 1, several


def test_a_marker_that_names_no_parameter_is_an_error(run: Any, pytester: pytest.Pytester) -> None:
    pytester.makepyfile(FILE.replace('slow(mode="microbatch")', 'slow(modus="microbatch")'))
    result = run("--tier", "quick")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "the marker slow names ['modus'], which is no parameter of the test" in result.stderr.str()


PROPERTIES = """
import pytest
from hypothesis import given, settings, strategies as st

from hypothesis.stateful import RuleBasedStateMachine, rule

ran = {"default": 0, "few": 0, "many": 0, "slow": 0, "machine": 0}

class Machine(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        ran["machine"] += 1

    @rule()
    def step(self): ...

TestMachine = Machine.TestCase
TestMachine.settings = settings(max_examples=40, stateful_step_count=2, database=None)

@given(st.integers())
def test_default(number):
    ran["default"] += 1

@pytest.mark.parametrize("twice", [1, 2])
@settings(max_examples=3, database=None)
@given(number=st.integers())
def test_few(twice, number):
    ran["few"] += 1

class TestMany:
    @settings(max_examples=400, database=None)
    @given(number=st.integers())
    def test_many(self, number):
        ran["many"] += 1

@pytest.mark.slow
@settings(max_examples=40, database=None)
@given(st.integers())
def test_slow(number):
    ran["slow"] += 1

@pytest.fixture(scope="session", autouse=True)
def told():
    yield
    print(ran)
"""


@pytest.mark.parametrize(
    ("tier", "ran"),
    [("quick", (25, 6, 100, 0, 10)), ("rest", (100, 6, 400, 40, 40)), ("all", (100, 6, 400, 40, 40))],
)
def test_the_quick_tier_runs_some_examples_of_each_property(
    run: Any, pytester: pytest.Pytester, tier: str, ran: tuple[int, ...]
) -> None:
    pytester.makepyfile(PROPERTIES)
    result = run("--tier", tier, "-s")
    result.assert_outcomes(passed=5 if tier == "quick" else 6, deselected=1 if tier == "quick" else 0)
    assert str(dict(zip(("default", "few", "many", "slow", "machine"), ran, strict=True))) in result.stdout.str()
