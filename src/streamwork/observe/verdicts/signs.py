"""`Signs`: everything that verdicts are made from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from streamwork.engine.vitals import TaskVital
from streamwork.epoch.history.lag import Sample
from streamwork.epoch.history.values import Row, StateSize
from streamwork.run.record import RunRecord


class Signs(msgspec.Struct, frozen=True, kw_only=True):
    """What the files of a job show at one moment. Lists are in the order of time, oldest first."""

    job: str
    root: str
    now: float  # seconds since 1970
    running: bool | None = True  # None: not known
    restarting: bool = False
    ended: bool = True  # of a job that does not run: it has ended by itself or by request
    holder: str = ""  # the process that has the job
    run: RunRecord = RunRecord(fence=0, mode="local", checkpoint_every=1.0)
    epochs: Sequence[Row] = ()
    samples: Sequence[Sample] = ()
    units: Mapping[str, str] = {}  # source -> the unit of its offsets
    sinks: Sequence[str] = ()
    processed: Mapping[str, Mapping[int, int]] = {}  # component -> instance -> events in the last epochs
    keyed: frozenset[str] = frozenset()  # components with keyed state
    states: Sequence[StateSize] = ()
    tasks: Sequence[TaskVital] = ()
