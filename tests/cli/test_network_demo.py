"""The parts of ``streamwork demo`` without processes: faults by a seed, recoveries, the verdict, what is shown."""

from __future__ import annotations

import io
import json
import signal
import subprocess
import sys
import time
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from streamwork.cli import examples
from streamwork.cli.examples import example
from streamwork.cli.main import main
from streamwork.cli.network import command, tied
from streamwork.cli.network.counts import Counts
from streamwork.cli.network.incident import Incident, seen
from streamwork.cli.network.lines import Lines
from streamwork.cli.network.reading import ANALYSERS, JobView, Sent, Snapshot, Totals
from streamwork.cli.network.schedule import ROOM, Fault, Job, Victim, schedule
from streamwork.cli.network.screen import picture, spark
from streamwork.cli.network.state import Note, State
from streamwork.cli.network.summary import Report, Summary, summarise, summary_lines
from streamwork.cli.network.verdict import judge
from streamwork.errors import WrongUse

# ---- the schedule -----------------------------------------------------------------------------------------------------


def faults(seconds: float, seed: int = 0) -> list[Fault]:
    return list(schedule(seconds, seed))


def test_a_seed_gives_the_same_faults() -> None:
    assert faults(90, 7) == faults(90, 7) != faults(90, 8)


def test_a_run_of_the_default_length_meets_every_fault_and_ends_in_peace() -> None:
    for seed in range(50):
        found = faults(90, seed)
        assert {fault.victim for fault in found} == set(Victim)
        assert all(fault.at <= 90 - ROOM for fault in found)
        assert all(after.at - before.at > 7 for before, after in pairwise(found))


def test_a_short_run_has_an_analyser_and_a_driver_killed() -> None:
    assert [fault.victim for fault in faults(30)] == [Victim.ANALYSER, Victim.USAGE_DRIVER]
    assert faults(10) == []


def test_a_run_without_end_has_faults_without_end() -> None:
    found = list(islice(schedule(None, 1), 25))
    assert [fault.victim for fault in found[:5]] != [fault.victim for fault in found[5:10]]
    assert all(set(Victim) == {fault.victim for fault in found[start : start + 5]} for start in range(0, 25, 5))


# ---- recoveries -------------------------------------------------------------------------------------------------------


def snapshot(at: float = 0.0, *, fence: int = 1, checkpoint: int = 5, running: bool = True, **more: Any) -> Snapshot:
    processes = more.pop("processes", ANALYSERS)
    jobs = {job: JobView(running, fence, checkpoint, 1.0, processes) for job in Job}
    return Snapshot(at=at, jobs=jobs, **{"decisions": 100, "scored": dict.fromkeys(ANALYSERS, 100), **more})


def incident(victim: Victim, what: str = "count, process 7") -> Incident:
    return Incident(victim=victim, what=what, at=0.0, traffic=9.0, before=snapshot())


def recovery(victim: Victim, *found: Snapshot) -> float | None:
    one = incident(victim)
    for now in found:
        one = seen(one, now)
    return one.recovered


def test_an_analyser_is_back_when_a_decision_has_its_score() -> None:
    others = ANALYSERS[:2]
    gone = snapshot(1.0, processes=others, decisions=120, scored=dict.fromkeys(ANALYSERS, 110))
    again = snapshot(2.0, decisions=150, scored={**dict.fromkeys(others, 150), "count": 110})
    assert recovery(Victim.ANALYSER, gone, again, again) is None, "a score of before the kill was on the way"
    scores = snapshot(3.0, decisions=160, scored=dict.fromkeys(ANALYSERS, 160))
    assert recovery(Victim.ANALYSER, gone, again, scores) == 3.0
    assert recovery(Victim.ANALYSER, gone, again, scores, msgspec.structs.replace(scores, at=9.0)) == 3.0


@pytest.mark.parametrize("victim", [Victim.TASK, Victim.FRAUD_DRIVER])
def test_a_task_or_driver_is_back_when_a_new_fence_decides(victim: Victim) -> None:
    old = snapshot(1.0, decisions=130)
    down = snapshot(2.0, running=False, fence=2, decisions=130)
    up, decides = snapshot(3.0, fence=2, decisions=130), snapshot(4.0, fence=2, decisions=131)
    assert recovery(victim, old, down, up) is None
    assert recovery(victim, old, down, up, decides) == 4.0


def test_a_job_in_microbatch_is_back_with_the_next_checkpoint() -> None:
    assert recovery(Victim.USAGE_DRIVER, snapshot(1.0, checkpoint=6)) is None, "of the killed driver"
    found = [snapshot(2.0, fence=2, checkpoint=6), snapshot(3.0, fence=2, checkpoint=7)]
    assert recovery(Victim.USAGE_DRIVER, *found) == 3.0 and recovery(Victim.USAGE_DRIVER, *found[:1]) is None
    assert recovery(Victim.WORKER, snapshot(1.0), snapshot(2.0)) is None
    assert recovery(Victim.WORKER, snapshot(1.0), snapshot(2.0, checkpoint=6)) == 2.0


# ---- the verdict ------------------------------------------------------------------------------------------------------

RIGHT = Counts(
    logged=("a", "b", "c", "d"),
    verdicts={"a": True, "b": False, "c": True},
    rows=(("a", "fraud"), ("b", "no fraud"), ("c", "unknown"), ("d", "unknown")),
    totals=Totals(4, 1, 2),
    planted=frozenset({"a", "d", "not sent"}),
)


def test_right_totals() -> None:
    verdict = judge(RIGHT)
    assert verdict.right and not verdict.problems
    usage, fraud = verdict.usage, verdict.fraud
    assert (usage.counted, usage.missing, usage.repeated, usage.fraudulent, usage.unknown) == (4, 0, 0, 1, 2)
    assert usage.decided_later == 1 and usage.store_fraudulent == 2
    assert (fraud.planted, fraud.caught, fraud.false_alarms, fraud.undecided) == (2, 1, 1, 1)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"rows": RIGHT.rows[:3], "totals": Totals(3, 1, 1)}, "has not counted 1 transaction of the log"),
        ({"rows": (*RIGHT.rows, RIGHT.rows[0]), "totals": Totals(5, 2, 2)}, "counted 1 transaction more than once"),
        ({"rows": (*RIGHT.rows, ("x", "unknown")), "totals": Totals(5, 1, 3)}, "that are not in the log"),
        ({"rows": (("a", "no fraud"), *RIGHT.rows[1:]), "totals": Totals(4, 0, 2)}, "contradict the result store"),
        ({"rows": (*RIGHT.rows[:3], ("d", "no fraud")), "totals": Totals(4, 1, 1)}, "contradict the result store"),
        ({"totals": Totals(5, 1, 2)}, "its rows add up to transactions 4, fraudulent 1, unknown 2"),
        ({"totals": Totals(4, 2, 2)}, "the numbers of system usage are transactions 4, fraudulent 2"),
        ({"verdicts": {**RIGHT.verdicts, "x": True}}, "decisions about 1 transaction that"),
        ({"logged": (*RIGHT.logged, "a")}, "two transactions with the same id"),
    ],
)
def test_a_wrong_total_is_named(change: dict[str, Any], problem: str) -> None:
    verdict = judge(msgspec.structs.replace(RIGHT, **change))
    assert not verdict.right and any(problem in one for one in verdict.problems), verdict.problems


def test_an_empty_run_is_not_right() -> None:
    assert not judge(Counts(logged=(), verdicts={}, rows=(), totals=Totals(), planted=frozenset())).right


# ---- what is shown ----------------------------------------------------------------------------------------------------

REPORT = Report(
    rate=200.0,
    latency={"transactions": 4, "p50_ms": 4.0, "p99_ms": None, "share_within": 0.75},
    answers={"in time": 3, "default: late": 0, "default: missing": 1},
    missing_scores={"count": 2},
)


def summary(counts: Counts = RIGHT, incidents: tuple[Incident, ...] = (), report: Report = REPORT) -> Summary:
    return summarise(0, judge(counts), [report], incidents, snapshot(), (2, 1.5))


def test_the_summary_is_right_only_if_everything_is() -> None:
    lines = summary_lines(summary())
    assert lines[-1] == "every total is right" and any("p99 - ms, 75.0% within 20 ms" in line for line in lines)
    assert not summary(msgspec.structs.replace(RIGHT, totals=Totals(5, 1, 2))).right
    unanswered = msgspec.structs.replace(REPORT, answers={**REPORT.answers, "in time": 2})
    assert summary(report=unanswered).problems == ["3 of 4 transactions were answered"]
    lost = incident(Victim.TASK, "worker of fraud-detection, process 9")
    (problem,) = summary(incidents=(lost,)).problems
    assert problem == "fraud-detection has not recovered from kill -9 of worker of fraud-detection, process 9"
    again = msgspec.structs.replace(lost, recovered=2.0, repeated=3, counted=10)
    assert not summary(incidents=(again,)).right
    assert "  00:09  kill -9 worker of fraud-detection, process 9: back after 2.0 s, 10 counted, 3 repeated" in (
        summary_lines(summary(incidents=(again,)))
    )


def test_the_summary_is_json() -> None:
    found = json.loads(msgspec.json.encode(summary()))
    assert found["right"] is True and found["usage"]["missing"] == 0 and found["faults"] == []


def state(now: Snapshot | None = None, *incidents: Incident) -> State:
    sent = Sent(
        seconds=9.0,
        sent=1800,
        answers={"in time": 1700, "default: late": 90, "default: missing": 10},
        planted=50,
        caught=44,
        flagged=45,
        missing_scores={},
        latency={"decisions": 900, "p50_ms": 5.25, "p99_ms": 120.4, "max_ms": None},
    )
    now = msgspec.structs.replace(now or snapshot(61.0), sent=sent, logged=9_000, totals=Totals(8_600, 43, 2))
    return State("running", 9.0, 90.0, now, incidents, (0.0, 200.0, 100.0), (0.0, 800.0))


def drawn(shown: State | None, notes: list[Note], width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, record=True, force_terminal=True)
    console.print(picture(shown, notes, height))
    return console.export_text().rstrip("\n").split("\n")


NOTES = [Note(number, f"event {number}") for number in range(30)]


@pytest.mark.parametrize(("width", "height"), [(80, 24), (100, 30), (200, 60)])
@pytest.mark.parametrize("shown", [None, state()], ids=["start", "running"])
def test_the_picture_fits_the_terminal(shown: State | None, width: int, height: int) -> None:
    lines = drawn(shown, NOTES, width, height)
    assert len(lines) == height and all(len(line) <= width for line in lines)
    assert "event 29" in "".join(lines), "the last event is visible"


def test_nothing_is_cut_at_80_columns() -> None:
    text = "\n".join(drawn(state(), [], 80, 24))
    assert "…" not in text
    for part in (
        "p99    120 ms",
        "44 of 50 planted caught (88%)",
        "8,600 of 9,000 in the log   400 behind",
        "2 unknown",
    ):
        assert part in text
    assert text.count("●") == 3 and "✗" not in text and "down" not in text


def test_a_killed_analyser_and_a_killed_driver_are_visible() -> None:
    text = "\n".join(drawn(state(None, incident(Victim.ANALYSER), incident(Victim.USAGE_DRIVER)), [], 80, 24))
    assert text.count("●") == 2 and text.count("✗") == 1 and text.count("down") == 1
    assert "\n".join(drawn(state(None, incident(Victim.TASK)), [], 80, 24)).count("✗") == 3


def test_bars_are_relative_to_the_largest() -> None:
    assert spark([]) == "" and spark([0, 0]) == "▁▁" and spark([0, 4, 8]) == "▁▅█"


@pytest.mark.parametrize("err", [False, True])
def test_lines_come_once_a_second_and_with_events(capsys: pytest.CaptureFixture[str], err: bool) -> None:
    lines = Lines(err)
    lines.note(Note(60.0, "kill -9 count, process 7", good=False))
    for at in (61.0, 61.5, 61.9, 62.1):
        shown = state(snapshot(at, checkpoint=int(at * 10)))
        lines.update(shown)
    out, error = capsys.readouterr()
    assert (out, error)[not err] == ""
    found = (error if err else out).splitlines()
    assert found[0] == "01:00  kill -9 count, process 7" and len(found) == 3
    assert found[1] == (
        "01:01  100 decisions/s | p50 5.2 p99 120 ms (limit 20) | fraud 44/50 caught | "
        "usage 8,600/9,000, fraudulent 43, unknown 2 | checkpoints 610 and 610"
    )


# ---- processes --------------------------------------------------------------------------------------------------------


def test_a_missing_example_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert (example("fraud_detection") / "job.py").is_file()
    monkeypatch.setattr(examples.streamwork, "__file__", str(tmp_path / "lib" / "streamwork" / "__init__.py"))
    with pytest.raises(WrongUse, match="SW-EXAMPLE-MISSING") as error:
        example("fraud_detection")
    assert "make demo" in error.value.action


def test_a_child_ends_with_its_parent(tmp_path: Path) -> None:
    """Also if the parent is killed with -9."""
    out = tmp_path / "child"
    sleeper = f"import os, time; open({str(out)!r}, 'w').write(str(os.getpid())); time.sleep(60)"
    words = [sys.executable, "-I", tied.__file__, "PARENT", "0", sys.executable, "-c", sleeper]
    start = f"import os, subprocess, time; w = {words!r}; w[3] = str(os.getpid()); subprocess.Popen(w); time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", start])
    try:
        _until(lambda: out.exists() and bool(out.read_text()))
        child = int(out.read_text())
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    _until(lambda: not _runs(child))


def _runs(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _until(done: Any, seconds: float = 30.0) -> None:
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end
        time.sleep(0.02)


# ---- the command ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", [[], ["network"], ["--seconds", "30"]])
def test_demo_is_the_network_and_its_exit_code_is_the_verdict(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for counts, code in ((RIGHT, 0), (msgspec.structs.replace(RIGHT, totals=Totals(5, 1, 2)), 1)):
        monkeypatch.setattr(command, "run_demo", lambda *_, counts=counts: summary(counts))
        with pytest.raises(SystemExit) as end:
            main(["demo", *arguments, "--json"])
        assert end.value.code == code and json.loads(capsys.readouterr().out)["right"] is (code == 0)
        with pytest.raises(SystemExit) as end:
            main(["demo", *arguments])
        assert end.value.code == code
        assert ("WRONG: the numbers of system usage" in capsys.readouterr().out) is (code == 1)


def test_the_folder_to_keep_must_be_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as end:
        main(["demo", "--keep", str(tmp_path)])
    assert end.value.code == 2 and "SW-DEMO-FOLDER" in capsys.readouterr().err


def test_the_first_job_is_a_demo_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["demo", "card-usage", "--help"])
    assert end.value.code == 0 and "--folder" in capsys.readouterr().out
    with pytest.raises(SystemExit) as end:
        main(["demo", "--help"])
    text = capsys.readouterr().out
    assert end.value.code == 0 and "network" in text and "card-usage" in text
