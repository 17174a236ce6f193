"""The benchmark of recovery kills and restarts, checks before it reports, and reports every number. Without Spark, for speed."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prompt import wait_for_snapshots
from streamwork.__main__ import cli
from streamwork.bench import recovery as bench_recovery
from streamwork.bench import recovery_job as bench_recovery_job
from streamwork.bench.recovery import Place, Sizes
from streamwork.run.mode import Mode

QUICK = Sizes(
    keys=200, slice=20, short=1, long=3, repeats=1, many_keys=1_000, many_slices=2, restores=1, spark_repeats=0
)


@pytest.mark.slow
def test_a_small_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wait_for_snapshots(monkeypatch)  # else histories are made until one is there
    told: list[str] = []
    numbers = bench_recovery.run(tmp_path, QUICK, told.append)
    for name in ("kill_to_new_epoch_s", "kill_to_new_epoch_without_spark_s", "ratio_long_vs_short"):
        assert numbers[name] > 0
    assert numbers["settings"]["checkpoints"] == {"short": 10, "long": 30}
    for parts in numbers["seconds"]["local"].values():
        assert all(len(spread["repeats"]) == QUICK.repeats for spread in parts.values())
        seconds = {part: spread["median"] for part, spread in parts.items()}
        assert seconds["spark"] == 0
        whole = sum(seconds[part] for part in ("process", "imports", "recovery", "first_epoch"))
        assert 0.5 * seconds["total"] < whole <= seconds["total"] + 0.001, "the parts do not make the whole"
        assert sum(seconds[part] for part in bench_recovery_job.TIMED) <= seconds["recovery"]
    assert numbers["restore_alone"]["rows"]["median"] >= QUICK.many_keys
    assert len(told) > 5
    assert not list(tmp_path.iterdir())


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path / "place", keys=30, size=10)
    made.make(4)
    yield made
    made.kill()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("tamper", "complaint"),
    [
        ("UPDATE usage SET seen = seen + 1 WHERE rowid = 20", "the rows are wrong"),
        ("DELETE FROM usage WHERE rowid = 20", "the rows are wrong"),
        ("UPDATE streamwork_ledger SET manifest_sha256 = 'x'", "the ledger does not name"),
    ],
)
def test_no_speed_for_a_wrong_result(place: Place, tamper: str, complaint: str) -> None:
    with closing(sqlite3.connect(place.folder / "out.db")) as db, db:
        db.execute(tamper)
    with pytest.raises(AssertionError, match=complaint):
        place.check()


@pytest.mark.slow
def test_no_speed_without_a_new_epoch(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place, "append", lambda checkpoints: None)
    with pytest.raises(AssertionError, match="ended before it had a new epoch"):
        place.life(Mode.LOCAL)


def test_the_command_prints_one_object_and_tells_how_far_it_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(note: Any) -> dict[str, Any]:
        note("making a history")
        return {"ratio_long_vs_short": 1.0}

    monkeypatch.setattr(bench_recovery, "run", run)
    printed = CliRunner().invoke(cli, ["bench", "recovery", "--json"], catch_exceptions=False)
    assert printed.stdout.startswith("{") and '"ratio_long_vs_short"' in printed.stdout
    assert printed.stderr == "making a history\n"
