"""Type checkers accept what users write, and find their mistakes."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from streamwork.cli.new import create
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

# How a job is put together: the type of its events goes along, through every step.
STREAMS = """\
from typing import Any, assert_type

from streamwork import (
    CallableSink,
    Event,
    EventCollector,
    Instance,
    Job,
    JsonLines,
    KeyedCollector,
    KeyedOperator,
    ListSource,
    Operator,
    Record,
    Source,
    SqliteSink,
    StatefulOperator,
    StatefulSource,
    Stream,
    Table,
    field,
    shuffle,
)


class Paid(Event):
    card: str
    amount: float = 0.0


class PaidOnline(Paid):
    shop: str = ""


class Total(Event):
    card: str
    amount: float


class Sum(Record):
    amount: float = 0.0


class Large(Operator[Paid, Paid]):
    channels = {"small": Total}

    def apply(self, event: Paid, collector: EventCollector) -> None:
        collector.emit(event)


class Counted(StatefulOperator[Paid, Sum, Total]):
    def setup_instance(self, instance: Instance, state: Sum | None) -> None: ...

    def get_state(self) -> Sum:
        return Sum()


class Totals(KeyedOperator[Paid, Sum, Total]):
    def apply(self, event: Paid, state: Sum, collector: KeyedCollector) -> None:
        assert_type(collector.key, Any)


class Clicks(Source[Paid]): ...


class Pages(StatefulSource[PaidOnline, Sum]): ...


class Untyped(Operator[Any, Any]): ...


def total(paid: Paid) -> Total:
    return Total(paid.card, paid.amount)


def running(paid: Paid, state: Sum) -> Total | None:
    return Total(paid.card, state.amount) if paid.amount else None


job = Job("typed", semantics="at-least-once", tracking="checkpoint")
paid = job.source(JsonLines("paid.jsonl", Paid), id="paid", time="at")
online = job.source(Pages(), id="pages")
assert_type(paid, Stream[Paid])
assert_type(online, Stream[PaidOnline])
assert_type(job.source(Clicks(), id="clicks"), Stream[Paid])
assert_type(job.source(ListSource([Total("c", 1.0)]), id="list"), Stream[Total])
assert_type(paid.event, type[Paid])
job.source(Totals(), id="x")  # wrong
job.source(Clicks(), "x")  # wrong

assert_type(paid.filter(lambda one: one.amount > 1), Stream[Paid])
assert_type(paid.where(field("amount") > 1), Stream[Paid])
assert_type(paid.map(total), Stream[Total])
assert_type(paid.map(lambda one: Total(one.card, one.amount), to=Total), Stream[Total])
assert_type(online.map(total), Stream[Total])
assert_type(paid.flat_map(lambda one: [Total(one.card, one.amount)], to=Total), Stream[Total])
assert_type(paid.map_with_state(running, key="card", state=Sum, id="running", to=Total), Stream[Total])
paid.filter(lambda one: assert_type(one, Paid).amount > 1)
online.map(lambda one: Total(assert_type(one, PaidOnline).shop, 1.0), to=Total)
paid.filter(lambda one: one.amuont > 1)  # wrong
paid.map(lambda one: Total(one.shop, 1.0), to=Total)  # wrong
paid.map(lambda one: one.amount, to=Total)  # wrong
paid.map(lambda one: one, to=Total)  # wrong to mypy; pyright takes it for Paid | Total
paid.flat_map(lambda one: Total(one.card, 1.0), to=Total)  # wrong
paid.map(total).map(total)  # wrong
paid.map_with_state(running, key="card", state=Total, id="running")  # wrong
paid.where(lambda one: True)  # wrong

assert_type(paid.apply(Large()), Stream[Paid])
assert_type(online.apply(Large()), Stream[Paid])
assert_type(paid.apply(Counted(), id="counted", grouping=shuffle()), Stream[Total])
assert_type(paid.apply(Totals(), key=["card"], id="totals", parallelism=2), Stream[Total])
assert_type(paid.apply(Untyped()), Stream[Any])
paid.map(total).apply(Large())  # wrong
paid.apply(Large(), key="card")  # wrong
paid.apply(Counted())  # wrong
paid.apply(Totals(), id="totals")  # wrong
paid.apply(Totals(), "card", "totals")  # wrong
paid.apply(Totals(), key="card")  # wrong
paid.apply(Totals(), key="card", id="totals", grouping=shuffle())  # wrong
paid.apply(Large)  # wrong
paid.apply(Large(), on_error="ignore")  # wrong

large = paid.apply(Large(), id="large")
assert_type(large.channel("small"), Stream[Any])
assert_type(large.channel("small", to=Total), Stream[Total])
assert_type(paid.union(online), Stream[Paid])
cards = online.table(key="card", history="1h", id="cards")
assert_type(cards, Table[PaidOnline])
assert_type(cards.late, Stream[Any])
assert_type(paid.join(cards, key="card", how="left", id="shops"), Stream[Any])
assert_type(paid.join(cards, key="card", to=Total, id="joined"), Stream[Total])
assert_type(paid.join(online, key=["card"], within="30min", how="full", id="pairs", to=Total), Stream[Total])
assert_type(paid.join("cards.parquet", key="card", id="static"), Stream[Any])
paid.join(cards, key="card", how="outer", id="outer")  # wrong
paid.join(cards, key="card", to=Sum, id="no-event")  # wrong
paid.join(cards, key="card", withing="30min", id="misspelt")  # wrong
paid.join(cards, id="no-key")  # wrong
as_base: Stream[Paid] = online
paid.union(paid.map(total))  # wrong
as_derived: Stream[PaidOnline] = paid  # wrong
large.channel("small", to=Sum)  # wrong


def received(one: Paid) -> None: ...


paid.sink(SqliteSink("paid.db", "paid"), id="table")
paid.print().sink(CallableSink(received), id="function")
online.sink(CallableSink(received), id="online")
paid.map(total).sink(CallableSink(received), id="function")  # wrong
paid.sink(SqliteSink("paid.db", "paid"), "table")  # wrong
paid.sink(Large(), id="table")  # wrong
paid.sink(SqliteSink("paid.db", "paid"), id="table", isolation="dirty")  # wrong
summary = job.run(mode="microbatch", until_caught_up=True, on_error={"large": "drop"}, master="local[2]")
assert_type(summary.events, int)
job.run("microbatch")  # wrong
job.run(mode="spark")  # wrong
job.run(untill_caught_up=True)  # wrong
job.run(retain="3")  # wrong
Job("typed", "exactly-once")  # wrong
Job("typed", semantics="twice")  # wrong
Job("typed", paralelism=2)  # wrong
"""

# The control: where the type of a stream is not known, checkers can find none of these.
ANY = """\
from typing import Any

from streamwork import Event, Stream


class Total(Event):
    card: str


def mistaken(paid: Stream[Any]) -> None:
    paid.filter(lambda one: one.amuont > 1)
    paid.map(lambda one: Total(one.shop), to=Total).map(lambda one: one.card)  # wrong
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


def wrong(text: str, checker: Checker) -> set[int]:
    marks = re.compile(rf"# wrong($| to {checker.__name__};)")
    return {number for number, line in enumerate(text.splitlines(), 1) if marks.search(line)}


@pytest.mark.slow
def test_what_streamwork_new_writes(tmp_path: Path, checker: Checker) -> None:
    create("page-visits", tmp_path / "job")
    assert checker(tmp_path / "job") == {}


@pytest.mark.slow
def test_the_examples(tmp_path: Path, checker: Checker) -> None:
    """The job of the README is one of them."""
    files = {path.name: path.read_text() for path in (REPO / "examples").glob("*.py")}
    assert "card_usage.py" in files
    assert checker(write(tmp_path / "examples", files)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fraud_detection"])
def test_the_examples_in_folders(tmp_path: Path, checker: Checker, name: str) -> None:
    ignored = shutil.ignore_patterns("data", ".streamwork", "__pycache__")
    assert checker(shutil.copytree(REPO / "examples" / name, tmp_path / name, ignore=ignored)) == {}


@pytest.mark.slow
@pytest.mark.parametrize("page", ["writing-jobs", "windows", "joins"])
def test_the_guides(tmp_path: Path, checker: Checker, page: str) -> None:
    text = (REPO / "docs" / f"{page}.md").read_text()
    program = "\n".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
    assert checker(write(tmp_path / "guide", {"guide.py": program})) == {}


@pytest.mark.slow(checker=pyright)
@pytest.mark.slow(text=[USED, ANY, BEFORE])
@pytest.mark.parametrize(
    "text",
    [USED, STREAMS, ANY, BEFORE],
    ids=["used", "streams", "control: a stream of anything", "control: Event as it was"],
)
def test_mistakes_are_found_and_nothing_else(tmp_path: Path, checker: Checker, text: str) -> None:
    found = checker(write(tmp_path / "used", {"used.py": text})).get("used.py", {})
    assert set(found) == wrong(text, checker), found
