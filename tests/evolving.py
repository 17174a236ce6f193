"""A job in several versions: each keeps the same sums in another form, so that the results of all are the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Annotated, Any, ClassVar

from sample import Payment, Seen, expected_journal
from savepoint_world import JOB, World
from streamwork import Digits, Event, Job, KeyedOperator, ListSource, Record, SqliteSink
from streamwork.engine.instance import row_format
from streamwork.epoch import Driver
from streamwork.job import Graph
from streamwork.state import StateFiles
from streamwork.state.view import StateView
from streamwork.testing.memory import MemorySink
from streamwork.testing.script import Script


class Paid(Event):
    """`Payment`, whose key has another name."""

    renamed_from: ClassVar = {"account": "card"}
    account: str
    amount: int


class First(Record):
    number: int = 0
    total: int = 0


class More(Record):
    number: int = 0
    total: int = 0
    note: str | None = None
    spent: Annotated[Decimal, Digits(6, 2)] = Decimal(0)


class Renamed(Record):
    renamed_from: ClassVar = {"amounts": "total"}
    note: str | None = None
    number: int | None = 0
    amounts: int = 0
    spent: Annotated[Decimal, Digits(9, 2)] = Decimal(0)


class Text(Record):
    """All in one field."""

    schema_version: ClassVar[int] = 2
    text: str = "0 0"

    @classmethod
    def migrate(cls, row: dict[str, Any], version: int) -> Text:
        assert version == 1
        assert set(row) & {"card", "account"}, "the key is there, too"
        return cls(f"{row['number']} {row['amounts'] if 'amounts' in row else row['total']}")


class Split(Record):
    schema_version: ClassVar[int] = 3
    parts: list[int] = []

    @classmethod
    def migrate(cls, row: dict[str, Any], version: int) -> Split:
        if version == 1:
            row = {"text": Text.migrate(row, version).text}
        return cls([int(one) for one in row["text"].split()])


class Sum(KeyedOperator[Any, Any, Seen]):
    def __init__(self, event: type[Event], record: type[Record]) -> None:
        self._event, self._record = event, record

    def types(self) -> Any:
        return self._event, self._record, Seen

    def apply(self, event: Any, state: Any, collector: Any) -> None:
        number, total = sums_of(state)
        number, total = number + 1, total + event.amount
        if isinstance(state, Text):
            state.text = f"{number} {total}"
        elif isinstance(state, Split):
            state.parts = [number, total]
        else:
            state.number = number
            setattr(state, "amounts" if isinstance(state, Renamed) else "total", total)
        collector.emit(Seen(event.card if isinstance(event, Payment) else event.account, number, total))


def sums_of(state: Any) -> tuple[int, int]:
    if isinstance(state, Text):
        number, total = state.text.split()
        return int(number), int(total)
    if isinstance(state, Split):
        return (state.parts[0], state.parts[1]) if state.parts else (0, 0)
    return state.number, state.amounts if isinstance(state, Renamed) else state.total


VERSIONS: Sequence[tuple[type[Event], type[Record]]] = (
    (Payment, First),
    (Payment, More),
    (Paid, Renamed),
    (Paid, Text),
    (Paid, Split),
)


class Evolving(World):
    """A world whose job may be another version, with another parallelism, in each of its lives."""

    version = 0
    parallelism = 2

    def graph(self, parallelism: int | None = None) -> Graph:
        event, record = VERSIONS[self.version]
        job = Job(JOB, checkpoint_every=0, parallelism=parallelism or self.parallelism)
        key = "card" if event is Payment else "account"
        seen = job.source(ListSource([], event), id="in").apply(Sum(event, record), key=key, id="sums")
        seen.sink(SqliteSink("/nowhere/out.db", "out"), id="out")
        given = [event(one.card, one.amount) for one in self.events]  # type: ignore[call-arg]
        parts: dict[str, Any] = {
            "in": Script(event, given, 1, self._slices, lambda: False, self.clock.sleep, self.clock.sleep),
            "out": MemorySink(self.table),
        }
        graph = job.graph()
        return replace(graph, nodes=tuple(replace(n, component=parts.get(n.id, n.component)) for n in graph.nodes))

    def life(
        self, epochs: int | None = None, version: int | None = None, parallelism: int | None = None, **options: Any
    ) -> Driver:
        """A new process: it starts, and completes some epochs, or all that there are."""
        self.processes.restart()
        self.version = self.version if version is None else version
        self.parallelism = parallelism or self.parallelism
        driver = self.run(0, **options)
        while (epochs is None or epochs > 0) and driver.run_epoch() is not None:
            epochs = None if epochs is None else epochs - 1
        return driver

    def check(self, events: int | None = None) -> None:
        """Output and state are those of a run that never stopped, after so many events or all."""
        journal = expected_journal(self.events if events is None else self.events[:events])
        if events is None:
            for card in {event.card for event in self.events}:
                mine = [(row.number, row.total) for row in self.table.rows if row.card == card]
                assert mine == [(number, total) for name, number, total in journal if name == card]
            assert len(self.table.rows) == len(journal)
        assert self.state() == {card: (number, total) for card, number, total in journal}

    def state(self) -> dict[Any, tuple[int, int]]:
        """By key, of the newest checkpoint; every file of it has the columns of this version, and no other."""
        manifest, graph = self.store.manifest(max(self.store.completed())), self.graph()
        files, rows = StateFiles(self.disk, self.store.folder), row_format(graph, graph["sums"], 256)
        found: dict[Any, tuple[int, int]] = {}
        for instance, chain in manifest.components["sums"].items():
            assert all(rows.evolution.is_current(files.schema(ref)) for ref in chain), "a chain never mixes schemas"
            mine = StateView(files, rows, {instance: chain}).records()
            assert not mine.keys() & found.keys()
            found.update((key, sums_of(record)) for key, record in mine.items())
        return found
