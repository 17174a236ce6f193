"""Streams with static tables and databases."""

from __future__ import annotations

import sqlite3
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.waves import Collector
from streamwork import CallableSink, Event, Job, ListSource, Lookup, Retry, StaticTable, WrongUse
from streamwork.components import Instance
from streamwork.components.columns import to_batch
from streamwork.components.schema import fields_of
from streamwork.components.table_operator import NEVER, Rows
from streamwork.operators.joins.kinds import JoinKind
from streamwork.operators.joins.lookup_cache import LookupCache
from streamwork.operators.joins.reference import ReferenceJoin
from streamwork.operators.joins.result import Side, result_of
from streamwork.testing import run


class Order(Event):
    number: int
    customer: int | None
    city: str | None


class Customer(Event):
    customer: int
    name: str | None


ORDERS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.sampled_from([None, "x", "y"])), max_size=12)
CUSTOMERS = st.lists(st.tuples(st.one_of(st.none(), st.integers(0, 4)), st.integers(0, 9)), max_size=8)
CITIES = st.lists(st.tuples(st.sampled_from([None, "x", "y"]), st.one_of(st.none(), st.integers(0, 4))), max_size=6)


def apply(join: ReferenceJoin, orders: list[Order], cut: int) -> list[Any]:
    """What a join emits, of batches of `cut` orders."""
    join.setup_instance(Instance(0, 1))
    found: list[Any] = []
    for start in range(0, len(orders), cut):
        some = orders[start : start + cut]
        collector = Collector(join, NEVER, len(some))
        rows = Rows(to_batch(Order, some, "the test"), np.full(len(some), NEVER))
        join.apply_rows(rows, None, {}, collector)  # type: ignore[arg-type]
        found += [event for _, event in collector.emitted]
    join.close()
    return found


@settings(max_examples=20)
@given(ORDERS, CUSTOMERS, CITIES, st.sampled_from(["inner", "left"]), st.integers(1, 6))
def test_static_tables_give_what_duckdb_gives(duck, orders, customers, cities, how, cut):
    """Two tables, by a key of two fields and of one; duplicates multiply, nulls match nothing."""
    events = [Order(number, *order) for number, order in enumerate(orders)]
    named = pa.table({"customer": pa.array([c for c, _ in customers], pa.int64()), "bonus": [b for _, b in customers]})
    named = named.set_column(1, "bonus", pa.array([b for _, b in customers], pa.int64()))
    placed = pa.table(
        {
            "town": pa.array([c for c, _ in cities], pa.string()),
            "customer": pa.array([n for _, n in cities], pa.int64()),
            "line": pa.array(range(len(cities)), pa.int64()),
        }
    )
    kind = JoinKind.known(how)
    left = Side("orders", Order, ("customer",))
    first = StaticTable(named, name="named").placed(Path(), ("customer",))
    join = ReferenceJoin(left, [first], kind, result_of([left, first.side], kind, "named"))
    found = [(e.number, e.customer, e.city, e.bonus) for e in apply(join, events, cut)]
    duck.register("o", pa.Table.from_batches([to_batch(Order, events, "the test")]))
    duck.register("c", named)
    duck.register("p", placed)
    sql = f"select number, o.customer, city, bonus from o {how} join c on o.customer = c.customer"
    assert sorted(found, key=repr) == sorted(duck.execute(sql).fetchall(), key=repr)

    left = Side("orders", Order, ("city", "customer"))
    second = StaticTable(placed, key=("town", "customer"), name="placed").placed(Path(), left.key)
    join = ReferenceJoin(left, [second], kind, result_of([left, second.side], kind, "placed"))
    found = [(e.number, e.town, e.line) for e in apply(join, events, cut)]
    sql = f"select number, town, line from o {how} join p on o.city = p.town and o.customer = p.customer"
    assert sorted(found, key=repr) == sorted(duck.execute(sql).fetchall(), key=repr)


def test_two_static_tables_in_one_join():
    one = pa.table({"customer": [1, 1, 2], "name": ["a", "b", "c"]})
    two = pa.table({"customer": [1, 3], "name": ["x", "z"]})
    left = Side("orders", Order, ("customer",))
    tables = [StaticTable(t, name=n).placed(Path(), ("customer",)) for t, n in ((one, "one"), (two, "two"))]
    orders = [Order(1, 1, None), Order(2, 2, None), Order(3, 9, None)]
    found = {}
    for kind in (JoinKind.INNER, JoinKind.LEFT):
        result = result_of([left, *(table.side for table in tables)], kind, "both")
        found[kind] = [
            (e.number, e.name, e.two_name) for e in apply(ReferenceJoin(left, tables, kind, result), orders, 2)
        ]
    assert found[JoinKind.INNER] == [(1, "a", "x"), (1, "b", "x")]
    assert found[JoinKind.LEFT] == [(1, "a", "x"), (1, "b", "x"), (2, "c", None), (3, None, None)]


class SparkFrame:
    """Like a data frame of Spark 4: it is collected by `toArrow`."""

    def toArrow(self) -> pa.Table:  # noqa: N802
        return pa.table({"customer": [7], "name": ["g"]})


@pytest.mark.parametrize(
    "data",
    [
        "names.parquet",
        Path("folder"),
        pa.table({"customer": pa.array([7], pa.int32()), "name": pa.array(["g"]).dictionary_encode()}),
        pa.record_batch({"customer": [7], "name": ["g"]}),
        pd.DataFrame({"customer": [7], "name": ["g"]}),
        SparkFrame(),
    ],
    ids=lambda data: type(data).__name__,
)
def test_a_table_is_a_path_or_in_memory(tmp_path, data):
    (tmp_path / "folder").mkdir()
    for path in ("names.parquet", "folder/1.parquet"):
        pq.write_table(pa.table({"customer": [7], "name": ["g"]}), tmp_path / path)
    job = Job("named", parallelism=2)
    job.home = tmp_path
    orders = job.source(ListSource([], Order), id="orders")
    orders.join(data, key="customer", id="named").sink(CallableSink(print), id="out")
    ran = run(job, {"orders": [Order(1, 7, None), Order(2, 8, None)]}, partitions=2)
    assert [(e.number, e.name) for e in ran.outputs["out"]] == [(1, "g")]


def test_a_column_of_a_file_is_optional_if_it_has_a_null(tmp_path):
    table = pa.table({"customer": [1, 2], "name": ["a", None], "city": ["x", "y"]})
    pq.write_table(table, tmp_path / "names.parquet")
    pq.write_table(table, tmp_path / "plain.parquet", write_statistics=False)
    known, unknown = (StaticTable(name).placed(tmp_path, ("customer",)) for name in ("names.parquet", "plain.parquet"))
    assert [name for name, field in fields_of(known.side.event).items() if field.nullable] == ["name"]
    assert all(field.nullable for field in fields_of(unknown.side.event).values())


def test_a_file_that_changes_takes_effect_at_the_next_start(tmp_path):
    path = tmp_path / "names.parquet"
    pq.write_table(pa.table({"customer": [1], "name": ["a"]}), path)
    static = StaticTable(path).placed(tmp_path, ("customer",))
    ask = pa.record_batch({"customer": [1]})
    static.open()
    pq.write_table(pa.table({"customer": [1, 1], "name": ["b", "c"]}), path)
    assert static.find(ask)[1].column("name").to_pylist() == ["a"]
    static.open()
    assert static.find(ask)[1].column("name").to_pylist() == ["b", "c"]
    pq.write_table(pa.table({"customer": [1, 1], "name": ["b", None]}), path)
    with pytest.raises(ValueError, match="'name' has nulls.*restart the job"):
        static.open()


@pytest.mark.spark
@pytest.mark.slow
def test_a_data_frame_of_spark_is_collected(tmp_path, spark):
    frame = spark.createDataFrame([(7, "g")], "customer long, name string")
    static = StaticTable(frame).placed(tmp_path, ("customer",))
    static.open()
    assert static.find(pa.record_batch({"customer": [7]}))[1].column("name").to_pylist() == ["g"]


def test_columns_keep_their_types():
    table = pa.table(
        {
            "customer": [1],
            "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "maybe": pa.array([None], pa.float32()),
        }
    )
    left = Side("orders", Order, ("customer",))
    static = StaticTable(table).placed(Path(), ("customer",))
    join = ReferenceJoin(left, [static], JoinKind.INNER, result_of([left, static.side], JoinKind.INNER, "typed"))
    (event,) = apply(join, [Order(1, 1, None)], 1)
    assert (event.price, event.maybe) == (Decimal("1.50"), None)


def test_what_is_no_table_is_refused(tmp_path):
    with pytest.raises(WrongUse, match="SW-JOIN-TABLE.*is not a table"):
        StaticTable(object())
    with pytest.raises(WrongUse, match="SW-JOIN-TABLE.*cannot be read"):
        StaticTable("missing.parquet").placed(tmp_path, ("customer",))
    with pytest.raises(WrongUse, match="SW-JOIN-TABLE.*timestamp"):
        StaticTable(pa.table({"customer": [1], "at": pa.array([0], pa.timestamp("us"))})).placed(
            tmp_path, ("customer",)
        )
    with pytest.raises(WrongUse, match="SW-KEY-FIELD.*no column 'customer'"):
        StaticTable(pa.table({"id": [1]})).placed(tmp_path, ("customer",))


# ---- lookups ----------------------------------------------------------------------------------------------------------


class Service:
    """A database in memory that counts what it is asked."""

    def __init__(self, names: dict[int, list[str]]) -> None:
        self.names = names
        self.asked: list[list[int]] = []

    def __call__(self, keys: Any) -> list[Customer]:
        self.asked.append(sorted(keys))
        return [Customer(key, name) for key in keys for name in self.names.get(key, [])]


def looked_up(lookup: Lookup, how: str = "left") -> ReferenceJoin:
    left, kind = Side("orders", Order, ("customer",)), JoinKind.known(how)
    return ReferenceJoin(left, [lookup], kind, result_of([left, lookup.side], kind, "named"))


def orders_of(*customers: int | None) -> list[Order]:
    return [Order(number, customer, None) for number, customer in enumerate(customers)]


def test_the_misses_of_a_batch_are_fetched_together():
    service = Service({1: ["a"], 2: ["b", "c"]})
    found = apply(looked_up(Lookup(Customer, key="customer", fetch=service)), orders_of(1, 2, 1, 3, None, 2, 1, 3), 4)
    assert [(e.customer, e.name) for e in found] == [
        (1, "a"), (2, "b"), (2, "c"), (1, "a"), (3, None), (None, None), (2, "b"), (2, "c"), (1, "a"), (3, None),
    ]  # fmt: skip
    assert service.asked == [[1, 2, 3]]  # that a key has no rows is kept, too; a null is not asked for


def test_entries_expire():
    clock = [0.0]
    service = Service({1: ["a"]})
    lookup = Lookup(Customer, key="customer", fetch=service, expires="10s", clock=lambda: clock[0])
    lookup.open()
    ask = pa.record_batch({"customer": [1]})
    for clock[0], name in ((0.0, "a"), (9.0, "a"), (10.0, "b"), (19.0, "b")):
        service.names[1] = [name] if clock[0] in (0.0, 10.0) else ["never asked for"]
        assert lookup.find(ask)[1].column("name").to_pylist() == [name]
    assert service.asked == [[1], [1]]


@settings(max_examples=30)
@given(
    st.lists(st.tuples(st.lists(st.integers(0, 9), min_size=1, unique=True), st.integers(0, 4)), max_size=10),
    st.integers(1, 6),
)
def test_the_cache_is_bounded_and_right(calls, size):
    cache, now, asked = LookupCache(["customer"], size, 5.0), 0.0, {}
    for keys, passed in calls:
        now += passed

        def fetch(wanted: pa.RecordBatch, now: float = now) -> pa.RecordBatch:
            missing = wanted.column("customer").to_pylist()
            asked.update(dict.fromkeys(missing, now))
            rows = [Customer(key, f"{key}-{n}") for key in missing for n in range(key % 3)]
            return to_batch(Customer, rows, "the test")

        places, rows = cache.find(pa.record_batch({"customer": keys}), now, fetch)
        found = sorted((keys[place], name) for place, name in zip(places, rows.column("name").to_pylist(), strict=True))
        assert found == sorted((key, f"{key}-{n}") for key in keys for n in range(key % 3))
        assert all(now - asked[key] < 5.0 for key in keys)
        assert len(cache) <= size


def test_the_least_recently_used_keys_go_first():
    service = Service({})
    lookup = Lookup(Customer, key="customer", fetch=service, cache=2, clock=iter(range(99)).__next__)
    lookup.open()
    for key in (1, 2, 1, 3, 1, 2):
        lookup.find(pa.record_batch({"customer": [key]}))
    assert service.asked == [[1], [2], [3], [2]]


def test_a_query_over_a_connection(tmp_path):
    path = tmp_path / "crm.db"
    with sqlite3.connect(path) as db:
        db.execute("create table customers (id integer, name text)")
        db.executemany("insert into customers values (?, ?)", [(1, "a"), (2, "b"), (2, "c")])
    opened = []

    def connect() -> sqlite3.Connection:
        opened.append(1)
        return sqlite3.connect(path)

    sql = "select name, id as customer from customers where id in ({keys}) order by name"
    lookup = Lookup(Customer, key="customer", sql=sql, connect=connect)
    found = apply(looked_up(lookup, "inner"), orders_of(*range(3), *range(1000, 2200), 2), 5000)
    assert [(e.customer, e.name) for e in found] == [(1, "a"), (2, "b"), (2, "c"), (2, "b"), (2, "c")]
    assert opened == [1]
    wrong = Lookup(Customer, key="customer", sql="select id from customers where id in ({keys})", connect=connect)
    with pytest.raises(ValueError, match="gives no column customer, name"):
        apply(looked_up(wrong), orders_of(1), 1)


def test_a_query_by_a_key_of_two_fields(tmp_path):
    class Branch(Event):
        customer: int
        town: str
        branch: str

    with sqlite3.connect(tmp_path / "crm.db") as db:
        db.execute("create table branches (customer integer, town text, branch text)")
        db.executemany(
            "insert into branches values (?, ?, ?)", [(1, "x", "north"), (1, "y", "south"), (2, "x", "west")]
        )
    lookup = Lookup(
        Branch,
        key=("customer", "town"),
        sql="select * from branches where (customer, town) in (values {keys})",
        connect=lambda: sqlite3.connect(tmp_path / "crm.db"),
    )
    left = Side("orders", Order, ("customer", "city"))
    join = ReferenceJoin(left, [lookup], JoinKind.INNER, result_of([left, lookup.side], JoinKind.INNER, "branches"))
    found = apply(join, [Order(1, 1, "y"), Order(2, 2, "y"), Order(3, 2, "x")], 3)
    assert [(e.number, e.branch) for e in found] == [(1, "south"), (3, "west")]


def down(keys: Any) -> list[Customer]:
    if 13 in keys:
        raise ConnectionError("no answer")
    return [Customer(key, "n") for key in keys]


@pytest.mark.parametrize("on_error", ["drop", "dead-letter"])
def test_an_error_of_the_database_is_one_of_the_events_that_need_it(on_error):
    job = Job("named")
    orders = job.source(ListSource([], Order), id="orders")
    joined = orders.join(Lookup(Customer, key="customer", fetch=down), key="customer", on_error=on_error, id="named")
    joined.sink(CallableSink(print), id="out")
    ran = run(job, {"orders": orders_of(1, 13, 2, 13, 3)})
    assert [e.customer for e in ran.outputs["out"]] == [1, 2, 3]
    assert ran.counts["named"]["dropped" if on_error == "drop" else "dead_letters"] == 2


class Flaky:
    """A service that answers every third call."""

    calls = 0

    def __call__(self, keys: Any) -> list[Customer]:
        Flaky.calls += 1
        if Flaky.calls % 3:
            raise ConnectionError("no answer")
        return [Customer(key, "n") for key in keys]


def test_a_lookup_is_retried_in_place():
    job = Job("named")
    orders = job.source(ListSource([], Order), id="orders")
    lookup = Lookup(Customer, key="customer", fetch=Flaky())
    joined = orders.join(lookup, key="customer", on_error=Retry(times=5, then="drop"), id="named")
    joined.sink(CallableSink(print), id="out")
    ran = run(job, {"orders": orders_of(1, 2, 3, 4)}, epoch_events=4)
    assert [(e.customer, e.name) for e in ran.outputs["out"]] == [(1, "n"), (2, "n"), (3, "n"), (4, "n")]


def test_a_connection_that_has_failed_is_opened_again():
    opened: list[Any] = []

    def connect() -> sqlite3.Connection:
        db = sqlite3.connect(":memory:")
        if opened:
            db.execute("create table customers (customer integer, name text)")
        opened.append(db)
        return db

    lookup = Lookup(Customer, key="customer", sql="select * from customers where customer in ({keys})", connect=connect)
    lookup.open()
    keys = pa.record_batch({"customer": [1]})
    with pytest.raises(sqlite3.OperationalError):
        lookup.find(keys)
    assert lookup.find(keys)[1].num_rows == 0
    assert len(opened) == 2
    lookup.close()


def test_a_lookup_without_a_way_to_look_up_is_refused():
    for wrong in ({}, {"sql": "select {keys}"}, {"fetch": down, "sql": "{keys}", "connect": print}):
        with pytest.raises(WrongUse, match="SW-JOIN-LOOKUP.*either fetch="):
            Lookup(Customer, key="customer", **wrong)
    with pytest.raises(WrongUse, match="SW-JOIN-LOOKUP.*has no {keys}"):
        Lookup(Customer, key="customer", sql="select 1", connect=print)
    with pytest.raises(WrongUse, match="SW-JOB-SETTING.*cache=0"):
        Lookup(Customer, key="customer", fetch=down, cache=0)


def test_a_lookup_is_not_deterministic():
    assert not looked_up(Lookup(Customer, key="customer", fetch=down)).deterministic
