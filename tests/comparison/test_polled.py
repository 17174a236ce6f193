"""`compare` of jobs with polled sources: each is recorded once, and the differences are those of two folds of what it gave."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from comparison.compare_jobs import HEAD, Lab, part, version
from savepoint_jobs import expected, last
from savepoint_world import every_file
from streamwork.comparison.recording import Recorded, Recording
from streamwork.world import RealDisk

FEED = """
import json
from pathlib import Path

from streamwork import StatefulSource

class Place(Record):
    at: int = 0

class Feed(StatefulSource[Payment, Place]):
    replayable = True
    bounded = True

    def setup_instance(self, instance, state):
        self.at, self.number, self.count = state.at if state else 0, instance, instance.count

    def get_events(self, collector):
        lines = Path("payments.jsonl").read_text().splitlines()[self.number::self.count]
        for line in lines[self.at:self.at + 3]:
            self.at += 1
            payment = json.loads(line)
            collector.emit(Payment(payment["card"], {amount}))

    def get_state(self):
        return Place(self.at)
"""
AS_GIVEN = 'payment["amount"]'
JSON_LINES = 'job.source(JsonLines("payments.jsonl", Payment, max_events=5), id="payments")'


def polled(before: str = "pass", amount: str = AS_GIVEN, instances: int = 1, head: str = HEAD) -> str:
    """The text of a job file."""
    text = version(before, head=head + FEED.replace("{amount}", amount))
    assert JSON_LINES in text
    return text.replace(JSON_LINES, f'job.source(Feed(), id="payments", parallelism={instances})')


DOUBLE = "event = Payment(event.card, event.amount * (2 if event.card == 'card-1' else 1))"


def fold(given: list[tuple[str, int]], start: list[tuple[str, int]], double: str = "") -> dict[str, tuple[int, int]]:
    """The oracle: number and total of each card."""
    totals = {card: (number, total) for card, number, total in last(expected(start))}
    for card, amount in given:
        number, total = totals.get(card, (0, 0))
        totals[card] = number + 1, total + amount * (2 if card == double else 1)
    return totals


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("events", [7, 1000])
def test_the_differences_are_those_of_two_folds(tmp_path: Path, events: int, instances: int) -> None:
    lab = Lab(tmp_path, polled(instances=instances))
    lab.file("v2.py", polled(DOUBLE, instances=instances))
    before = every_file(RealDisk(), lab.folder / ".streamwork")
    answer = lab.compare("usage.py", "v2.py", "--events", events)
    given = answer["events"]
    assert (given, answer["ended"]) == ((40, True) if events == 1000 else (8 if instances == 2 else 7, False))
    halves = [lab.given[20:][number::instances] for number in range(instances)]
    slice_ = [pair for half in halves for pair in half[: given // instances]]
    a, b = fold(slice_, lab.given[:20]), fold(slice_, lab.given[:20], "card-1")
    assert a != b and not answer["same"] and answer["deterministic"]
    for kind, name in (("outputs", "latest"), ("states", "per-card")):
        (example,) = part(answer, kind, name)["diff"]["examples"]
        assert example["key"] == {"card": "card-1"}
        assert (example["before"]["total"], example["after"]["total"]) == (a["card-1"][1], b["card-1"][1])
    assert part(answer, "outputs", "latest")["diff"]["rows_before"] == len({card for card, _ in slice_})
    assert {"payments/0"} <= answer["end"].keys() and sum(answer["end"].values()) == 20 + given
    assert any("source payments has no offsets: it was polled once" in line for line in answer["remarks"])
    assert [one["component"] for one in answer["states"]] == ["per-card"], "the record of the source is not compared"
    assert every_file(RealDisk(), lab.folder / ".streamwork") == before, "the job's folder is only read"


def test_both_versions_read_what_the_source_gave_once(tmp_path: Path) -> None:
    """Also if the source breaks its word, and gives something else each time."""
    lab = Lab(tmp_path, polled(amount="random.randrange(1 << 40)"))
    answer = lab.compare("usage.py")
    assert answer["same"] and answer["deterministic"] and answer["events"] == 40


def test_control_a_source_that_is_asked_again_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Lab(tmp_path, polled(amount="random.randrange(1 << 40)"))
    read, recordings = Recorded.read, list[Recording]()
    record = Recording.record

    def noted(self: Recording, events: int) -> int:
        recordings.append(self)
        return record(self, events)

    def again(self: Recorded, *slice_: Any) -> Any:
        record(recordings[0], 1000)
        return read(self, *slice_)

    monkeypatch.setattr(Recording, "record", noted)
    monkeypatch.setattr(Recorded, "read", again)
    assert not lab.compare("usage.py")["deterministic"]


def test_control_a_recording_that_begins_elsewhere_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recording, "_records", lambda self, node: [None] * node.parallelism)
    with pytest.raises(AssertionError):
        test_the_differences_are_those_of_two_folds(tmp_path, 1000, 1)


TIMED = """
from datetime import timezone

from streamwork import Fixed, count

class Timed(Event):
    card: str
    at: datetime

class Uses(Event):
    card: str
    window_start: datetime
    window_end: datetime
    uses: int
"""
AT = "datetime(2026, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=10 * self.at - 100 * (self.at % 9 == 5))"
WINDOWS = """
job = Job("usage", checkpoint_every=0, parallelism=2)
timed = job.source(Feed(), id="payments", parallelism=1, time="at")
uses = timed.window(Fixed("60s"), key="card", id="per-card").aggregate(Uses, uses=count())
uses.sink(SqliteSink("latest.db", "latest"), id="latest")
uses.channel("late").sink(SqliteSink("late.db", "late"), id="late")
"""


def rows(lab: Lab, table: str) -> int:
    with closing(sqlite3.connect(lab.folder / f"{table}.db")) as db:
        (number,) = db.execute(f"SELECT count(*) FROM {table}").fetchone()
    return int(number)


@pytest.mark.slow
def test_event_time_goes_on_from_the_savepoint(tmp_path: Path) -> None:
    """There are as many windows and late events as the job itself then writes."""
    feed = FEED.replace("StatefulSource[Payment", "StatefulSource[Timed")
    lab = Lab(
        tmp_path,
        HEAD + TIMED + feed.replace('Payment(payment["card"], {amount})', f'Timed(payment["card"], {AT})') + WINDOWS,
    )
    before = {table: rows(lab, table) for table in ("latest", "late")}
    answer = lab.compare("usage.py")
    assert answer["same"] and answer["deterministic"]
    lab.catch_up()
    for table, there in before.items():
        compared = part(answer, "outputs", table)["diff"]["rows_before"]
        assert compared == rows(lab, table) - there > 0, table


# ---- what is refused ---------------------------------------------------------------------------------------------------------


def refused(lab: Lab, *words: str) -> tuple[str, str]:
    error = lab.refused("compare", "usage.py", *words, "--from", "savepoint:base")
    return error["code"], error["cause"]


def test_a_source_that_is_not_replayable_is_refused_before_it_is_asked(tmp_path: Path) -> None:
    text = polled().replace("replayable = True", "replayable = False")
    at_least_once = 'Job("usage", semantics="at-least-once", tracking="acknowledge",'
    lab = Lab(tmp_path, text.replace('Job("usage",', at_least_once))
    (lab.folder / "payments.jsonl").unlink()
    code, cause = refused(lab)
    assert code == "SW-COMPARE-SOURCE" and "polling it here could take events away from the job" in cause


@pytest.fixture(scope="module")
def lab(tmp_path_factory: Any) -> Lab:
    return Lab(tmp_path_factory.mktemp("polled"), polled())


def test_versions_with_sources_of_two_kinds_are_refused(lab: Lab) -> None:
    lab.file("v2.py", version())
    assert refused(lab, "v2.py") == (
        "SW-COMPARE-SOURCE",
        "B (v2.py): source payments is polled in A and with offsets in B, so they cannot read the same events",
    )


def test_other_events_are_refused(lab: Lab) -> None:
    head = HEAD.replace("    amount: int\n", "    amount: int\n    note: str | None = None\n", 1)
    lab.file("v2.py", polled(head=head))
    code, cause = refused(lab, "v2.py")
    assert code == "SW-COMPARE-SOURCE" and cause.startswith(
        "B (v2.py): the events of source payments have other fields"
    )


def test_another_number_of_instances_than_in_the_savepoint_is_refused(lab: Lab) -> None:
    lab.file("wide.py", polled(instances=2))
    error = lab.refused("compare", "wide.py", "--from", "savepoint:base")
    assert error["code"] == "SW-COMPARE-SOURCE" and "has 2 instances, and 1 in savepoint base" in error["cause"]


def test_an_error_of_the_source_says_whose_it_is(lab: Lab) -> None:
    lab.file("v2.py", polled(amount="1 // 0"))
    assert lab.compare("usage.py", "v2.py")["same"], "the source of B is not asked"
    error = lab.refused("compare", "v2.py", "--from", "savepoint:base")
    assert error["code"] == "SW-OPERATOR-FAILED" and error["cause"].startswith("A (v2.py): ")
