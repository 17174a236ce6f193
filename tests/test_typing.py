"""Type checkers accept what users write, and find their mistakes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamwork.tools.new import create
from type_checkers import Checker, mypy, pyright, write

REPO = Path(__file__).parents[1]

# What a user writes, with `# wrong` behind every line that both checkers must refuse, and only there.
USED = """\
from collections.abc import Callable
from typing import assert_type

from streamwork import Event, KeyedCollector, KeyedOperator, ListSource, Record


class Paid(Event):
    card: str
    amount: float = 0.0


class PaidOnline(Paid):
    shop: str = ""


class Total(Record):
    amount: float = 0.0


class Totals(KeyedOperator[Paid, Total, Paid]):
    def apply(self, event: Paid, state: Total, collector: KeyedCollector) -> None:
        assert_type(event.amount, float)
        state.amount += event.amount
        event.amount = 1.0  # wrong
        state.amount = "1.0"  # wrong
        collector.emit(state)  # wrong


class Inverted(KeyedOperator[Paid, Total, Paid]):
    def apply(self, event: Total, state: Paid, collector: KeyedCollector) -> None:  # wrong
        pass


paid = Paid("c1", 2.5)
assert_type(paid, Paid)
assert_type(PaidOnline("c1", 2.5, "s"), PaidOnline)
assert_type(ListSource([paid]), ListSource[Paid])
make: Callable[[str], Paid] = Paid
paid.card = "c2"  # wrong
PaidOnline("c1").shop = "s"  # wrong
Paid()  # wrong
Paid(1)  # wrong
Paid("c1", 2.5, 3)  # wrong
Paid("c1", price=2.5)  # wrong
total = Total()
total.amount += 1
Total("1.0")  # wrong
same = {paid: 1}
"""

# As `Event` was: msgspec says that its structs are dataclasses, but not that the subclasses of a frozen one are frozen.
BEFORE = """\
import msgspec


class Event(msgspec.Struct, frozen=True, gc=False):
    pass


class Paid(Event):  # wrong
    card: str
"""


@pytest.fixture(params=[mypy, pyright], ids=["mypy", "pyright"])
def checker(request: pytest.FixtureRequest) -> Checker:
    return request.param  # type: ignore[no-any-return]


def wrong(text: str) -> set[int]:
    return {number for number, line in enumerate(text.splitlines(), 1) if line.endswith("# wrong")}


def test_what_streamwork_new_writes(tmp_path: Path, checker: Checker) -> None:
    create("page-visits", tmp_path / "job")
    assert checker(tmp_path / "job") == {}


def test_the_examples(tmp_path: Path, checker: Checker) -> None:
    """The job of the README is one of them."""
    files = {path.name: path.read_text() for path in (REPO / "examples").glob("*.py")}
    assert "card_usage.py" in files
    assert checker(write(tmp_path / "examples", files)) == {}


def test_the_guide_to_writing_jobs(tmp_path: Path, checker: Checker) -> None:
    text = (REPO / "docs" / "writing-jobs.md").read_text()
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert checker(write(tmp_path / "guide", {"guide.py": program})) == {}


@pytest.mark.parametrize("text", [USED, BEFORE], ids=["used", "control: Event as it was"])
def test_mistakes_are_found_and_nothing_else(tmp_path: Path, checker: Checker, text: str) -> None:
    found = checker(write(tmp_path / "used", {"used.py": text})).get("used.py", {})
    assert set(found) == wrong(text), found
