"""Graph mistakes are refused when they are made, with code, cause and action."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest

from sample import Doubling, Payment, Seen, Summing, payments, summing_job
from streamwork import (
    Event,
    Job,
    KeyedOperator,
    ListSource,
    LogSink,
    Operator,
    ParquetSink,
    PostgresSink,
    Record,
    RedisSink,
    SqliteSink,
    Stream,
    WrongUse,
)
from streamwork.job import Graph, Input, Node, NodeKind, Port
from streamwork.job.running import RunSummary
from streamwork.run.options import RunOptions, flags


def source() -> ListSource[Payment]:
    return ListSource(payments(3))


def refused(code: str, *words: str) -> Any:
    return pytest.raises(WrongUse, match="(?s)" + code + ".*" + ".*".join(words))


def test_two_components_with_one_id() -> None:
    job = Job("j")
    stream = job.source(source(), id="a")
    with refused("SW-JOB-DUPLICATE-ID", "'a'"):
        stream.apply(Doubling(), id="a")


def test_a_key_that_the_event_does_not_have() -> None:
    with refused("SW-KEY-FIELD", "Payment has no field 'kard'", "card, amount"):
        Job("j").source(source(), id="a").apply(Summing(), key="kard", id="b")


def test_a_key_that_cannot_be_one() -> None:
    class Reading(Event):
        value: float

    class Averaging(KeyedOperator[Reading, Record, Reading]):
        pass

    with refused("SW-KEY-TYPE", "Reading.value"):
        Job("j").source(ListSource([Reading(1.0)]), id="a").apply(Averaging(), key="value", id="b")


def test_a_keyed_operator_without_key_or_id() -> None:
    stream = Job("j").source(source(), id="a")
    with refused("SW-JOB-KEY", "add key="):
        stream.apply(Summing(), id="b")
    with refused("SW-JOB-ID", "add id="):
        stream.apply(Summing(), key="card")
    with refused("SW-JOB-KEY", "leave key= out"):
        stream.apply(Doubling(), key="card", id="b")


def test_the_wrong_type_of_event() -> None:
    stream = Job("j").source(source(), id="a").apply(Summing(), key="card", id="b")
    with refused("SW-JOB-TYPE", "c takes Payment, but b gives Seen"):
        stream.apply(Doubling(), id="c")


def test_no_source() -> None:
    with refused("SW-JOB-NO-SOURCE"):
        Job("j").graph()


def test_a_circle() -> None:
    nodes = (
        Node("s", NodeKind.SOURCE, source(), gives=Payment),
        Node("a", NodeKind.OPERATOR, Doubling(), (Port((Input("b"),), Payment),), gives=Payment),
        Node("b", NodeKind.OPERATOR, Doubling(), (Port((Input("a"),), Payment),), gives=Payment),
    )
    with refused("SW-JOB-CYCLE", "a, b"):
        Graph("j", nodes)


def test_reading_from_nowhere() -> None:
    with refused("SW-JOB-EDGE", "'nobody'"):
        Graph(
            "j",
            (
                Node("s", NodeKind.SOURCE, source(), gives=Payment),
                Node("a", NodeKind.SINK, None, (Port((Input("nobody"),)),)),
            ),
        )


def test_going_on_behind_a_sink(tmp_path: Path) -> None:
    sink = Job("j").source(source(), id="a").sink(SqliteSink(tmp_path / "x.db", "t"), id="b")
    with refused("SW-JOB-EDGE", "nothing comes out"):
        sink.apply(Doubling())


@pytest.mark.parametrize("name", ["", "a b", "ä", "a/b", "x" * 65, ".."])
def test_names_that_could_not_be_files(name: str) -> None:
    with refused("SW-JOB-NAME"):
        Job(name)
    with refused("SW-JOB-NAME"):
        Job("j").source(source(), id=name)


def test_things_that_are_no_components() -> None:
    with refused("SW-JOB-COMPONENT", "the class Summing", r"write Summing\(...\)"):
        Job("j").source(source(), id="a").apply(Summing, key="card", id="b")  # type: ignore[arg-type]
    with refused("SW-JOB-COMPONENT", "a list is not a source"):
        Job("j").source([1], id="a")  # type: ignore[arg-type]
    with refused("SW-JOB-COMPONENT", "a Doubling is not a sink"):
        Job("j").source(source(), id="a").sink(Doubling(), id="b")  # type: ignore[arg-type]


def test_operators_that_do_not_say_their_types() -> None:
    class Silent(Operator):  # type: ignore[type-arg]
        pass

    with refused("SW-TYPE-MISSING", "Silent"):
        Job("j").source(source(), id="a").apply(Silent())


def test_types_are_found_through_classes_in_between() -> None:
    class Special(Summing):
        pass

    assert Special().types() == Summing().types()


def test_records_need_defaults() -> None:
    class Bare(Record):
        number: int

    class Keeping(KeyedOperator[Payment, Bare, Payment]):
        pass

    with refused("SW-TYPE-RECORD", "Bare has fields without a default"):
        Job("j").source(source(), id="a").apply(Keeping(), key="card", id="b")


def test_a_record_field_named_like_the_key() -> None:
    class Clashing(Record):
        card: str = ""

    class Keeping(KeyedOperator[Payment, Clashing, Payment]):
        pass

    with refused("SW-KEY-CLASH", "card"):
        Job("j").source(source(), id="a").apply(Keeping(), key="card", id="b")


@pytest.mark.parametrize("duration", ["soon", "-1s", -1, True, None])
def test_durations_that_are_none(duration: Any) -> None:
    with refused("SW-JOB-SETTING"):
        Job("j", checkpoint_every=duration)


@pytest.mark.parametrize(
    "chosen",
    [
        {"semantics": "at-all-costs"},
        {"semantics": "at-least-once", "tracking": "guessing"},
        {"semantics": "exactly-once", "tracking": "acknowledge"},
        {"semantics": "at-most-once", "tracking": "checkpoint"},
    ],
)
def test_semantics_that_there_are_not(chosen: dict[str, str]) -> None:
    with refused("SW-JOB-SEMANTICS"):
        Job("j", **chosen)  # type: ignore[arg-type]


def test_the_fingerprint_is_of_ids_edges_schemas_and_keys_not_of_code(tmp_path: Path) -> None:
    class Summing2(Summing):
        pass

    def job(operator: Any, name: str = "sums", key: str = "card") -> str:
        made = Job("j")
        made.source(source(), id="payments").apply(operator, key=key, id=name)
        return made.graph().fingerprint

    assert job(Summing()) == job(Summing2())
    assert len({job(Summing()), job(Summing(), name="other"), job(Summing(), key="amount")}) == 3


def test_ids_from_the_place(tmp_path: Path) -> None:
    job = Job("j")
    stream = job.source(source(), id="payments")
    assert [stream.apply(Doubling()).id, stream.apply(Doubling()).id] == ["payments-doubling", "payments-doubling-2"]


def test_describe_and_mermaid(tmp_path: Path) -> None:
    job = summing_job(payments(3), tmp_path / "x.db")
    described = job.describe()
    assert described.splitlines()[0] == "job summing"
    assert [line.split()[0] for line in described.splitlines()[2:]] == ["payments", "sums", "journal", "latest"]
    assert "Payment -> Sums -> Seen" in described
    mermaid = job.to_mermaid()
    assert mermaid.startswith("flowchart LR")
    assert "n0 -->|Payment by card| n1" in mermaid
    assert mermaid.count("-->|Seen|") == 2
    assert Seen.__name__ in described


class Odd(Event):
    epoch: int
    name: str | None


@pytest.mark.parametrize(
    ("sink", "code"),
    [
        (lambda: SqliteSink("x.db", "t", key="name"), "SW-KEY-TYPE"),
        (lambda: PostgresSink("postgresql://h/d", "t", key="name"), "SW-KEY-TYPE"),
        (lambda: RedisSink("redis://h", key="name", prefix="p"), "SW-KEY-TYPE"),
        (lambda: RedisSink("redis://h", key="nome", prefix="p"), "SW-KEY-FIELD"),
        (lambda: ParquetSink("x"), "SW-SINK-FIELD"),
        (lambda: LogSink("x", key="nome"), "SW-KEY-FIELD"),
        (lambda: LogSink("x", partitions=0), "SW-LOG-SETTING"),
    ],
)
def test_a_sink_that_cannot_take_its_event_is_refused_with_the_graph(sink: Any, code: str) -> None:
    """Before Spark is started, and so that `--explain` tells."""
    job = Job("j")
    job.source(ListSource([Odd(1, None)]), id="odd").sink(sink(), id="out")
    with refused(code, "sink 'out'"):
        job.graph()


@pytest.mark.parametrize("surface", [Job.__init__, Job.source, Stream.apply, Stream.sink, Stream.map, Stream.filter])
def test_everything_behind_the_first_argument_is_named(surface: Any) -> None:
    kinds = [parameter.kind for parameter in inspect.signature(surface).parameters.values()]
    assert kinds[:2] == [inspect.Parameter.POSITIONAL_OR_KEYWORD] * 2, "self, and the first"
    assert set(kinds[2:]) == {inspect.Parameter.KEYWORD_ONLY}


def test_the_arguments_of_run_are_the_run_options() -> None:
    mine = {name: one for name, one in inspect.signature(Job.run).parameters.items() if name != "self"}
    assert set(mine) == set(flags()) - {"drop_request", "param", "fork"}, "these are fixed before a job can run"
    assert {one.kind for one in mine.values()} == {inspect.Parameter.KEYWORD_ONLY}
    given = {name: one.default for name, one in mine.items()}
    assert RunOptions.parse(**{**given, "root": "x"}) == RunOptions.parse(root="x", mode="local")
    documented = inspect.getdoc(Job.run) or ""
    assert not [name for name in mine if not re.search(rf"^(\w+, )*{name}\b", documented, re.MULTILINE)]


def test_what_run_returns(tmp_path: Path) -> None:
    job = summing_job(payments(30), tmp_path / "x.db")
    summary = job.run(root=tmp_path / "root", until_caught_up=True)
    assert (summary.started, summary.events, summary.checkpoint, summary.checkpoints) == ("new", 30, 3, 3)
    assert all(hasattr(summary, name) for name in vars(RunSummary) if not name.startswith("_"))


def test_the_type_of_a_channel_is_checked() -> None:
    class Splitting(Operator[Payment, Payment]):
        channels = {"seen": Seen}

    split = Job("j").source(source(), id="a").apply(Splitting(), id="split")
    assert split.channel("seen").event is split.channel("seen", to=Seen).event is Seen
    with refused("SW-JOB-TYPE", "channel 'seen'", "takes Payment, but split:seen gives Seen"):
        split.channel("seen", to=Payment)
