"""The benchmark of checkpoint intervals runs, and reports nothing if a row is wrong."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from streamwork.bench import interval as bench
from streamwork.bench.contest import Wrong
from streamwork.bench.interval import check
from streamwork.bench.interval_job import Counting, Tally, applied, build
from streamwork.bench.open_loop import Rows, Sender, Use
from streamwork.components import Instance
from streamwork.log import EventLog
from streamwork.run.mode import Mode
from streamwork.run.options import RunOptions
from streamwork.run.runner import run

SMALLEST = msgspec.structs.replace(bench.QUICK, intervals=("200ms",), cards=5, rate=200, backlog=200)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    told: list[str] = []
    numbers = bench.run(tmp_path, SMALLEST, told.append)
    found = numbers["intervals"]["200ms"]
    assert found["events_per_s"] > 0 and 0 < found["p50_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert found["computed_again"] >= 0, "none, if the checkpoint was prepared when the kill came"
    assert len(told) == 3 and not list(tmp_path.iterdir())


def small(folder: Path) -> Counter[str]:
    """A folder in which some events were counted, and how many came of each card."""
    with EventLog.create(folder / "uses.log", Use, key="card", partitions=2) as log:
        sender = Sender(log, SMALLEST.cards, SMALLEST.rate)
        sender.append(20)
    options = RunOptions.parse(mode=Mode.LOCAL, root=folder / "root", until_caught_up=True)
    run(build(folder, folder / "uses.log"), options)
    return sender.cards


def test_no_figure_for_wrong_rows(tmp_path: Path) -> None:
    """The negative controls: an event too many, and one that was counted with another card."""
    cards = small(tmp_path)
    assert applied(tmp_path)[0] == 20
    check(tmp_path, cards)
    card = next(iter(cards))
    with pytest.raises(Wrong, match="20 rows of 20 events, 21 events were sent"):
        check(tmp_path, cards + Counter({card: 1}))
    with pytest.raises(Wrong, match="the counts of 2 cards are wrong"):
        other = next(one for one in cards if one != card)
        check(tmp_path, Counter({**cards, card: cards[card] + 1, other: cards[other] - 1}))


def test_latency_is_that_of_the_first_look_at_a_row(tmp_path: Path) -> None:
    small(tmp_path)
    job = subprocess.Popen([sys.executable, "-c", ""])
    rows = Rows(tmp_path, job)
    rows._seen = [(2_000_000_000.0, 5), (2_000_000_001.0, 20)]
    late = rows.latencies(0.0)
    assert len(late) == rows.since(0.0) == 20 and rows.since(3e9) == 0
    assert late.max() - late.min() >= 1_000, "later rows were seen a second later"
    job.wait()
    with pytest.raises(Exception, match="SW-BENCH-FAILED"):
        (tmp_path / "job.txt").write_text("why")
        rows.until(lambda: False, "nothing")


def test_events_of_several_processes_are_added_up(tmp_path: Path) -> None:
    first = Tally(tmp_path / "applied")
    for _ in range(3):
        first.add()
    code = (
        "import sys; from pathlib import Path; from streamwork.bench.interval_job import Tally\n"
        "Tally.of(Path(sys.argv[1])).add()"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path / "applied")], check=True)
    count, began = applied(tmp_path)
    assert count == 4 and 0 < began < float("inf")
    assert applied(tmp_path / "other") == (0, float("inf"))
    operator = Counting(tmp_path / "applied")
    operator.setup_instance(Instance(0, 1))
    assert operator.__getstate__()["_tally"] is None, "a worker has its own"
