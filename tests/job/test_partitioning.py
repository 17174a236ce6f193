"""Partitioning along edges: fewer exchanges, the same results, and no lie that goes unnoticed."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter, defaultdict
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import msgspec
import pytest

from commands import call
from partitioning_jobs import Adding, Forgetful, Halving, Lying, LyingByKey, Paid, Renamed, Seen, paid
from sample import run_job
from streamwork import (
    EventLog,
    Job,
    JobFailed,
    KeyedOperator,
    ListSource,
    SqliteSink,
    Stream,
    WrongUse,
    fields,
    shuffle,
)
from streamwork.components import Key
from streamwork.engine.chain import Chain
from streamwork.job import Graph, Input, Layout, Node, NodeKind, Port
from streamwork.job.jobfile import load_job
from streamwork.job.partitioning import ByKey, BySource, Unknown, partitionings
from streamwork.testing import run

GROUPS = 256


def of(job: Job, groups: int = GROUPS) -> tuple[Graph, dict[str, Any], dict[tuple[str, str], bool]]:
    graph = job.graph()
    layout = Layout.of(graph, groups)
    streams = {str(one): found for one, found in partitionings(graph, groups).items()}
    return graph, streams, {(edge.from_id, edge.to_id): edge.exchange for edge in layout.edges}


def two(
    first: Any, between: Callable[[Stream[Paid]], Stream[Paid]], parallelism: int | None = None, key: Any = "card"
) -> Job:
    job = Job("two", parallelism=3)
    stream = job.source(ListSource(paid(40)), id="paid").apply(first, key="card", id="first")
    between(stream).apply(Adding(), key=key, id="second", parallelism=parallelism).sink(
        SqliteSink("x.db", "t"), id="out"
    )
    return job


@pytest.mark.parametrize(
    ("name", "job", "exchange"),
    [
        ("keeps its key", two(Adding(), lambda s: s), False),
        ("through a filter", two(Adding(), lambda s: s.filter(bool)), False),
        ("through an operator that keeps it", two(Adding(), lambda s: s.apply(Halving(), id="halving")), False),
        (
            "through a function that keeps it",
            two(Adding(), lambda s: s.map(lambda p: p, to=Paid, keeps_key=True)),
            False,
        ),
        ("through a function", two(Adding(), lambda s: s.map(lambda p: p, to=Paid)), True),
        ("does not declare it", two(Forgetful(), lambda s: s), True),
        ("another parallelism", two(Adding(), lambda s: s, parallelism=2), True),
        ("another key", two(Adding(), lambda s: s, key="shop"), True),
        ("a longer key", two(Adding(), lambda s: s, key=["card", "shop"]), True),
        ("shuffled", two(Adding(), lambda s: s.apply(Halving(), id="halving", grouping=shuffle())), True),
        ("grouped by it", two(Forgetful(), lambda s: s.apply(Halving(), id="h", grouping=fields("card"))), False),
    ],
)
def test_where_an_exchange_stands(name: str, job: Job, exchange: bool) -> None:
    graph, _, edges = of(job)
    (into,) = [found for (_, to), found in edges.items() if to == "second"]
    assert into == exchange
    assert [line for line in Layout.of(graph, GROUPS).explain().splitlines() if " and second: " in line]


def test_explain_says_why() -> None:
    def line(job: Job) -> str:
        (found,) = [one for one in Layout.of(job.graph(), GROUPS).explain().splitlines() if " and second: " in one]
        return found.strip()

    assert (
        line(two(Adding(), lambda s: s)) == "no exchange between first and second: first has the key card and keeps it"
    )
    assert line(two(Adding(), lambda s: s.apply(Halving(), id="h"))) == (
        "no exchange between h and second: first has the key card and keeps it, and h keeps it"
    )
    assert line(two(Forgetful(), lambda s: s)) == (
        "exchange between first and second: events of one card may be in several instances: first may change card: it does not "
        "declare keeps_key = True"
    )
    assert line(two(Adding(), lambda s: s, key="shop")) == (
        "exchange between first and second: its input is partitioned by card in 256 groups, the key is shop in 256"
    )


def test_the_partitioning_of_each_stream() -> None:
    class Splitting(Halving):
        channels = {"renamed": Renamed}

    job = two(Adding(), lambda s: s.apply(Splitting(), id="split"))
    _, streams, _ = of(job)
    assert streams["paid"] == BySource("paid", 1)
    assert isinstance(streams["first"], ByKey) and streams["first"] == streams["split"] == streams["second"]
    assert streams["first"].fields == ("card",) and streams["first"].instances == 3
    assert streams["split:renamed"] == Unknown("") and "Renamed, which has no card" in streams["split:renamed"].why


# ---- ports ----------------------------------------------------------------------------------------------------------


def joined(left: Port, right: Port) -> Graph:
    sources = [Node(name, NodeKind.SOURCE, ListSource(paid(3)), gives=Paid, parallelism=2) for name in ("a", "b")]
    join = Node("join", NodeKind.OPERATOR, Adding(), (left, right), keeps=Seen, gives=Paid, parallelism=2)
    return Graph("j", (*sources, join))


def port(name: str, node: str, key: str | list[str]) -> Port:
    return Port((Input(node),), Paid, Key.of(Paid, key), name=name)


def test_a_node_has_several_named_inputs_with_type_and_key() -> None:
    graph = joined(port("left", "a", "card"), port("right", "b", "shop"))
    assert [(p.name, p.key and p.key.fields) for p in graph["join"].ports] == [
        ("left", ("card",)),
        ("right", ("shop",)),
    ]
    assert graph["join"].inputs == (Input("a"), Input("b"))
    assert graph["join"].port("right").inputs == (Input("b"),)
    layout = Layout.of(graph, GROUPS)
    assert [(e.from_id, e.port, e.exchange) for e in layout.edges] == [("a", "left", True), ("b", "right", True)]
    assert isinstance(partitionings(graph, GROUPS)[Input("join")], Unknown), "the ports have different keys"
    same = joined(port("left", "a", "card"), port("right", "b", "card"))
    assert isinstance(partitionings(same, GROUPS)[Input("join")], ByKey)
    assert len({joined(port("left", "a", "card"), port("right", "b", k)).fingerprint for k in ("card", "shop")}) == 2


def test_ports_that_cannot_meet_are_refused() -> None:
    with pytest.raises(WrongUse, match="(?s)SW-KEY-TYPE.*number \\(int64\\).*card \\(string\\)"):
        joined(port("left", "a", "card"), port("right", "b", "number"))
    with pytest.raises(WrongUse, match="SW-KEY-TYPE"):
        joined(port("left", "a", "card"), port("right", "b", ["card", "shop"]))
    with pytest.raises(WrongUse, match="(?s)SW-JOB-EDGE.*two ports"):
        joined(port("left", "a", "card"), port("left", "b", "card"))


def test_the_fingerprint_of_nodes_with_one_input_is_what_it_was() -> None:
    """Of a job as roots hold it. It changes only with the format."""
    assert two(Adding(), lambda s: s.filter(bool, id="f")).graph().fingerprint == FINGERPRINT


FINGERPRINT = "4928d54ffbe8fd19b7f9e95440e922b2934cf7409e5cc8a28274298c4a0c7e92"


# ---- the oracle: the same job with every exchange ----------------------------------------------------------------------


def without_claims(job: Job) -> Job:
    """The same job, whose operators claim nothing: every keyed operator has an exchange before it."""
    for name, node in job._nodes.items():
        if node.kind is NodeKind.OPERATOR:
            node.component.keeps_key = False
            job._nodes[name] = replace(node)
    return job


def any_job(seed: int) -> Job:
    """A random graph: sources, unions, forks, filters, operators with and without a claim, keyed by card or shop."""
    rng = random.Random(seed)
    job = Job("any", parallelism=rng.choice([1, 2, 3, 3, 4]), checkpoint_every=0)
    streams: list[Stream[Paid]] = [
        job.source(ListSource(paid(rng.randint(20, 50), number), Paid), id=f"source-{number}")
        for number in range(rng.randint(1, 2))
    ]
    for step in range(rng.randint(6, 9)):
        stream = rng.choice([streams[-1], streams[-1], streams[-1], rng.choice(streams)])
        kind = rng.choice(["keyed"] * 5 + ["filter", "claims", "map", "union", "grouped"])
        if kind == "keyed":
            operator = rng.choice([Adding, Adding, Adding, Forgetful])()
            key = rng.choice([*["card"] * 6, "shop", ["card", "shop"]])
            made = stream.apply(operator, key=key, id=f"keyed-{step}", parallelism=rng.choice([*[None] * 7, 2]))
        elif kind == "filter":
            made = stream.filter(lambda p: p.number % 3, id=f"filter-{step}")
        elif kind == "claims":
            made = stream.apply(Halving(), id=f"claims-{step}")
        elif kind == "map":
            made = stream.map(lambda p: Paid(p.shop, p.card, p.source, p.number), to=Paid, id=f"map-{step}")
        elif kind == "grouped":
            made = stream.apply(Halving(), id=f"grouped-{step}", grouping=fields("card"))
        else:
            made = stream.union(rng.choice(streams))
        streams.append(made)
    for number, stream in enumerate(dict.fromkeys(streams)):
        stream.sink(SqliteSink("never-opened.db", f"t{number}"), id=f"sink-{number}")
    return job


def exchanges(job: Job) -> int:
    return sum(edge.exchange for edge in Layout.of(job.graph(), GROUPS).edges)


def order(rows: list[Paid]) -> dict[tuple[str, str, int], list[int]]:
    """The numbers of each key and source, in the order in which they came out."""
    found: dict[tuple[str, str, int], list[int]] = defaultdict(list)
    for row in rows:
        found[row.card, row.shop, row.source].append(row.number)
    return found


@pytest.mark.slow(seed=list(range(4, 40)))
@pytest.mark.parametrize("seed", range(40))
def test_fewer_exchanges_give_the_same_results_in_the_same_order_of_each_key(seed: int) -> None:
    fewer = run(any_job(seed), seed=seed, epoch_events=8)
    all_of_them = run(without_claims(any_job(seed)), seed=seed + 1, epoch_events=8)
    assert fewer.states == all_of_them.states
    for sink, rows in fewer.outputs.items():
        mine, theirs = order(rows), order(all_of_them.outputs[sink])
        assert {key: sorted(numbers) for key, numbers in mine.items()} == {
            key: sorted(numbers) for key, numbers in theirs.items()
        }
        if not any_union(any_job(seed)):
            assert mine == theirs


def any_union(job: Job) -> bool:
    return any(len(node.inputs) > 1 for node in job.graph().nodes)


def test_the_random_graphs_have_exchanges_that_disappear() -> None:
    fewer = [exchanges(without_claims(any_job(seed))) - exchanges(any_job(seed)) for seed in range(40)]
    assert all(found >= 0 for found in fewer) and sum(found > 0 for found in fewer) >= 10
    assert sum(not any_union(any_job(seed)) for seed in range(40)) >= 10, "where the order is compared"


# ---- lies -----------------------------------------------------------------------------------------------------------


LIES = {
    "an operator": lambda: two(Adding(), lambda s: s.apply(Lying(), id="liar")),
    "a keyed operator": lambda: two(LyingByKey(), lambda s: s),
    "a function": lambda: two(
        Adding(), lambda s: s.map(lambda p: Paid(p.shop, p.shop, 0, p.number), to=Paid, id="liar", keeps_key=True)
    ),
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("on_error", ["fail", "drop"])
def test_an_operator_that_does_not_keep_the_key_is_found_out(lie: str, on_error: Any) -> None:
    job = LIES[lie]()
    job._nodes["second"] = replace(job._nodes["second"], on_error=on_error)
    who = "first" if lie == "a keyed operator" else "liar"
    with pytest.raises(JobFailed, match=f"(?s)SW-KEY-MOVED.*second.*card = .*{who}.*keeps_key = True"):
        run(job)


def test_without_the_check_a_lie_goes_unnoticed_and_the_results_are_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control of the check, and of the oracle."""
    monkeypatch.setattr(Chain, "check_keys", lambda chain, groups: None)
    lied = run(LIES["a function"]()).states["second"]
    assert lied != run(without_claims(LIES["a function"]())).states["second"]


@pytest.mark.parametrize("second", [Adding, Lying])
def test_on_every_host(tmp_path: Path, mode: str, second: Any) -> None:
    job = Job("hosted", parallelism=2, checkpoint_every=0)
    stream = job.source(ListSource(paid(40), Paid), id="paid").apply(Adding(), key="card", id="first")
    last = stream.apply(second(), key="card" if second is Adding else None, id="second")
    last.apply(Adding(), key="card", id="third").sink(SqliteSink(tmp_path / "x.db", "t"), id="out")
    assert [len(chain.nodes) for chain in Layout.of(job.graph(), GROUPS).chains] == [1, 4], "one exchange in all"
    if second is Lying:
        with pytest.raises(JobFailed, match="(?s)SW-KEY-MOVED.*third.*second"):
            run_job(job, tmp_path / "root", mode)
        return
    run_job(job, tmp_path / "root", mode)
    with closing(sqlite3.connect(tmp_path / "x.db")) as db:
        found = [Paid(*row) for row in db.execute("SELECT card, shop, source, number, amount FROM t ORDER BY rowid")]
    assert order(found) == order(paid(40))


def test_without_the_claim_the_same_operator_is_right() -> None:
    """The control: an exchange brings each key to its instance."""
    result = run(without_claims(LIES["an operator"]()))
    assert sum(record.count for record in result.states["second"].values()) == 40


def test_a_column_operator_finds_it_out_too() -> None:
    class Columns(KeyedOperator[Paid, Seen, Paid]):
        def apply_batch(self, batch: Any, state: Any, collector: Any) -> None:
            state["count"] = state["count"] + 1

    job = Job("columns", parallelism=3)
    stream = job.source(ListSource(paid(40)), id="paid").apply(Adding(), key="card", id="first")
    stream.apply(Lying(), id="liar").apply(Columns(), key="card", id="second")
    with pytest.raises(JobFailed, match="(?s)SW-KEY-MOVED.*liar"):
        run(job)


def test_state_is_where_it_was_when_an_exchange_disappears(tmp_path: Path) -> None:
    """A root that was written with the exchange is continued without it."""

    def job(first: Any, count: int) -> Job:
        made = Job("growing", parallelism=3, checkpoint_every=0)
        stream = made.source(ListSource(paid(count), Paid), id="paid").apply(first, key="card", id="first")
        stream.apply(Adding(), key="card", id="second").sink(SqliteSink(tmp_path / "x.db", "t"), id="out")
        return made

    before, after = job(Forgetful(), 30), job(Adding(), 60)
    assert exchanges(before) == exchanges(after) + 1
    before.run(root=tmp_path / "root", until_caught_up=True)
    after.run(root=tmp_path / "root", until_caught_up=True)
    job(Forgetful(), 90).run(root=tmp_path / "root", until_caught_up=True)
    with duckdb.connect() as db:
        db.execute((tmp_path / "root" / "growing" / "views.sql").read_text())
        found = db.execute('SELECT card, count, total FROM "second"').fetchall()
    wanted = Counter(event.card for event in paid(90))
    assert sorted(found) == sorted((card, count, count) for card, count in wanted.items()), (
        "each key once, in one instance"
    )


def test_explain_uses_the_groups_of_the_root(tmp_path: Path) -> None:
    """A log in 256 groups fits a job with 256 groups; a root that was created with 128 needs an exchange."""
    with EventLog.create(tmp_path / "in", Paid, key="card", partitions=2) as log:
        log.append(paid(10))
    (tmp_path / "logged.py").write_text(
        "from partitioning_jobs import Adding, Paid\n"
        "from streamwork import Job, LogSource, SqliteSink\n"
        "job = Job('logged', parallelism=2)\n"
        "stream = job.source(LogSource('in', Paid, bounded=True), id='paid').apply(Adding(), key='card', id='first')\n"
        "stream.sink(SqliteSink('x.db', 't'), id='out')\n"
    )
    explained = ("run", tmp_path / "logged.py", "--explain", "--mode", "local")
    code, new, errors = call(*explained)
    assert code == 0 and "no exchange between paid and first" in new, errors
    job = load_job(str(tmp_path / "logged.py")).job
    job.settings = msgspec.structs.replace(job.settings, groups=128)
    run_job(job, tmp_path / ".streamwork")
    _, stored, _ = call(*explained)
    assert (
        "  exchange between paid and first: paid is partitioned by card in 256 groups, the key is card in 128" in stored
    )
