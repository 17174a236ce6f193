"""Folders of jobs with random state, written by the engine's own encoder: for tests of the state tools.

`changes()` draws what happens to the state from one checkpoint to the next; `World` writes it, and remembers what should be there.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any

import duckdb
from hypothesis import strategies as st

from streamwork import Digits, Event, Job, KeyedOperator, ListSource, Record, SqliteSink, StatefulOperator
from streamwork.components import Key, Position, Timer, TimerClock
from streamwork.components.keys import instance_of
from streamwork.engine.instance import row_format
from streamwork.epoch import Manifest, Store
from streamwork.epoch.start_records import StartRecords
from streamwork.job import Graph
from streamwork.state import InstanceState, KeyedState, StateFiles
from streamwork.state.sql_views import FOLDER, defaults_file, script
from streamwork.statefiles.point import At, Places, StatePoint
from streamwork.world import RealClock, RealDisk
from value_jobs import KINDS

UID = "0" * 31 + "1"
GROUPS = 256


class Deep(Event):
    at: datetime
    numbers: list[int]


class Given(Event):
    text: str
    number: int | None
    flag: bool
    raw: bytes
    at: datetime
    day: date
    money: Annotated[Decimal, Digits(12, 2)]


class All(Record):
    count: int = 0
    words: str | None = None
    share: float = 0.0
    yes: bool = False
    bits: bytes = b""
    seen: datetime | None = None
    born: date | None = None
    saved: Annotated[Decimal, Digits(12, 2)] = Decimal(0)
    numbers: list[float] = []
    by: dict[str, int | None] = {}
    deep: Deep | None = None


class Some(Record):
    count: int = 0
    words: str | None = None


class ByText(KeyedOperator[Given, All, Given]):
    def apply(self, event: Given, state: All, collector: Any) -> None: ...

    def on_timer(self, key: Any, at: datetime, state: All, collector: Any) -> None: ...


class ByMany(KeyedOperator[Given, Some, Given]):
    def apply(self, event: Given, state: Some, collector: Any) -> None: ...


class PerInstance(StatefulOperator[Given, All, Given]):
    def setup_instance(self, instance: Any, state: All | None) -> None: ...

    def apply(self, event: Given, collector: Any) -> None: ...

    def get_state(self) -> All:
        return All()


MANY = ("text", "number", "flag", "raw", "at", "day", "money")


def job(parallelism: int = 2) -> Job:
    made = Job("all", parallelism=parallelism)
    given = made.source(ListSource([], Given), id="given").apply(PerInstance(), id="per-instance")
    texts = given.apply(ByText(), key="text", id="by-text")
    texts.apply(ByMany(), key=MANY, id="by-many").sink(SqliteSink("/nowhere/o.db", "t"), id="out")
    return made


# ---- values ----------------------------------------------------------------------------------------------------------


def of(name: str) -> st.SearchStrategy[Any]:
    """The extremes of a type, and a few others that repeat."""
    few = {"str": ["a", "b", "ab", "'", '"', "a=b", "null"], "int": [1, 2], "float": [1.5]}.get(name, [])
    good = [value for value in KINDS[name].good if not (isinstance(value, str | bytes) and len(value) > 1000)]
    if name == "datetime":
        good = [value.astimezone(UTC) for value in good]
    return st.sampled_from([*good, *few])


def optional(name: str) -> st.SearchStrategy[Any]:
    return st.none() | of(name)


ALL = st.builds(
    All,
    count=of("int"),
    words=optional("str"),
    share=of("float").map(float),
    yes=of("bool"),
    bits=of("bytes"),
    seen=optional("datetime"),
    born=optional("date"),
    saved=of("Decimal"),
    numbers=st.lists(of("float").map(float), max_size=3),
    by=st.dictionaries(of("str"), optional("int"), max_size=2),
    deep=st.none() | st.builds(Deep, at=of("datetime"), numbers=st.lists(of("int"), max_size=2)),
)
SOME = st.builds(Some, count=of("int"), words=optional("str"))
TIMERS = st.frozensets(
    st.builds(Timer, of("datetime"), st.sampled_from([TimerClock.EVENT, TimerClock.PROCESSING])), max_size=2
)
TEXT_KEY = of("str")
MANY_KEY = st.tuples(
    of("str"), optional("int"), of("bool"), of("bytes"), of("datetime"), of("date"), of("Decimal").map(lambda d: d + 0)
)
Changes = Mapping[str, Mapping[Any, Any]]


def changes() -> st.SearchStrategy[Changes]:
    """Component -> key -> (record, timers), or None: the key is forgotten."""
    return st.fixed_dictionaries(
        {
            "by-text": st.dictionaries(TEXT_KEY, st.none() | st.tuples(ALL, TIMERS), max_size=5),
            "by-many": st.dictionaries(MANY_KEY, st.none() | st.tuples(SOME, st.just(frozenset())), max_size=4),
            "per-instance": st.dictionaries(st.integers(0, 1), st.tuples(ALL, st.just(frozenset())), max_size=2),
        }
    )


class World:
    """The folder of the job, checkpoint after checkpoint."""

    def __init__(self, root: Path, parallelism: int = 2) -> None:
        self.root = root
        self.job = job(parallelism)
        self.graph: Graph = self.job.graph()
        self.disk = RealDisk()
        self.store = Store(self.disk, root, self.job.name)
        self.store.create(self.graph, UID, GROUPS, RealClock())
        (self.store.folder / "fences").mkdir()
        StartRecords(self.disk, self.store.folder / "fences").write(1, 0, self.store.manifest(0).sha256)
        self.places = Places(self.disk, root, self.job.name, self.graph)
        self.rows = {node.id: row_format(self.graph, node, GROUPS) for node in self.graph.stateful}
        self.states: dict[str, dict[int, Any]] = {name: {} for name in self.rows}
        instances = [str(number) for number in range(parallelism)]
        self.chains: dict[str, dict[str, Any]] = {name: dict.fromkeys(instances, ()) for name in self.rows}
        self.parallelism = parallelism
        self.epoch = 0
        self._wanted: dict[int, dict[str, dict[Any, Any]]] = {0: {name: {} for name in self.rows}}
        self._files = StateFiles(self.disk, self.store.folder)

    def point(self, at: str | None = None) -> StatePoint:
        return self.places.open(At.parse(at))

    def wanted(self, epoch: int) -> dict[str, dict[Any, Any]]:
        """Component -> key -> (record, timers) at a checkpoint."""
        return self._wanted[epoch]

    def checkpoint(self, changed: Changes) -> int:
        self.epoch += 1
        now = {name: dict(keys) for name, keys in self._wanted[self.epoch - 1].items()}
        for component, keys in changed.items():
            for key, given in keys.items():
                self._change(component, key, given)
                if given is None:
                    now[component].pop(key, None)
                else:
                    now[component][key] = given
        for component, states in self.states.items():
            for instance, state in states.items():
                chain = self.chains[component].get(str(instance), ())
                self.chains[component][str(instance)] = self._files.save(
                    self.rows[component], state, chain, instance, self.epoch, "1-a"
                ) or tuple(chain)
        self._wanted[self.epoch] = now
        parent = self.store.manifest(self.epoch - 1)
        components = {name: dict(chains) for name, chains in self.chains.items() if chains}
        manifest = Manifest(
            self.epoch,
            parent.epoch,
            parent.sha256,
            1,
            UID,
            Position({"given/0": self.epoch * 10}),
            components,
            {},
            {},
            self.graph.fingerprint,
        )
        self.store.write_prepared(manifest)
        self.store.write_completed(manifest)
        self._write_views()
        return self.epoch

    def _change(self, component: str, key: Any, given: Any) -> None:
        states = self.states[component]
        if component == "per-instance":
            states.setdefault(key, InstanceState()).record = given[0]
            return
        node = self.graph[component]
        assert node.key is not None
        (group,) = Key.of(Given, node.key.fields).groups([key], GROUPS)
        state = states.setdefault(instance_of(group, self.parallelism, GROUPS), KeyedState())
        state.forget(key)
        if given is not None:
            state.records[key] = given[0]
            for timer in given[1]:
                state.set_timer(key, timer)

    def _write_views(self) -> None:
        """As `epoch.views` does at a start."""
        for rows in self.rows.values():
            path = self.store.folder / FOLDER / f"{rows.component}.parquet"
            path.parent.mkdir(exist_ok=True)
            self.disk.replace(path, defaults_file(rows))
        text = script(self.job.name, self.store.folder, list(self.rows.values()), {})
        self.disk.replace(self.store.folder / "views.sql", text.encode())

    def by_views(self) -> dict[str, list[dict[str, Any]]]:
        """The independent answer: every component's rows as DuckDB reads them over `views.sql`, at the newest checkpoint."""
        with duckdb.connect() as db:
            db.execute("SET TimeZone = 'UTC'")
            db.execute((self.store.folder / "views.sql").read_text())
            return {name: db.sql(f'FROM "{name}"').to_arrow_table().to_pylist() for name in self.rows}


def comparable(value: Any) -> Any:
    """A value that equals itself: NaN as text, times in UTC, dicts without order."""
    if isinstance(value, float):
        return "nan" if math.isnan(value) else value
    if isinstance(value, datetime):
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return tuple(sorted((name, comparable(item)) for name, item in value.items()))
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
        return (value[0], comparable(value[1]))
    if isinstance(value, list):
        return tuple(map(comparable, value))
    return value


def by_text(rows: list[dict[str, Any]]) -> list[str]:
    """Rows without order."""
    return sorted(str(sorted((name, repr(comparable(value))) for name, value in row.items())) for row in rows)
