"""The benchmark of live mode checks decisions before it reports, and finds the highest rate that is within the limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from commands import call
from streamwork.bench import live
from streamwork.bench.live import Sizes, Wrong, highest, within
from streamwork.bench.live_system import Load, System, Victim
from streamwork.bench.plot import plot
from streamwork.errors import JobFailed

TINY = Sizes(
    mode="local",
    rate=60.0,
    seconds=3.0,
    victims=("driver",),
    killed_seconds=4.0,
    rising=(80.0,),
    http_rate=60.0,
    http_seconds=2.0,
    connections=4,
    microbatch_rates=(),
    checkpoint_every="50ms",
)


def row(rate: float, p99: float | None, decided: int = 100) -> dict[str, Any]:
    return {"rate": rate, "p99_ms": p99, "decided": decided, "transactions": 100}


def test_the_highest_rate_is_the_last_before_the_first_miss() -> None:
    assert highest([row(1000, 5), row(2000, 20), row(4000, 21), row(8000, 3)]) == 2000
    assert highest([row(2000, 9), row(1000, 25)]) == 0
    assert highest([row(1000, 5), row(2000, 5, decided=99), row(4000, 5)]) == 1000
    assert not within(row(1000, None)) and highest([]) == 0


def report(decided: int = 100, recall: float | None = 0.9, precision: float | None = 0.9, planted: int = 5) -> Any:
    quality = {"planted": planted, "recall": recall, "precision": precision}
    latency = {"transactions": 100}
    return {"latency": latency, "decided": decided, "quality": {"all": quality}, "missing_scores": {"count": 7}}


def test_wrong_decisions_are_no_result() -> None:
    assert live._checked(report()) == report()
    for wrong in (report(decided=99), report(recall=0.5), report(precision=0.5), report(precision=None)):
        with pytest.raises(Wrong):
            live._checked(wrong)
    with pytest.raises(Wrong, match="too short"):
        live._checked(report(planted=0, recall=None))
    with pytest.raises(Wrong, match="7 scores came too late"):
        live._checked(report(recall=0.6))
    assert live._checked(report(recall=0.6), live.QUICK.least_recall)


def test_a_wrong_result_is_an_error_with_a_code(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(**_: Any) -> None:
        raise Wrong("99 of 100 transactions were decided")

    monkeypatch.setattr(live, "run", wrong)
    code, out, _ = call("bench", "live", "--quick", "--json")
    assert code == 1 and json.loads(out)["error"]["code"] == "SW-BENCH-WRONG" and "99 of 100" in out

    def failed(**_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(live, "run", failed)
    code, out, errors = call("bench", "live", "--quick")
    assert (code, out) == (1, "") and "a check of the results has failed: raise AssertionError" in errors


@pytest.mark.slow
def test_a_job_that_does_not_start_is_not_waited_for(tmp_path: Path) -> None:
    with System(tmp_path / "system", "unknown", "1s") as system, pytest.raises(JobFailed, match="unknown"):
        system.send(Load(rate=10, seconds=1))


@pytest.mark.slow
def test_a_small_run_on_the_local_host(tmp_path: Path) -> None:
    """Decisions come with checkpoints there: no rate is within the limit."""
    notes: list[str] = []
    numbers = live.run(tmp_path, TINY, notes.append)
    direct, http, killed = numbers["direct"], numbers["http"], numbers["killed"]["driver"]
    assert direct["transactions"] == direct["decided"] == 180 and http["decided"] == 120
    assert numbers["max_rate_within_20ms"] == 0 and numbers["p99_ms"] == direct["p99_ms"] > 20
    assert 0 < direct["p50_ms"] <= direct["p99_ms"] <= direct["p999_ms"] <= direct["max_ms"]
    assert killed["decided"] < killed["transactions"] == 240, "a kill costs decisions"
    assert plot("live", numbers) is not None and len(notes) > 5
    assert list(tmp_path.iterdir()) == [], "nothing is left"


@pytest.mark.slow
def test_without_a_kill_the_same_check_fails(tmp_path: Path) -> None:
    """The control."""
    with System(tmp_path / "system", "local", "50ms") as system:
        assert [process.pid for process in system.victims(Victim.DRIVER)]
        with pytest.raises(JobFailed, match="no process of kind task"):
            system.kill(Victim.TASK)
        with system.killing(Victim.DRIVER, after=60.0) as killed:
            found = system.send(Load(rate=30, seconds=2))
    assert killed == [] and found["decided"] == found["latency"]["transactions"]
