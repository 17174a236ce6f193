"""Windows: kinds of windows, and the table operators that they are made of (`docs/design/2026-11-16-windows-and-joins.md`).

Pure parts: `kinds`, `assign`, `grouping`, `plan`, `reducer`. `merging` and `merging_sessions` keep open windows in a state table.
"""

from streamwork.operators.windows.counts import Counts
from streamwork.operators.windows.each_event import EachEvent
from streamwork.operators.windows.kinds import (
    Assigner,
    Fixed,
    FixedCount,
    Session,
    Sliding,
    SlidingCount,
    Window,
)
from streamwork.operators.windows.operators import AddKey, Merge, Reduce, Whole
from streamwork.operators.windows.plan import Emission, WindowPlan
from streamwork.operators.windows.trigger import Trigger

__all__ = [
    "AddKey",
    "Assigner",
    "Counts",
    "EachEvent",
    "Emission",
    "Fixed",
    "FixedCount",
    "Merge",
    "Reduce",
    "Session",
    "Sliding",
    "SlidingCount",
    "Trigger",
    "Whole",
    "Window",
    "WindowPlan",
]
