"""Sends transactions to the running job and reports: ``python examples/fraud_detection --rate 200 --seconds 20``."""

import argparse
import json
import signal
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))  # also as `python -m`

from fraud import settings
from fraud.experiment import Experiment, NotRunning, Places, Plan, Stopped
from fraud.presenter import Verdict

from streamwork import StreamworkError

HINT = "start it first: streamwork run examples/fraud_detection/job.py --mode live"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="fraud_detection", description="Send transactions to the fraud detection job."
    )
    parser.add_argument("--rate", type=float, default=200.0, help="transactions per second (200)")
    parser.add_argument("--seconds", type=float, default=20.0, help="how long (20)")
    parser.add_argument("--seed", type=int, default=0, help="of the generator (0)")
    parser.add_argument("--history", type=int, default=6, help="transactions of each card before the start (6)")
    parser.add_argument("--http", type=int, default=0, metavar="CONNECTIONS", help="send by HTTP, not by direct calls")
    parser.add_argument("--default", choices=[one.value for one in Verdict], default="approve", help="answer when late")
    parser.add_argument("--patience", type=float, default=60.0, help="seconds to wait for the job (60)")
    parser.add_argument("--progress", type=Path, metavar="FILE", help="append the figures so far, each second")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    given = parser.parse_args()
    if given.progress and given.http:
        parser.error("--progress is about direct calls: use it without --http")
    plan = Plan(
        rate=given.rate,
        seconds=given.seconds,
        seed=given.seed,
        history=given.history,
        connections=given.http,
        default=Verdict(given.default),
        patience=given.patience,
        progress=given.progress,
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    places = Places(settings.LOG, settings.DECISIONS, settings.TRUTH)
    try:
        found = Experiment(plan, places, lambda line: print(line, file=sys.stderr, flush=True), stop).run()
    except NotRunning as error:
        print(f"{error}; {HINT}", file=sys.stderr)
        return 1
    except Stopped as error:
        print(error, file=sys.stderr)
        return 1
    except StreamworkError as error:  # another gateway writes to the log, for instance
        print(error, file=sys.stderr)
        return 1
    print(json.dumps(found) if given.json else text(found))
    return 0


def text(found: dict[str, Any]) -> str:
    """The report, for reading."""
    latency, answers = found["latency"], found["answers"]
    lines = [
        f"{latency['transactions']:,} transactions by {found['by']}, {found['rate']:g} per second; {found['decided']:,} decided",
        f"from the scheduled time: p50 {latency['p50_ms']} ms, p99 {latency['p99_ms']} ms, p99.9 {latency['p999_ms']} ms, "
        f"max {latency['max_ms']} ms; {latency['share_within']:.2%} within {settings.ANSWER_WITHIN * 1000:g} ms",
        "answers: " + ", ".join(f"{name} {number:,}" for name, number in answers.items()),
        "decisions without the score of: "
        + (", ".join(f"{name} {number:,}" for name, number in found["missing_scores"].items()) or "none"),
        f"{'fraud':16}{'planted':>10}{'flagged':>10}{'recall':>10}{'precision':>11}",
    ]
    for name, one in found["quality"].items():
        shares = ["-" if one[rate] is None else f"{one[rate]:.1%}" for rate in ("recall", "precision")]
        lines.append(f"{name:16}{one['planted']:>10,}{one['flagged']:>10,}{shares[0]:>10}{shares[1]:>11}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
