"""The step of a table operator (`components.table_operator`): it runs once in a wave.

    1  rows      the batches of each port, merged and as columns; `apply_rows`, port by port
    2  time      `on_time`, once, with the time that the clock of the wave has come to
    3  moments   of what was emitted: those of the rows that it names; that of the advance that has first reached the time at which
                 it was due; before everything else of the wave where it names neither

A batch that fails is divided until the failing row is known, if the operator is pure; then `on_error` applies to that row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from streamwork.components import Rows, TimerClock
from streamwork.components.collector import MAIN
from streamwork.components.columns import Columns
from streamwork.engine.fired import Fired
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.failure import RETURNED, BatchOfRows
from streamwork.engine.steps.key_check import KeyCheck
from streamwork.engine.steps.step import Step
from streamwork.engine.steps.table_emitted import Gathered, TableEmitted
from streamwork.engine.times import RowTimes
from streamwork.flow.batch import Batch
from streamwork.flow.blame import Blame
from streamwork.flow.channel import NO_ADVANCES, Advances
from streamwork.flow.lineage import NEVER, Array, Lineage

Arrived = tuple[str, Batch]  # at which port


class TableStep(Step):
    """A table operator in one instance."""

    state: Any = None  # a StateTable, or None if it keeps nothing
    tables: Mapping[str, Any]  # port -> the StateTable that is read there
    blames: Mapping[str, Blame]  # port -> for its input; the chain gives them
    check_keys: KeyCheck | None = None  # of keys that come without an exchange
    orders = False  # True if what it emits is put in order by moments
    moments = (0, 0)  # of what it emits on its own: before a wave, and in it
    fired: Fired | None = None  # under at-most-once, with clocks
    moment_of_timers = 0  # of what `on_time` emits, counted from the moment of the advance (`engine.routes`)

    def reset(self) -> None:
        super().reset()
        self.letter_ports: dict[int, str] = {}  # place among the dead letters -> the port that it came to

    def set_up(self) -> None:
        self._guarded_set_up()

    def process(self, batch: Batch) -> Outputs:
        return self.pass_wave([(MAIN, batch)])

    @property
    def mixes(self) -> bool:
        """True if the order of what it emits in a wave is not that of one port's rows, or of time."""
        return bool(self.operator.clocks) or len(self.node.ports) > 1

    def follows(self, clock: TimerClock) -> bool:
        return clock in self.operator.clocks

    def next_time(self, clock: TimerClock) -> int | None:
        """When `on_time` has something to do next."""
        found: int | None = self.operator.next_time(clock, self.state) if self.follows(clock) else None
        return found

    def pass_wave(
        self,
        arrived: Sequence[Arrived],
        advances: Advances = NO_ADVANCES,
        clock: TimerClock = TimerClock.EVENT,
        watermark: int | None = None,
    ) -> Outputs:
        """Everything of one wave. `watermark` is that before it."""
        self.see(watermark)
        return _Passage(self, arrived, advances, clock).go_on()

    def see(self, watermark: int | None) -> None:
        """Set the watermark that its collectors show: that before the wave."""
        if isinstance(self.times, RowTimes):
            self.times.at = watermark

    @property
    def minimum(self) -> int:
        """That watermark; `NEVER` while an input has brought none."""
        at = self.times.at if isinstance(self.times, RowTimes) else None
        return NEVER if at is None else at

    def drain(self) -> Outputs:
        collector = TableEmitted(self.node, self.times)
        self._guarded("a checkpoint", collector, self.operator.on_checkpoint, self.state, collector)
        found = Gathered()
        for one in collector.some:
            found.add(one, self.lineage_of_own(len(one.columns), self.moments[1]))
        return found.outputs()

    def lineage_of_own(self, count: int, moment: int) -> Lineage | None:
        """Of what comes from no row and no time."""
        return Lineage(moments=np.full(count, moment, np.int64)) if self.orders else None

    def columns(self, port: str, batch: Batch) -> Sequence[Columns]:
        given = batch.given
        kind = given.kind if isinstance(given, Columns) else type(given[0])
        found = self.blames[port].columns(kind, [given])
        if self.check_keys is not None and (key := self.node.port(port).key) is not None:
            for columns in found:
                self.check_keys.check_columns(columns.batch, key)
        return found

    def end_held(self, piece: Batch, error: Exception) -> None:
        self._end_held(piece.events[0], piece.roots[0], error)

    def on_time(self, collector: TableEmitted, clock: TimerClock, now: int) -> None:
        what = f"the advance of {clock.value} time to {now}"
        self._guarded(what, collector, self.operator.on_time, clock, now, self.state, self.tables, collector)

    def drop_due(self, clock: TimerClock, until: int) -> None:
        """Drop what is due up to this time: it may have been written before."""
        collector = TableEmitted(self.node, self.times, now=until)
        self.on_time(collector, clock, until)
        count = sum(len(one.columns) for one in collector.some)
        self.processed += count
        self.dropped += count

    def _guarded(self, what: str, collector: TableEmitted, call: Any, *given: Any) -> None:
        """A call that is about no event: if it fails, the job does."""
        try:
            if call(*given) is not None:
                raise TypeError(RETURNED)
            collector.check()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self.failed(what, error, is_one=False) from error

    def counters(self) -> dict[str, int]:
        kept = {"keys": len(self.state)} if self.state is not None else {}
        return {**super().counters(), **kept}


class _Passage:
    """One wave of a table step."""

    def __init__(self, step: TableStep, arrived: Sequence[Arrived], advances: Advances, clock: TimerClock) -> None:
        self._step = step
        self._clock = clock
        self._advances = advances
        self._left: deque[tuple[str, Batch, Columns]] = deque()
        for port, batch in arrived:
            start = 0
            for columns in step.columns(port, batch):
                end = start + len(columns)
                self._left.append((port, batch[start:end], columns))
                start = end

    def go_on(self, found: Gathered | None = None) -> Outputs:
        """Apply what is left, then let time advance. Stops at a row that is to be retried."""
        step, found = self._step, found or Gathered()
        while self._left and step.rest is None:
            self._apply(found)
        if step.rest is None and len(self._advances.times) and step.follows(self._clock):
            self._advance(found)
        return found.outputs()

    def _apply(self, found: Gathered) -> None:
        """Apply the next batch."""
        step = self._step
        port, batch, columns = self._left.popleft()
        collector = TableEmitted(step.node, step.times, len(columns))
        try:
            rows = Rows(columns.batch, _watermarks(batch), port)
            if step.operator.apply_rows(rows, step.state, step.tables, collector) is not None:
                raise TypeError(RETURNED)
            collector.check()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            self._failed(port, batch, columns, error)
            return
        if step.tries is not None:
            step.tries.over()
        step.processed += len(columns)
        step.delivered += collector.delivered()
        step.late += sum(len(one.columns) for one in collector.some if one.channel in step.operator.late_channels)
        for one in collector.some:
            if one.rows is None:
                lineage = step.lineage_of_own(len(one.columns), step.moments[0])
            elif (step.keeps_lineage or step.orders) and batch.lineage is not None:
                lineage = batch.lineage.descend(one.rows)
                if one.watermarks is not None and lineage.watermarks is not None:
                    lineage.watermarks = _latest(lineage.watermarks, step.minimum, one.watermarks)
            else:
                lineage = None
            found.add(one, lineage)

    def _failed(self, port: str, batch: Batch, columns: Columns, error: BaseException) -> None:
        """Divide a batch that has failed; apply `on_error` to a row that has."""
        step, count = self._step, len(columns)
        if not step.operator.pure or not isinstance(error, Exception):
            raise step.failed(BatchOfRows(columns), error, is_one=False) from error
        if count > 1:
            half = count // 2
            self._left.appendleft((port, batch[half:], columns[half:]))
            self._left.appendleft((port, batch[:half], columns[:half]))
            return
        step.blame, letters = step.blames[port], len(step.letters)
        if step.is_held(batch.events[0], batch.roots[0], error):
            self._left.appendleft((port, batch, columns))
            step.rest = self._again
        else:
            step.processed += 1
            if len(step.letters) > letters:
                step.letter_ports[letters] = port

    def _again(self) -> Outputs:
        """Retry the row that was held, and go on."""
        step, found = self._step, Gathered()
        tries = step.tries
        assert tries is not None
        if tries.marks.ended() and (error := tries.error) is not None:
            tries.over()
            port, batch, _ = self._left.popleft()
            letters = len(step.letters)
            step.end_held(batch, error)
            if len(step.letters) > letters:
                step.letter_ports[letters] = port
        else:
            step.retried += 1
        return self.go_on(found)

    def _advance(self, found: Gathered) -> None:
        step, (moments, times) = self._step, self._advances
        collector = TableEmitted(step.node, step.times, now=int(times[-1]))
        step.on_time(collector, self._clock, int(times[-1]))
        if step.fired is not None and collector.some:
            step.fired.record(self._clock, int(times[-1]))
        for one in collector.some:
            assert one.times is not None
            lineage = None
            if step.keeps_lineage or step.orders:
                due = np.minimum(times.searchsorted(one.times, "left"), len(times) - 1)
                at = moments[due] + step.moment_of_timers if step.orders else None
                # What is due at a time comes just before the watermark reaches it: for a window behind, it is in time.
                watermarks = one.times - 1 if self._clock is TimerClock.EVENT else None
                if one.watermarks is not None:
                    watermarks = one.watermarks if watermarks is None else np.maximum(watermarks, one.watermarks)
                lineage = Lineage(watermarks=watermarks, moments=at)
            found.add(one, lineage)


def _latest(own: Array, minimum: int, given: Array) -> Array:
    """The watermarks of what comes from rows and from events that were kept. A row without a watermark counts as come at the
    minimum: those of kept events alone may be before it, and windows behind may have closed since.
    """
    found: Array = np.maximum(np.where(own == NEVER, minimum, own), given)
    return found


def _watermarks(batch: Batch) -> Array:
    known = None if batch.lineage is None else batch.lineage.watermarks
    return np.full(len(batch), NEVER, np.int64) if known is None else known
