"""The way of a checkpoint: fence, plan, compute, prepare, commit, complete, recover, retain.

`Driver` walks an epoch through its numbered steps, `Recovery` a start through its own; the files of `Store` say what counts;
`judge` is the rule by which a sink takes an epoch. Knows no Spark: computing is what a host passes in.
"""

from streamwork.components.commit_rule import Verdict, judge
from streamwork.epoch.driver import Driver
from streamwork.epoch.epoch import Epoch
from streamwork.epoch.host import Host
from streamwork.epoch.manifest import Manifest, Plan
from streamwork.epoch.participant import Participant
from streamwork.epoch.phases import Listener, Phase
from streamwork.epoch.starting import Started
from streamwork.epoch.store import Identity, Store

__all__ = [
    "Driver",
    "Epoch",
    "Host",
    "Identity",
    "Listener",
    "Manifest",
    "Participant",
    "Plan",
    "Started",
    "Phase",
    "Store",
    "Verdict",
    "judge",
]
