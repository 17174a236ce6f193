"""Makes the package of the fraud detection example importable, without its folder on the path: it has a `job.py`."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

FRAUD = Path(__file__).parents[2] / "examples" / "fraud_detection"

sys.path.insert(0, str(FRAUD))
importlib.import_module("fraud")
sys.path.remove(str(FRAUD))
