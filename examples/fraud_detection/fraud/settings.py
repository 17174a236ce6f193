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
HANGS = os.environ.get("FRAUD_HANGS") or "1s"
"""An analyser that works on one transaction for so long is killed and started again."""
SCORES_WITHIN = float(os.environ.get("FRAUD_SCORES_WITHIN") or 0.010)
"""Seconds from the first score of a transaction to its decision, if a score is missing."""

ANSWER_WITHIN = 0.020
"""Seconds from the acceptance of a transaction to the answer to the bank."""
