"""Watches a simulated run, and makes a frame of each step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from streamwork.engine import Engine
from streamwork.engine.engine import Choice
from streamwork.engine.executor import Executor
from streamwork.epoch import Phase, Store
from streamwork.flow.channel import Channel, CheckpointEvent, Data, Item
from streamwork.flow.wiring import Place as Seat
from streamwork.flow.wiring import channel_name, upstream
from streamwork.hosts.local import LocalHost
from streamwork.job import Job, Layout
from streamwork.state import KeyedState
from streamwork.testing.memory import Table
from streamwork.testing.playback import captions
from streamwork.testing.playback.captions import Caption
from streamwork.testing.playback.frames import (
    Edge,
    Frame,
    Kind,
    Place,
    PlaceView,
    Playback,
    Scene,
    SinkView,
    Snapshot,
    Token,
)
from streamwork.testing.simulation import Observer, Result, run

MOST_FRAMES = 500
MOST_ROWS = 40
"""Of a sink, in a frame."""
LABEL = 12
"""The longest label of an event."""


def play(
    job: Job,
    inputs: Mapping[str, Sequence[Any]] | None = None,
    seed: int = 0,
    crash_at: Sequence[int] = (),
    epoch_events: int | None = None,
    most_frames: int = MOST_FRAMES,
) -> Playback:
    """Run a job in the simulator, and record what happens. The arguments are those of `streamwork.testing.run`; the run ends after
    the checkpoint with which it has had `most_frames`.
    """
    recorder = _Recorder(Layout.of(job.graph(), job.settings.groups, bounds=True))

    def is_long(_: Result) -> bool:
        return len(recorder.frames) >= most_frames

    run(job, inputs, seed, tuple(crash_at), epoch_events, until=is_long, observer=recorder)
    recorder.settle(0)
    frames = tuple(recorder.frames)
    return Playback(job.name, seed, tuple(crash_at), recorder.scene, frames, len(frames) < most_frames)


class _Turn(msgspec.Struct):
    """A turn that has been chosen, and what was there before it."""

    executor: Executor
    channel: Channel | None
    item: Item | None
    states: dict[str, str]
    staged: Counter[str]
    newest: int  # the number of the newest token


class _Recorder(Observer):
    def __init__(self, layout: Layout) -> None:
        self.scene = _scene(layout)
        self.frames: list[Frame] = []
        self._layout = layout
        self._turn: _Turn | None = None
        self._step = 0
        self._tokens: dict[int, tuple[Item, Token]] = {}  # by identity; the item is kept, so that its identity is
        self._count = 0  # of tokens
        self._life = 0
        self._host: LocalHost
        self._store: Store
        self._tables: Mapping[str, Table] = {}
        self._slices: dict[
            int, dict[str, tuple[int, int]]
        ] = {}  # epoch -> source -> its slice, all partitions together
        self._read: dict[str, int] = {}  # by box: the offset of its last checkpoint event
        self._snapshots: dict[str, dict[int, dict[str, str]]] = {place.id: {} for place in self.scene.places}
        self._staged: dict[int, Counter[str]] = {}  # of instances that have reported
        self._committed: Counter[str] = Counter()
        self._rows: Counter[str] = Counter()
        self._completed = self._prepared = 0
        self._resuming = False

    # ---- what is seen -------------------------------------------------------------------------------------------

    def on_start(self, life: int, host: LocalHost, store: Store, tables: Mapping[str, Table]) -> None:
        self._life, self._host, self._store, self._tables = life, host, store, tables
        self._resuming = True

    def on_step(self, step: int) -> None:
        self._step = step
        self.settle(step)

    def on_turn(self, chosen: Choice) -> None:
        executor, channel = chosen
        self._tokenize()
        item = channel.items[0] if channel is not None else None
        self._turn = _Turn(executor, channel, item, self._state(executor), self._staging(executor), self._count)

    def on_phase(self, phase: Phase, epoch: int) -> None:
        self.settle(self._step + 1)
        if phase is Phase.READY:
            self._resume(epoch)
        elif phase is Phase.PLAN:
            self._add(Kind.PLAN, epoch, captions.planned(epoch, self._planned(epoch)))
        elif phase is Phase.REPORT:
            self._add(Kind.REPORT, epoch, captions.reported(epoch))
        elif phase is Phase.PREPARE:
            self._prepared = epoch
            self._add(Kind.PREPARE, epoch, captions.prepared(epoch))
        elif phase is Phase.COMMIT:
            self._commit(epoch)
        elif phase is Phase.COMPLETE:
            self._completed = max(self._completed, epoch)
            self._add(Kind.COMPLETE, epoch, captions.completed(epoch))

    def on_crash(self) -> None:
        self._turn = None
        kept = self._prepared if self._prepared > self._completed else 0  # the files of others count for nothing
        self._staged = {epoch: rows for epoch, rows in self._staged.items() if epoch == kept}
        self._add(Kind.CRASH, self._completed, captions.crashed(self._completed, self._prepared), crashed=True)

    def settle(self, crash_at: int) -> None:
        """The turn that was chosen last has happened: make a frame of it."""
        turn, self._turn = self._turn, None
        if turn is None:
            return
        self._tokenize()
        if turn.channel is None:
            kind, epoch, caption = self._source(turn)
        elif isinstance(turn.item, CheckpointEvent):
            kind, epoch, caption = self._checkpoint(turn, turn.channel, turn.item.epoch)
        elif isinstance(turn.item, Data):
            kind, epoch, caption = Kind.APPLY, turn.item.epoch, self._applied(turn, turn.channel, turn.item)
        else:  # a watermark
            return
        edge = "" if turn.channel is None else turn.channel.name
        self._add(kind, epoch, caption, turn.executor.name, edge, crash_at=crash_at)

    # ---- what has happened ------------------------------------------------------------------------------------------

    def _source(self, turn: _Turn) -> tuple[Kind, int, Caption]:
        """A source has read an event, or has sent its checkpoint event."""
        executor = turn.executor
        name, sent = executor.name, self._sent(turn.newest)
        if executor.epoch:
            receivers = [edge.receiver for edge in self.scene.edges if edge.id in sent]
            label = captions.names(list(dict.fromkeys(one.label for one in sent.values()))) if sent else "an event"
            keyed = any(self._layout.graph[self._place(one).components[0]].key for one in receivers)
            return Kind.READ, executor.epoch, captions.read(name, label, receivers, executor.epoch, keyed)
        epoch = min(number for number in self._slices if number not in self._snapshots[name])
        self._read[name] = int(turn.states["offset"])
        self._store_snapshot(turn, epoch)
        return Kind.MARK, epoch, captions.marked(name, epoch, self._read[name])

    def _applied(self, turn: _Turn, channel: Channel, item: Data) -> Caption:
        after = self._state(turn.executor)
        changes = {key: value for key, value in after.items() if turn.states.get(key) != value}
        blocked = [self._sender(one) for one in sorted(turn.executor.dispatcher.blocked)]
        return captions.applied(
            turn.executor.name, _label(item), self._sender(channel.name), changes, blocked, item.epoch
        )

    def _checkpoint(self, turn: _Turn, channel: Channel, epoch: int) -> tuple[Kind, int, Caption]:
        """A checkpoint event has been received."""
        name, dispatcher = turn.executor.name, turn.executor.dispatcher
        if channel.name in dispatcher.blocked:
            missing = [self._sender(one.name) for one in dispatcher.inputs if one.name not in dispatcher.blocked]
            waiting = sum(len(item) for item in channel.items if isinstance(item, Data))
            return Kind.BLOCK, epoch, captions.blocked(name, epoch, self._sender(channel.name), missing, waiting)
        self._store_snapshot(turn, epoch)
        return Kind.SNAPSHOT, epoch, captions.aligned(name, epoch, len(dispatcher.inputs))

    def _store_snapshot(self, turn: _Turn, epoch: int) -> None:
        self._snapshots[turn.executor.name][epoch] = self._state(turn.executor)
        self._staged.setdefault(epoch, Counter()).update(turn.staged)

    def _commit(self, epoch: int) -> None:
        """Commits come one after the other, in the order of the sinks."""
        sink = next((name for name in self._tables if self._committed[name] < epoch), None)
        if sink is None:
            return
        before, self._rows[sink] = self._rows[sink], len(self._tables[sink].rows)
        self._committed[sink] = epoch
        if epoch in self._staged:
            del self._staged[epoch][sink]
        self._add(Kind.COMMIT, epoch, captions.committed(epoch, sink, self._rows[sink] - before, self._resuming))

    def _resume(self, epoch: int) -> None:
        """A start has finished its recovery: what was not in this checkpoint is gone."""
        self._resuming, self._staged, self._slices, self._read = False, {}, {}, {}
        for kept in self._snapshots.values():
            for number in [number for number in kept if number > epoch]:
                del kept[number]
        self._completed = self._prepared = epoch
        self._add(Kind.START, epoch, captions.started(epoch, self._life))

    def _planned(self, epoch: int) -> str:
        """The slices of a plan, as text. Ends of some sources are known later."""
        plan = self._store.plan(epoch)
        names = sorted({node.id for node in self._layout.graph.sources})
        self._slices[epoch] = {one: (sum(plan.start.of(one).values()), sum(plan.end.of(one).values())) for one in names}
        return captions.names(
            [
                f"{one} from {a}" + (f" to {b}" if one in plan.end.sources else "")
                for one, (a, b) in self._slices[epoch].items()
            ]
        )

    # ---- frames ---------------------------------------------------------------------------------------------------

    def _add(
        self,
        kind: Kind,
        epoch: int,
        caption: Caption,
        place: str = "",
        edge: str = "",
        crash_at: int = 0,
        crashed: bool = False,
    ) -> None:
        engine = None if crashed else self._host.engine
        self._tokenize()
        self.frames.append(
            Frame(
                number=len(self.frames),
                life=self._life,
                kind=kind,
                epoch=epoch,
                place=place,
                edge=edge,
                caption=caption.caption,
                why=caption.why,
                edges={} if crashed else self._edges(),
                places={one.id: self._view(one, engine) for one in self.scene.places},
                sinks={name: self._sink(name, crashed) for name in self._tables},
                completed=self._completed,
                crash_at=0 if crashed else crash_at or self._step + 1,
            )
        )

    def _executors(self) -> Mapping[Seat, Executor]:
        return {} if self._host.engine is None else self._host.engine.executors

    def _tokenize(self) -> None:
        """Give a number to every item that is new, and forget those that were received."""
        items = [item for one in self._executors().values() for c in one.dispatcher.inputs for item in c.items]
        held: dict[int, tuple[Item, Token]] = {}
        for item in items:
            if id(item) in self._tokens:
                held[id(item)] = self._tokens[id(item)]
            elif isinstance(item, Data | CheckpointEvent):
                self._count += 1
                is_checkpoint = isinstance(item, CheckpointEvent)
                label = str(item.epoch) if isinstance(item, CheckpointEvent) else _label(item)
                held[id(item)] = item, Token(self._count, is_checkpoint, label, item.epoch)
        self._tokens = held

    def _edges(self) -> dict[str, tuple[Token, ...]]:
        return {
            channel.name: tuple(self._tokens[id(item)][1] for item in channel.items if id(item) in self._tokens)
            for one in self._executors().values()
            for channel in one.dispatcher.inputs
        }

    def _sent(self, newest: int) -> dict[str, Token]:
        """The newest item of each channel that got one after the token of this number."""
        return {edge: tokens[-1] for edge, tokens in self._edges().items() if tokens and tokens[-1].number > newest}

    def _view(self, place: Place, engine: Engine | None) -> PlaceView:
        stored = self._snapshots[place.id]
        newest = max(stored, default=None)
        snapshot = None if newest is None else Snapshot(newest, stored[newest])
        executor = next((one for one in (engine.executors.values() if engine else ()) if one.name == place.id), None)
        if executor is None:
            return PlaceView({}, (), snapshot)
        return PlaceView(self._state(executor), tuple(sorted(executor.dispatcher.blocked)), snapshot)

    def _sink(self, name: str, crashed: bool) -> SinkView:
        rows = tuple(_text(row) for row in self._tables[name].rows[-MOST_ROWS:])
        staged = sum(counted[name] for counted in self._staged.values())
        if not crashed:
            staged += sum(self._staging(one)[name] for one in self._executors().values())
        return SinkView(rows, staged, self._committed[name])

    def _staging(self, executor: Executor) -> Counter[str]:
        """The rows that an instance has staged in the epoch under way."""
        if executor.epoch == 0:
            return Counter()
        counters = executor.instance.chain.counters()
        return Counter({name: counters[name]["processed"] for name in self._tables if name in counters})

    def _state(self, executor: Executor) -> dict[str, str]:
        found: dict[str, str] = {}
        for state in executor.instance.states.values():
            if isinstance(state, KeyedState):
                found.update((str(key), _text(record)) for key, record in sorted(state.records.items(), key=str))
            elif (record := getattr(state, "record", None)) is not None:
                found["record"] = _text(record)
        return {**self._offset(executor), **found}

    def _offset(self, executor: Executor) -> dict[str, str]:
        """How far the sources of an instance have read."""
        components = self._place(executor.name).components
        sources = [node.id for node in self._layout.graph.sources if node.id in components]
        if not sources:
            return {}
        slices = self._slices.get(executor.epoch or min(self._slices, default=0), {})
        at = sum(slices.get(source, (0, 0))[0] for source in sources)
        if executor.epoch:
            counters = executor.instance.chain.counters()
            return {"offset": str(at + sum(counters[source]["processed"] for source in sources))}
        return {"offset": str(self._read.get(executor.name, at))}

    def _place(self, name: str) -> Place:
        return next(one for one in self.scene.places if one.id == name)

    def _sender(self, edge: str) -> str:
        return next(one.sender for one in self.scene.edges if one.id == edge)


def _scene(layout: Layout) -> Scene:
    columns: list[int] = []
    for chain in range(len(layout.chains)):
        columns.append(max((columns[before] + 1 for before in layout.upstream[chain]), default=0))
    seats = [(chain, instance) for chain, spec in enumerate(layout.chains) for instance in range(spec.parallelism)]
    rows: Counter[int] = Counter()
    places = []
    for chain, instance in seats:
        column = columns[chain]
        spec = layout.chains[chain]
        places.append(Place(_name(layout, (chain, instance)), spec.nodes, column, rows[column], spec.is_source))
        rows[column] += 1
    edges = tuple(
        Edge(channel_name(before, seat), _name(layout, before), _name(layout, seat))
        for seat in seats
        for before in upstream(layout, seat)
    )
    sinks = {node.id: tuple(one.id for one in places if node.id in one.components) for node in layout.graph.sinks}
    return Scene(tuple(places), edges, sinks)


def _name(layout: Layout, seat: Seat) -> str:
    return f"{layout.chains[seat[0]].nodes[0]}[{seat[1]}]"


def _label(data: Data) -> str:
    events = [event for part in data.parts for event in part.batch.events]
    return ", ".join(_short(event) for event in events[:3]) + (" ..." if len(events) > 3 else "")


def _short(event: msgspec.Struct) -> str:
    """The first text of an event, or its first value."""
    values = [getattr(event, name) for name in event.__struct_fields__]
    chosen = next((value for value in values if isinstance(value, str)), values[0] if values else "")
    return str(chosen)[:LABEL]


def _text(value: msgspec.Struct) -> str:
    """A record or a row: its values."""
    return " ".join(str(getattr(value, name)) for name in value.__struct_fields__)
