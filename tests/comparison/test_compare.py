"""`compare`: what differs between two versions is what differs between two plain folds of the same input."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pytest

from commands import call_in
from comparison.compare_jobs import HEAD, SINKS, Lab, part, version
from savepoint_jobs import Place, expected, last
from savepoint_world import every_file
from streamwork import Event, EventLog
from streamwork.comparison.trial import Reading
from streamwork.epoch.recovery.catch_up import Leg
from streamwork.world import RealDisk

Row = tuple[str, int, int]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: Any) -> Lab:
    return Lab(tmp_path_factory.mktemp("lab"))


def fold(given: list[tuple[str, int]], start: list[tuple[str, int]], double: str = "") -> dict[str, list[Row]]:
    """The oracle: the rows of `given` behind `start`, where the amounts of a card may count twice."""
    totals = {card: (number, total) for card, number, total in last(expected(start))}
    rows: list[Row] = []
    for card, amount in given:
        number, total = totals.get(card, (0, 0))
        totals[card] = number + 1, total + amount * (2 if card == double else 1)
        rows.append((card, *totals[card]))
    return {"journal": rows, "latest": last(rows), "state": [(c, *t) for c, t in totals.items()]}


@pytest.mark.parametrize("events", [7, *(pytest.param(many, marks=pytest.mark.slow) for many in (1, 40, 1000))])
def test_the_differences_are_those_of_two_folds(lab: Lab, events: int) -> None:
    lab.file("v2.py", version("event = Payment(event.card, event.amount * (2 if event.card == 'card-1' else 1))"))
    before = every_file(RealDisk(), lab.folder / ".streamwork")
    answer = lab.compare("usage.py", "v2.py", "--events", events)
    slice_ = lab.given[20 : 20 + events]
    a, b = fold(slice_, lab.given[:20]), fold(slice_, lab.given[:20], "card-1")
    assert (answer["events"], answer["ended"]) == (len(slice_), events > 40)
    assert answer["deterministic"] and answer["same"] is (a == b)
    for kind, name, rows in (("outputs", "latest", "latest"), ("states", "per-card", "state")):
        diff = part(answer, kind, name)["diff"]
        changed = [pair for pair in zip(sorted(a[rows]), sorted(b[rows]), strict=True) if pair[0] != pair[1]]
        assert (diff["changed"], diff["added"], diff["gone"]) == (len(changed), 0, 0)
        assert diff["same"] == len(a[rows]) - len(changed)
        for example in diff["examples"]:
            key = example["key"]["card"]
            assert [example["before"]["total"], example["after"]["total"]] == [
                next(total for card, _, total in side[rows] if card == key) for side in (a, b)
            ]
    diff = part(answer, "outputs", "journal")["diff"]
    assert (diff["gone"], diff["added"]) == (
        len(set(a["journal"]) - set(b["journal"])),
        len(set(b["journal"]) - set(a["journal"])),
    )
    stored = duckdb.sql(
        f"SELECT kind, count(*) FROM '{lab.folder}/comparison/differences.parquet' GROUP BY kind"
    ).fetchall()
    counts = {kind: sum(len(list(one["diff"]["examples"])) for one in answer[f"{kind}s"]) for kind, _ in stored}
    assert all(count >= counts[kind] for kind, count in stored) and bool(stored) is (a != b)
    assert json.loads((lab.folder / "comparison" / "comparison.json").read_text())["same"] is (a == b)
    assert every_file(RealDisk(), lab.folder / ".streamwork") == before, "the job's folder is only read"
    assert lab.journal() == expected(lab.given[:20]), "no target is written"


def test_the_same_version_gives_the_same_and_exit_codes_say_so(lab: Lab) -> None:
    lab.file("v2.py", version("event = Payment(event.card, event.amount + 1)"))
    words = ("compare", "usage.py", "--from", "savepoint:base", "--exit-code")
    code, out, _ = call_in(lab.folder, *words)
    assert (code, "A and B give the same outputs and states" in out) == (0, True)
    code, out, _ = call_in(lab.folder, *words[:2], "v2.py", *words[2:])
    assert code == 1 and "A and B differ in output journal, output latest, state per-card" in out
    assert (
        "~   card-0   total" in out
        and "20 more" not in out.partition("output latest")[0].partition("output journal")[0]
    )


@pytest.mark.slow
def test_another_parallelism_and_other_fields_are_compared_by_what_both_have(lab: Lab) -> None:
    head = HEAD.replace("    total: int\n", "    total: int\n    large: bool = False\n", 1)
    head = head.replace("    total: int = 0\n", "    total: int = 0\n    seen: int = 0\n")
    lab.file("v2.py", version(head=head, parallelism=3, sinks=SINKS + 'usage.sink(SqliteSink("x.db", "x"), id="more")'))
    answer = lab.compare("usage.py", "v2.py")
    latest, state = part(answer, "outputs", "latest")["diff"], part(answer, "states", "per-card")["diff"]
    assert latest["schema"] == ["large is new"] and state["schema"] == ["seen is new"]
    assert (latest["changed"], state["changed"]) == (0, 0)
    assert part(answer, "outputs", "more")["diff"]["status"] == "added"


def test_what_if_with_another_parameter(tmp_path: Path) -> None:
    text = version('if event.amount < job.param("least", default=2):\n            return')
    lab = Lab(tmp_path, text.replace('job.param("least"', "LEAST(").replace("LEAST(, default=2)", "LEAST").replace(
        "payments = job", 'LEAST = job.param("least", default=2)\npayments = job'
    ))  # fmt: skip
    assert lab.compare("usage.py")["same"]
    answer = lab.compare("usage.py", "--param", "least=5")
    assert (answer["a"]["params"], answer["b"]["params"]) == ({"least": 2}, {"least": 5})
    journal = part(answer, "outputs", "journal")["diff"]
    amounts = [amount for _, amount in lab.given[20:]]
    assert journal["rows_before"] == sum(amount >= 2 for amount in amounts)
    assert journal["rows_after"] == sum(amount >= 5 for amount in amounts)
    answer = lab.compare("usage.py", "--param", "least=5", "--param-a", "least=5")
    assert answer["same"]
    assert (
        lab.refused("compare", "usage.py", "--from", "savepoint:base", "--param", "no=1")["code"] == "SW-PARAM-UNKNOWN"
    )


def test_keys_that_are_not_deterministic_are_found_and_counted_apart(tmp_path: Path) -> None:
    noise = "event = Payment(event.card, random.randrange(1 << 40) if event.card == 'card-3' else event.amount)"
    lab = Lab(tmp_path, version(noise))
    lab.file("v2.py", version(f"{noise}; state.total += event.card == 'card-1'"))
    code, out, _ = call_in(lab.folder, "compare", "usage.py", "v2.py", "--from", "savepoint:base")
    assert code == 0 and "A itself differs in 1 key the second time; 1 other differences" in out
    answer = lab.compare("usage.py", "v2.py")
    assert (answer["same"], answer["deterministic"]) == (False, False)
    for kind, name in (("outputs", "latest"), ("states", "per-card")):
        found = part(answer, kind, name)
        assert (found["random"], found["beyond_random"], found["diff"]["changed"]) == (1, 1, 2)
        assert found["random_examples"][0]["key"] == {"card": "card-3"}
    flags = duckdb.sql(
        f"SELECT key, deterministic FROM '{tmp_path}/comparison/differences.parquet' WHERE component = 'latest'"
    ).fetchall()
    assert sorted(flags) == [('{"card":"card-1"}', True), ('{"card":"card-3"}', False)]
    again = lab.compare("usage.py")
    assert (again["same"], again["deterministic"]) == (True, False), "A against A: nothing but noise"
    journal = part(again, "outputs", "journal")
    assert journal["beyond_random"] == 0 and journal["by"] == "rows"


@pytest.mark.slow
def test_a_random_column_of_rows_without_a_key_is_left_out(tmp_path: Path) -> None:
    head = HEAD.replace("    total: int\n", "    total: int\n    id: str\n", 1)
    text = version(head=head).replace("state.total))", "state.total, str(uuid.uuid4())))")
    lab = Lab(tmp_path, text)
    answer = lab.compare("usage.py")
    assert answer["same"] and not answer["deterministic"]
    assert any("other values of id each time" in line for line in answer["remarks"])
    lab.file("v2.py", text.replace("event.amount\n", "event.amount * 2\n"))
    answer = lab.compare("usage.py", "v2.py")
    journal = part(answer, "outputs", "journal")
    assert not answer["same"] and journal["diff"]["gone"] == journal["beyond_random"] / 2 == 40


def test_the_ticks_of_the_clock_are_those_of_a(tmp_path: Path) -> None:
    """Processing time decides what both do; that B runs later makes no difference."""
    timed = "state.total += collector.now.microsecond; collector.set_timer(collector.now, clock='processing')"
    timer = """
    def on_timer(self, key, at, state, collector):
        collector.emit(Usage(key, -1, collector.now.microsecond))

job = Job("""
    lab = Lab(tmp_path, version(timed).replace("\njob = Job(", timer, 1))
    answer = lab.compare("usage.py", "--events", "30")
    assert answer["same"] and answer["deterministic"]
    assert part(answer, "outputs", "journal")["diff"]["rows_before"] > 30, "timers fired"


@pytest.mark.slow
def test_other_semantics_and_sinks_without_a_ledger_are_compared_too(tmp_path: Path) -> None:
    text = version(sinks='usage.sink(CallableSink(lambda event: None), id="call")\nusage.print()')
    lab = Lab(tmp_path, text.replace('Job("usage",', 'Job("usage", semantics="at-least-once",'))
    answer = lab.compare("usage.py")
    assert answer["same"] and part(answer, "outputs", "call")["diff"]["rows_before"] == 40


# ---- what is refused ---------------------------------------------------------------------------------------------------


def test_an_error_says_whose_it_is(lab: Lab) -> None:
    lab.file("v2.py", version("raise ValueError('broken')"))
    error = lab.refused("compare", "usage.py", "v2.py", "--from", "savepoint:base")
    assert error["code"] == "SW-OPERATOR-FAILED" and error["cause"].startswith("B (v2.py): ")


def test_a_version_that_does_not_fit_is_refused_before_anything_runs(lab: Lab) -> None:
    lab.file("v2.py", version().replace('id="per-card"', 'id="by-card"'))
    words = ("compare", "usage.py", "v2.py", "--from", "savepoint:base")
    error = lab.refused(*words)
    assert error["code"] == "SW-STATE-ORPHAN" and error["cause"].startswith("B (v2.py): ")
    answer = lab.ask(*words, "--drop-state", "per-card")
    assert [(one["component"], one["diff"]["status"]) for one in answer["states"]] == [
        ("per-card", "gone"),
        ("by-card", "added"),
    ]
    assert part(answer, "outputs", "latest")["diff"]["changed"] == 7, "it begins with empty state"


def test_wrong_use_is_refused(lab: Lab, tmp_path: Path) -> None:
    words = ("compare", "usage.py", "--from")
    assert lab.refused(*words, "savepoint:none")["code"] == "SW-SAVEPOINT-UNKNOWN"
    assert lab.refused(*words, "checkpoint:99")["code"] == "SW-CHECKPOINT-UNKNOWN"
    assert lab.refused("compare", "usage.py")["code"] == "SW-USAGE"
    (tmp_path / "mine.txt").write_text("x")
    assert lab.refused(*words, "savepoint:base", "--out", tmp_path)["code"] == "SW-COMPARE-FOLDER"
    lab.file("polled.py", lab_source())
    assert lab.refused("compare", "usage.py", "polled.py", "--from", "savepoint:base")["code"] in (
        "SW-COMPARE-SOURCE",
        "SW-STATE-ORPHAN",
    )


def lab_source() -> str:
    return version().replace(
        'job.source(JsonLines("payments.jsonl", Payment, max_events=5), id="payments")', "job.source(Endless(), id='payments')"
    ).replace("\njob = Job(", """
from streamwork import StatefulSource

class Endless(StatefulSource[Payment, Totals]):
    replayable = True

    def setup_instance(self, instance, state): ...

    def get_events(self, collector): ...

    def get_state(self):
        return Totals()

job = Job(""", 1)  # fmt: skip


@pytest.mark.slow
def test_checkpoints_and_copies_of_savepoints_can_be_compared_from(lab: Lab) -> None:
    for origin in ("checkpoint:newest", str(lab.folder / ".streamwork/usage/savepoints/base")):
        assert lab.ask("compare", "usage.py", "--from", origin, "--events", 5)["events"] == 5


# ---- sources with partitions, event time, and a job that runs -------------------------------------------------------------

WINDOWS = """
from datetime import datetime

from streamwork import Event, Fixed, Job, LogSource, SqliteSink, count, sum_of

class Payment(Event):
    card: str
    amount: int
    at: datetime

class Sums(Event):
    card: str
    window_start: datetime
    number: int
    total: int

job = Job("usage", checkpoint_every=0, parallelism=2)
payments = job.source(LogSource("payments.log", Payment, max_events=50), id="payments", time="at")
window = payments.window(Fixed("10s"), key="card", id="windows")
sums = window.aggregate(Sums, number=count(), total=sum_of("amount"))
sums.sink(SqliteSink("windows.db", "windows", key=("card", "window_start")), id="windows-out")
sums.sink(SqliteSink("journal.db", "journal"), id="journal")
"""


def pay(folder: Path, first: int, last: int) -> None:
    with EventLog(folder / "payments.log", PaidAt) as log:
        at = datetime(2026, 1, 1, tzinfo=UTC)
        log.append([PaidAt(f"card-{n % 7}", n % 5, at + timedelta(seconds=n)) for n in range(first, last)])


class PaidAt(Event):
    card: str
    amount: int
    at: datetime


@pytest.mark.slow
def test_windows_over_a_log_whose_job_runs_meanwhile(tmp_path: Path) -> None:
    """Partitions, event time, state with a sub-key. The log gets no consumer, and the running job is not disturbed."""
    place = Place(tmp_path)
    (tmp_path / "usage.py").write_text(WINDOWS)
    (tmp_path / "v2.py").write_text(WINDOWS.replace('Fixed("10s")', 'Fixed("20s")'))
    EventLog.create(tmp_path / "payments.log", PaidAt, key="card", partitions=3).close()
    pay(tmp_path, 0, 100)
    place.catch_up()
    place.save("base")
    pay(tmp_path, 100, 400)
    consumers = sorted(path.name for path in (tmp_path / "payments.log" / "consumers").iterdir())
    with place.running():
        answer = place.ask("compare", "usage.py", "usage.py", "--from", "savepoint:base", "--events", "200")
        assert answer["same"] and answer["deterministic"]
        assert 200 <= answer["events"] <= 206, "one event of each partition at least"
        assert part(answer, "outputs", "windows-out")["diff"]["rows_before"] > 20
        assert part(answer, "states", "windows")["diff"]["rows_before"] > 0
        answer = place.ask("compare", "usage.py", "v2.py", "--from", "savepoint:base", "--events", "200")
        assert not answer["same"] and answer["deterministic"]
    assert sorted(path.name for path in (tmp_path / "payments.log" / "consumers").iterdir()) == consumers
    assert place.ask("savepoint", "show", "usage.py", "base", "--verify")["problems"] == []


def test_control_without_the_ticks_of_a_the_same_version_differs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = Lab(tmp_path, version("state.total += collector.now.microsecond"))
    real = Reading.replay
    monkeypatch.setattr(Reading, "replay", lambda self, plans: real(self, tuple(without_ticks(plans))))
    assert not lab.compare("usage.py")["deterministic"]
    monkeypatch.setattr(Reading, "replay", real)
    assert lab.compare("usage.py")["deterministic"]


def without_ticks(plans: tuple[Leg, ...]) -> list[Leg]:
    return [replace(leg, ticks=tuple(tick + 1 for tick in leg.ticks)) for leg in plans]
