"""The last steps before a sink: outputs are staged for the driver to commit, or written at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from streamwork.components.columns import Columns, to_structs
from streamwork.components.sink import RowsRejected, WriteStopped
from streamwork.engine.steps.staging import Staging
from streamwork.engine.steps.step import Given, Outputs, Step
from streamwork.errors import JobFailed, StreamworkError, described
from streamwork.flow.lineage import UNTRACKED, roots_of
from streamwork.job.semantics import Isolation
from streamwork.wording import plural

ROWS = 65_536
"""So many rows are written at a time. Each write is a transaction of the target, which costs more than the rows in it."""


class StageStep(Step):
    """Outputs become durable here, and visible when the driver commits them."""

    takes_columns = True
    staging: Staging

    def set_up(self) -> None:
        """The staging is all it needs, and for previews the sink."""
        if self.node.isolation is Isolation.READ_UNCOMMITTED:
            self.node.component.open(self.node.takes)

    def process(self, events: Given) -> Outputs:
        self.staging.add(events)
        self.processed += len(events)
        self.delivered += len(events)
        return {}


class WriteStep(Step):
    """Outputs are written to the sink as they come, many at a time, and before every checkpoint."""

    takes_columns = True
    claim: Callable[[], bool]
    """Under at-most-once: may this attempt write? Asked once for an epoch, before its first row is written."""

    def reset(self) -> None:
        super().reset()
        self._waiting: list[Given] = []
        self._count = 0
        self._may_write: bool | None = None

    def set_up(self) -> None:
        self.node.component.open(self.node.takes)

    def process(self, events: Given) -> Outputs:
        self._waiting.append(events)
        self._count += len(events)
        return self.drain() if self._count >= ROWS else {}

    def drain(self) -> Outputs:
        if self._count:
            waiting, count, self._waiting, self._count = self._waiting, self._count, [], 0
            assert self.node.takes is not None
            roots = [root for events in waiting for root in _roots(events)] if self.following is not None else []
            start = 0
            for piece in self.blame.columns(self.node.takes, waiting):
                self._write(piece.batch, roots[start : start + len(piece)])
                start += len(piece)
            self.processed += count
        return {}

    def _write(self, rows: pa.RecordBatch, roots: Sequence[int]) -> None:
        """Write what can be written; `on_error` decides about the rest."""
        if self._may_write is None:
            self._may_write = self.claim()
        if not self._may_write:  # another attempt at this epoch has begun to write: what it got done, nobody knows
            self.dropped += rows.num_rows
            return
        try:
            self.node.component.write(rows)
            self.delivered += rows.num_rows
        except RowsRejected as rejected:
            if rows.num_rows == 1:
                self._give_up(rows, roots, rejected)
                return
            half = rows.num_rows // 2
            self._write(rows.slice(0, half), roots[:half])
            self._write(rows.slice(half), roots[half:])
        except WriteStopped as stopped:
            done = stopped.written
            self.delivered += done
            self._give_up(rows.slice(done, 1), roots[done : done + 1], stopped.error)
            if done + 1 < rows.num_rows:
                self._write(rows.slice(done + 1), roots[done + 1 :])
        except Exception as error:  # whether they were written, nobody knows
            self._give_up(rows, roots, error)

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
                f"sink {self.node.id} refuses row {rows.to_pylist()[0]} for good: {error}",
                'change the target so that it takes the row; or give the sink on_error="dead-letter" (kept in dead-letters/) or '
                '"drop", and start again',
                retryable=False,
                about_one_event=True,
            )
        return JobFailed(
            "SW-SINK-FAILED",
            f"sink {self.node.id} ({self.node.title}) could not write {plural(rows.num_rows, 'row')}: {described(error)}",
            "mend the target, or what the sink calls, and start again: the last checkpoint is good",
        )


def _roots(events: Given) -> list[int]:
    return [UNTRACKED] * len(events) if isinstance(events, Columns) else roots_of(events)
