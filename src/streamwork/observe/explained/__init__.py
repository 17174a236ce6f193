"""How a checkpoint works, shown with the files of one real epoch.

`protocol` has the words of each step, `files` finds what a step has written, `reading` puts the model together. What the next start
does after a kill is decided by the policy of a start (`epoch.recovery.next_start`), not written down here.
"""

from streamwork.observe.explained.model import CrashRow, ExplainedEpoch, LedgerFact, Step, StepFile
from streamwork.observe.explained.reading import explain_epoch

__all__ = ["CrashRow", "ExplainedEpoch", "LedgerFact", "Step", "StepFile", "explain_epoch"]
