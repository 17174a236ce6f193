"""The files of the example, and its parameters."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("FRAUD_DATA") or Path(__file__).parents[2] / "fraud_detection" / "data").absolute()
"""The folder of fraud detection, with the log of transactions and the decisions."""
LOG = DATA / "transactions.log"
DECISIONS = DATA / "decisions.db"

DATABASE = Path(os.environ.get("USAGE_DB") or "usage.db")
"""The database that the job writes. A relative path is resolved against the folder of the job file."""
SINK = os.environ.get("USAGE_SINK") or "upsert"
"""The usage writer: upsert, append or increment."""
LOOK_UP = os.environ.get("USAGE_LOOK_UP") or "batches"
"""batches: transactions are looked up together. events: one by one, as `--tracking acknowledge` requires."""

PATIENCE = 0.020
"""Seconds to wait for a verdict that is missing, or for a lock of the store."""
STALLED = 1.0
"""Seconds after which a query of the store is interrupted, as an outage."""
