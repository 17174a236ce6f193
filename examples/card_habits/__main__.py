"""The experiment: precision and recall of the streaming job, before and after a batch run: python examples/card_habits"""

from __future__ import annotations

import json
import os
import sqlite3
import sys
import tempfile
from pathlib import Path
from typing import Any

from habits.payments import Payment, payments

from streamwork import EventLog
from streamwork.lambdas import run_batch
from streamwork.run.mode import Mode

COUNT = 20_000
"""Payments before the batch run, and after it."""


def main(folder: Path, count: int = COUNT) -> dict[str, Any]:
    os.environ["HABITS_DATA"] = str(folder)
    import job  # it reads the place of its files when it is imported

    truth: dict[str, bool] = {}

    def send(seed: int, name: str) -> list[str]:
        planned = list(payments(seed, count, name))
        truth.update({one.payment.id: one.is_fraud for one in planned})
        with EventLog[Payment](job.LOG) as log:
            log.append([one.payment for one in planned])
        job.card_habits.stream().run(root=folder / "root", until_caught_up=True)
        return [one.payment.id for one in planned]

    send(1, "first")  # averages need some payments
    before = quality(send(2, "before"), truth, job.VERDICTS)
    run_batch(job.card_habits, folder / "root", mode=Mode.LOCAL)
    after = quality(send(3, "after"), truth, job.VERDICTS)
    return {"before": before, "after": after}


def quality(ids: list[str], truth: dict[str, bool], verdicts: Path) -> dict[str, Any]:
    with sqlite3.connect(verdicts) as db:
        found = {payment for (payment,) in db.execute("SELECT payment FROM verdicts WHERE is_fraud")}
    fraud, claimed = {one for one in ids if truth[one]}, {one for one in ids if one in found}
    right = len(fraud & claimed)
    return {
        "payments": len(ids),
        "fraud": len(fraud),
        "claimed": len(claimed),
        "precision": round(right / max(1, len(claimed)), 3),
        "recall": round(right / max(1, len(fraud)), 3),
    }


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    with tempfile.TemporaryDirectory() as place:
        print(json.dumps(main(Path(place)), indent=2))
