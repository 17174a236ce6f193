"""The parts of examples/system_usage, imported without its folder on the path: its job file is named like those of other tests."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[1] / "examples" / "system_usage"
sys.path.insert(0, str(FOLDER))
try:
    import compare
    import move
    from usage.analyser import UsageAnalyser
    from usage.build import build
    from usage.decisions import Decisions, StoreUnavailable
    from usage.events import Transaction
    from usage.look_up import LookUp
    from usage.scene import Scene, transaction, truth, verdict
    from usage.writers import TABLE, WRITERS
finally:
    sys.path.remove(str(FOLDER))

__all__ = [
    "FOLDER",
    "TABLE",
    "WRITERS",
    "Decisions",
    "LookUp",
    "Scene",
    "StoreUnavailable",
    "Transaction",
    "UsageAnalyser",
    "build",
    "compare",
    "move",
    "transaction",
    "truth",
    "verdict",
]
