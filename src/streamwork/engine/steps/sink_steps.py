"""The last steps before a sink: outputs are staged for the driver to commit, or written at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from streamwork.components.columns import to_structs
from streamwork.components.sink import RowsRejected, WriteStopped
from streamwork.delivery.bisection import rejected_rows
from streamwork.engine.latency import SinkMeter
from streamwork.engine.steps.emitted import Outputs
from streamwork.engine.steps.staging import Staging
from streamwork.engine.steps.step import Step
from streamwork.errors import JobFailed, StreamworkError, described
from streamwork.flow.batch import Batch
from streamwork.flow.lineage import UNTRACKED
from streamwork.job.semantics import Isolation
from streamwork.wording import plural

ROWS = 65_536
"""Rows per write. Each write is a transaction of the target, which costs more than the rows in it."""


class StageStep(Step):
    """Stages outputs: they become durable here, and visible when the driver commits them."""

    staging: Staging
    meter: SinkMeter | None = None

    def set_up(self) -> None:
        """It needs the staging alone, and for previews the sink."""
        if self.node.isolation is Isolation.READ_UNCOMMITTED:
            self.node.component.open(self.node.takes)

    def process(self, batch: Batch) -> Outputs:
        self.staging.add(batch.given)
        self.processed += len(batch)
        self.delivered += len(batch)
        if self.meter is not None:
            self.meter.wrote(len(batch))
        return {}


class WriteStep(Step):
    """Writes outputs to the sink as they come, many at a time, and before every checkpoint."""

    rows = ROWS
    """It writes when so many wait."""
    guard: Callable[[], None] = staticmethod(lambda: None)
    """Called before each write. Raises if another driver has the job."""
    meter: SinkMeter | None = None
    claim: Callable[[], bool]
    """Under at-most-once: may this attempt write? Called once per epoch, before its first row is written."""

    def reset(self) -> None:
        super().reset()
        self._waiting: list[Batch] = []
        self._count = 0
        self._may_write: bool | None = None

    def set_up(self) -> None:
        self.node.component.open(self.node.takes)

    def process(self, batch: Batch) -> Outputs:
        self._waiting.append(batch)
        self._count += len(batch)
        return self.drain() if self._count >= self.rows else {}

    def drain(self) -> Outputs:
        if self._count:
            waiting, count, self._waiting, self._count = self._waiting, self._count, [], 0
            assert self.node.takes is not None
            roots = [root for batch in waiting for root in batch.roots] if self.acks is not None else []
            start = 0
            for piece in self.blame.columns(self.node.takes, [batch.given for batch in waiting]):
                self._write(piece.batch, roots[start : start + len(piece)])
                start += len(piece)
            self.processed += count
        return {}

    def _write(self, rows: pa.RecordBatch, roots: Sequence[int]) -> None:
        """Write what can be written; `on_error` applies to the rest."""
        if self._may_write is None:
            self._may_write = self.claim()
        self.guard()
        if not self._may_write:  # another attempt at this epoch has begun to write; how much it has written is unknown
            self.dropped += rows.num_rows
            return
        for place, rejected in rejected_rows(rows, lambda piece, start: self._attempt(piece, roots[start:])):
            self._give_up(rows.slice(place, 1), roots[place : place + 1], rejected)

    def _attempt(self, rows: pa.RecordBatch, roots: Sequence[int]) -> RowsRejected | None:
        """Write these rows, or return why the sink rejects them. `roots` are theirs, and perhaps of rows behind them."""
        try:
            self.node.component.write(rows)
            self._delivered(rows.num_rows)
        except RowsRejected as rejected:
            return rejected
        except WriteStopped as stopped:
            done = stopped.written
            self._delivered(done)
            self._give_up(rows.slice(done, 1), roots[done : done + 1], stopped.error)
            if done + 1 < rows.num_rows:
                self._write(rows.slice(done + 1), roots[done + 1 :])
        except Exception as error:  # whether they were written is not known
            self._give_up(rows, roots, error)
        return None

    def _delivered(self, rows: int) -> None:
        self.delivered += rows
        if self.meter is not None and rows:
            self.meter.wrote(rows)

    def _give_up(self, rows: pa.RecordBatch, roots: Sequence[int], error: Exception) -> None:
        if self.node.on_error == "fail":
            failed = self._failed(rows, error)
            failed.component = self.node.id
            raise failed from error
        assert self.node.takes is not None
        for place, event in enumerate(to_structs(self.node.takes, rows)):
            self.give_up(event, roots[place] if roots else UNTRACKED, error)

    def _failed(self, rows: pa.RecordBatch, error: Exception) -> StreamworkError:
        if isinstance(error, StreamworkError):
            return error
        if isinstance(error, RowsRejected):
            return JobFailed(
                "SW-SINK-REJECTED",
                f"sink {self.node.id} refuses row {rows.to_pylist()[0]} permanently: {error}",
                'change the target so that it takes the row; or give the sink on_error="dead-letter" (kept in dead-letters/) or '
                '"drop", and start again',
                retryable=False,
                about_one_event=True,
            )
        return JobFailed(
            "SW-SINK-FAILED",
            f"sink {self.node.id} ({self.node.title}) could not write {plural(rows.num_rows, 'row')}: {described(error)}",
            "fix the target, or what the sink calls, and start again: the last checkpoint is good",
        )
