"""The parts of examples/system_usage, imported without its folder on the path: its job file is named like those of other tests."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples" / "system_usage"
sys.path.insert(0, str(FOLDER))
try:
    import compare
    import move
    from usage import decisions, scene
    from usage.analyser import Totals, UsageAnalyser
    from usage.build import OUTAGE, build
    from usage.decisions import Decisions, StoreUnavailable
    from usage.events import Judged, Transaction, Usage
    from usage.look_up import LookUp, LookUpBatches
    from usage.scene import Scene, transaction, truth, verdict
    from usage.writers import TABLE, WRITERS
finally:
    sys.path.remove(str(FOLDER))

__all__ = [
    "FOLDER",
    "OUTAGE",
    "TABLE",
    "WRITERS",
    "Decisions",
    "Judged",
    "LookUp",
    "LookUpBatches",
    "Scene",
    "StoreUnavailable",
    "Totals",
    "Transaction",
    "Usage",
    "UsageAnalyser",
    "build",
    "compare",
    "decisions",
    "move",
    "scene",
    "transaction",
    "truth",
    "verdict",
]
