"""The way of a checkpoint: fence, plan, compute, prepare, commit, complete, recover.

`Driver` walks an epoch through its numbered steps; the files of `Store` say what counts; `judge` is the rule by which
a sink
takes an epoch. Knows no Spark: computing is a function that a host passes in. Imports components, job, state and
engine.
"""

from streamwork.epoch.commit import Verdict, judge
from streamwork.epoch.driver import Compute, Driver, Listener, Step
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.store import Identity, Store

__all__ = ["Compute", "Driver", "Identity", "Listener", "Manifest", "Plan", "Step", "Store", "Verdict", "judge"]
