"""The places of the example's files, and the limits that several parts share."""

from __future__ import annotations

import os
from pathlib import Path

DATA = Path(os.environ.get("FRAUD_DATA") or Path(__file__).parents[1] / "data").absolute()
"""The folder of the log, the decisions and the planted truth."""
LOG = DATA / "transactions.log"
DECISIONS = DATA / "decisions.db"
TRUTH = DATA / "truth.jsonl"

PARTITIONS = 2
"""Partitions of the log, and so the largest useful parallelism of the job."""
PARALLELISM = int(os.environ.get("FRAUD_PARALLELISM") or 1)
CHECKPOINT_EVERY = os.environ.get("FRAUD_CHECKPOINT_EVERY") or "1s"

ANSWER_WITHIN = 0.020
"""Seconds from the acceptance of a transaction to the answer to the bank."""
