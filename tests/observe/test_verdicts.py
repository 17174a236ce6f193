"""Verdicts are a pure function of a job's signs. A queue with known rates is the oracle.

Every rule has a control: the same signs without the fault give another verdict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import ask, call
from sample import Summing, payments, run_job
from streamwork import Job, ListSource, SqliteSink
from streamwork.cli.status_text import verdict_lines
from streamwork.engine.vitals import EdgeVital, Episode, InstanceVital, TaskVital
from streamwork.epoch.history.lag import Sample
from streamwork.epoch.history.values import Result, Row, Seconds, StateSize
from streamwork.observe.verdicts import Kind, Signs, judge
from streamwork.observe.verdicts.words import interval_option
from streamwork.run.record import Failed, RunRecord

BEGAN = 1_700_000_000.0
Rate = Callable[[float], float]


def queue(seconds: int, incoming: Rate, capacity: Rate, source: str = "in", first: int = 0) -> list[Sample]:
    """A source sampled every second: what comes, and what is read at most."""
    end, read, found = float(first), 0.0, []
    for second in range(seconds + 1):
        found.append(Sample(source, BEGAN + second, round(end), round(read)))
        end += incoming(second)
        read = min(end - incoming(second) / 2, read + capacity(second)) if end > read else read
    return found


def signs(samples: list[Sample], **more: object) -> Signs:
    run = RunRecord(fence=3, mode="live", checkpoint_every=1.0)
    now = samples[-1].at if samples else BEGAN + 600
    return msgspec.structs.replace(
        Signs(job="job", root="/root", now=now, samples=samples, run=run, units={"in": "events"}), **more
    )


def kinds(found: Signs) -> list[Kind]:
    return [one.kind for one in judge(found)]


def row(epoch: int, outcome: Result = Result.COMPLETED, started: float = 0.0, note: str = "", **seconds: float) -> Row:
    return Row(
        epoch=epoch,
        fence=epoch,
        outcome=outcome,
        started=started or BEGAN + epoch,
        seconds=Seconds(**seconds),
        note=note,
    )


# ---- the flow -----------------------------------------------------------------------------------------------------


@given(rate=st.integers(1, 100_000), spare=st.floats(1.1, 50))
def test_a_queue_with_enough_capacity_keeps_up(rate: int, spare: float) -> None:
    assert kinds(signs(queue(300, lambda _: rate, lambda _: rate * spare))) == [Kind.KEEPING_UP]


@given(rate=st.integers(100, 100_000), short=st.floats(0.1, 0.8), calm=st.integers(60, 200))
def test_a_queue_that_lacks_capacity_falls_behind_since_it_does(rate: int, short: float, calm: int) -> None:
    found = judge(signs(queue(calm + 120, lambda _: rate, lambda at: rate * (2 if at < calm else short))))
    assert [one.kind for one in found] == [Kind.FALLING_BEHIND]
    (one,) = found
    assert one.since is not None and BEGAN + calm <= one.since <= BEGAN + calm + 60
    assert one.caught_up_at is None and "does not catch up" in one.text and "parallelism" in one.advice
    assert one.command == "streamwork stop --root /root job"
    assert one.behind is not None and one.behind == pytest.approx(rate * (1 - short) * 120, rel=0.1)
    assert one.behind_seconds == pytest.approx(one.behind / rate, rel=0.1)


@given(rate=st.integers(10, 10_000), spare=st.integers(2, 10), backlog=st.integers(200, 2_000))
def test_a_backlog_is_caught_up_when_the_verdict_says(rate: int, spare: int, backlog: int) -> None:
    """The queue itself is the oracle: it is run on until it has caught up."""
    every = queue(4_000, lambda _: rate, lambda _: rate * spare, first=rate * backlog)
    over = next(one.at for one in every if one.lag <= rate)
    seen = [one for one in every if one.at <= BEGAN + 20]
    (one,) = judge(signs(seen))
    assert one.kind is Kind.FALLING_BEHIND and one.caught_up_at == pytest.approx(over, abs=0.1 * (over - BEGAN) + 3)
    assert "caught up at" in one.text and not one.command


@given(rate=st.integers(100, 10_000), pause=st.integers(20, 60))
def test_a_burst_that_is_soon_processed_is_nothing(rate: int, pause: int) -> None:
    """Control for thrashing and for falling behind: bursts, each done within seconds."""
    found = queue(300, lambda at: rate * pause if at % pause == 0 else 0, lambda _: rate * pause)
    assert kinds(signs(found)) == [Kind.KEEPING_UP]


def thrash(incoming: Rate, capacity: Rate) -> str:
    found = judge(signs(queue(600, incoming, capacity)))
    assert found[0].kind is Kind.THRASHING, found
    assert found[0].command and found[0].since is not None
    return found[0].text


@given(rate=st.integers(1_000, 50_000), times=st.integers(4, 5))
def test_thrashing_tells_growing_traffic_from_a_slow_component(rate: int, times: int) -> None:
    def in_waves(at: float) -> bool:
        return at % 150 >= 120

    grew = thrash(lambda at: rate * (times if in_waves(at) else 1), lambda _: rate * 2)
    assert "traffic grew" in grew and "slowed" not in grew
    slowed = thrash(lambda _: rate, lambda at: rate / times if in_waves(at) else rate * 2)
    assert "slowed" in slowed and "traffic grew" not in slowed


def test_the_beginning_of_a_line_is_no_backlog() -> None:
    found = [Sample("in", BEGAN + 10 * n, 1_000, 960) for n in range(30)]
    assert kinds(signs(found, units={"in": "bytes"})) == [Kind.KEEPING_UP]
    assert kinds(signs(found)) == [Kind.FALLING_BEHIND], "control: 40 events are one"


def edge(sender: str, receiver: str, policy: str = "sources", full: bool = True, **more: object) -> EdgeVital:
    known = EdgeVital(
        sender=sender, receiver=receiver, policy=policy, events=900, bytes=9_000, since=BEGAN + 590 if full else None
    )
    return msgspec.structs.replace(known, **more)


def task(*edges: EdgeVital, instances: tuple[InstanceVital, ...] = ()) -> TaskVital:
    return TaskVital(fence=3, task="0", pid=42, host="here", at=BEGAN + 600, instances=instances, edges=edges)


def test_pressure_names_who_lags_and_whom_it_stops() -> None:
    chain = [edge("in[0]", "a[0]"), edge("a[0]", "b[1]"), edge("a[0]", "c[0]", full=False)]
    (one,) = judge(signs([], tasks=[task(*chain)]))
    assert (one.kind, one.component, one.instance, one.stops) == (Kind.UNDER_PRESSURE, "b", 1, ("a[0]", "in[0]"))
    assert one.since == BEGAN + 590 and "stops the sources" in one.text
    assert kinds(signs([], tasks=[task(edge("a[0]", "b[1]", full=False))])) == [Kind.KEEPING_UP]


def test_where_events_are_dropped_nothing_is_stopped() -> None:
    (one,) = judge(signs([], tasks=[task(edge("in[0]", "a[0]", "drop", dropped=17))]))
    assert one.stops == () and "dropped: 17" in one.text


def test_pressure_in_a_channel_that_comes_back_is_thrashing() -> None:
    waves = tuple(Episode(BEGAN + 100 * n, BEGAN + 100 * n + 20) for n in range(1, 5))
    found = judge(signs([], tasks=[task(edge("in[0]", "a[0]", full=False, episodes=waves))]))
    assert [one.kind for one in found] == [Kind.THRASHING] and found[0].component == "a"
    few = task(edge("in[0]", "a[0]", full=False, episodes=waves[:2]))
    assert kinds(signs([], tasks=[few])) == [Kind.KEEPING_UP]


def test_pressure_that_lasts_is_one_time_of_pressure_although_the_channel_drains_to_its_lower_threshold() -> None:
    cycles = tuple(Episode(BEGAN + 16 * n, BEGAN + 16 * n + 15.9) for n in range(38))
    lasting = edge("in[0]", "a[0]", episodes=cycles[-20:], since=BEGAN + 599.9)
    (one,) = judge(signs([], tasks=[task(lasting)]))
    assert one.kind is Kind.UNDER_PRESSURE and one.since == cycles[-20].began
    between = msgspec.structs.replace(lasting, episodes=(Episode(BEGAN + 500, BEGAN + 599),), since=None)
    assert kinds(signs([], tasks=[task(between)])) == [Kind.UNDER_PRESSURE], "it has had room for a second only"
    burst = edge("in[0]", "a[0]", since=BEGAN + 599)
    assert kinds(signs([], tasks=[task(burst)])) == [Kind.KEEPING_UP]


# ---- the job itself -----------------------------------------------------------------------------------------------


def instance(moved: float, busy: bool = True) -> InstanceVital:
    return InstanceVital(
        components=("per-card",), instance=2, epoch=7, turns=10, moved_at=BEGAN + moved, busy=busy, waiting=3,
        last_event="Payment(id='x')", stack=("job.py:12 apply: requests.get(url)",),
    )  # fmt: skip


def test_an_instance_that_consumes_nothing_is_stopped() -> None:
    (one,) = judge(signs([], tasks=[task(instances=(instance(moved=500),))]))
    assert (one.kind, one.component, one.instance) == (Kind.STOPPED, "per-card", 2)
    text = "\n".join(verdict_lines([one]))
    assert "Payment(id='x')" in text and "requests.get" in text and "process 42 on here" in text
    for fine in (instance(moved=590), instance(moved=500, busy=False)):
        assert kinds(signs([], tasks=[task(instances=(fine,))])) == [Kind.KEEPING_UP]


def test_without_vital_signs_an_epoch_that_does_not_end_is_stopped() -> None:
    done = [row(n, compute=0.5) for n in range(1, 10)]
    run = RunRecord(fence=3, mode="microbatch", checkpoint_every=1.0, epoch=10, phase="plan", phase_at=BEGAN + 500)
    (one,) = judge(signs([], epochs=done, run=run))
    assert one.kind is Kind.STOPPED and "checkpoint 10" in one.text
    for fine in ({"phase_at": BEGAN + 590}, {"mode": "live"}, {"phase": "complete"}):
        assert kinds(signs([], epochs=done, run=msgspec.structs.replace(run, **fine))) == [Kind.KEEPING_UP]


def test_a_sink_that_is_slower_than_compute_sets_the_pace() -> None:
    slow = [row(n, compute=0.2, commit=1.5) for n in range(1, 10)]
    found = judge(signs([], epochs=slow, sinks=("usage",)))
    assert [one.kind for one in found] == [Kind.SLOW_SINK, Kind.KEEPING_UP]
    assert found[0].component == "usage" and found[0].command == "--checkpoint-every 5s"
    fast = [row(n, compute=0.2, commit=0.4) for n in range(1, 10)]
    assert kinds(signs([], epochs=fast, sinks=("usage",))) == [Kind.KEEPING_UP], "there is time enough"


def test_an_interval_without_time_for_events_is_too_short() -> None:
    run = RunRecord(fence=3, mode="local", checkpoint_every=0.05)
    busy = [row(n, plan=0.02, compute=0.02, prepare=0.03, complete=0.01) for n in range(1, 10)]
    found = judge(signs([], epochs=busy, run=run))
    assert [one.kind for one in found] == [Kind.SHORT_INTERVAL, Kind.KEEPING_UP]
    assert found[0].command == "--checkpoint-every 500ms"
    assert kinds(signs([], epochs=busy)) == [Kind.KEEPING_UP], "a second is enough for it"


def test_a_skewed_key_is_seen_in_the_events_of_instances() -> None:
    found = judge(signs([], processed={"sums": {0: 100, 1: 9_000, 2: 120}}, keyed=frozenset({"sums"})))
    assert (found[0].kind, found[0].component, found[0].instance) == (Kind.SKEWED_KEY, "sums", 1)
    assert "98%" in found[0].text
    even = {"sums": {0: 3_000, 1: 3_400, 2: 2_900}}
    assert kinds(signs([], processed=even, keyed=frozenset({"sums"}))) == [Kind.KEEPING_UP]
    assert kinds(signs([], processed={"map": {0: 1, 1: 9_000}})) == [Kind.KEEPING_UP], "it has no keys"


def test_state_that_does_not_level_off_grows() -> None:
    def sizes(keys: Callable[[int], int]) -> list[StateSize]:
        return [StateSize("sums", BEGAN + 30 * n, keys(n), 1_000) for n in range(21)]

    found = judge(signs([], states=sizes(lambda n: 20_000 + 1_000 * n)))
    assert (found[0].kind, found[0].component) == (Kind.GROWING_STATE, "sums")
    assert "120,000 keys an hour" in found[0].text and "ttl=" in found[0].advice
    assert kinds(signs([], states=sizes(lambda n: min(30_000, 15_000 + 5_000 * n)))) == [Kind.KEEPING_UP]


def test_failures_one_after_the_other_are_a_restart_loop() -> None:
    def run(count: int) -> RunRecord:
        failed = tuple(Failed(n, BEGAN + 500 + n, "SW-OPERATOR-FAILED: bad") for n in range(count))
        return RunRecord(fence=9, mode="local", checkpoint_every=1.0, failures=failed)

    (one,) = judge(signs([], run=run(4), restarting=True))
    assert one.kind is Kind.RESTART_LOOP and "4 times" in one.text and "bad" in one.text and one.command
    assert kinds(signs([], run=run(2))) == [Kind.KEEPING_UP]
    outside = [row(n, Result.FAILED, note="no disk") for n in range(1, 5)]
    assert "no disk" in judge(signs([], epochs=outside, now=BEGAN + 60))[0].text, "restarted from outside"


def test_a_job_that_does_not_run_has_one_verdict() -> None:
    crashed = signs(queue(60, lambda _: 100, lambda _: 1), running=False, ended=False, holder="process 7 on here")
    (one,) = judge(crashed)
    assert one.kind is Kind.NOT_RUNNING and "process 7 on here" in one.text and one.advice


@pytest.mark.parametrize(
    ("seconds", "option"), [(0.01, "100ms"), (0.3, "500ms"), (1, "1s"), (3.4, "5s"), (40, "50s"), (70, "100s")]
)
def test_an_advised_interval_is_round(seconds: float, option: str) -> None:
    assert interval_option(seconds) == f"--checkpoint-every {option}"


def test_verdicts_are_in_status_as_text_and_as_json(tmp_path: Path) -> None:
    job = Job("judged", checkpoint_every=0)
    source = job.source(ListSource(payments(50)), id="payments")
    source.apply(Summing(), key="card", id="sums").sink(SqliteSink(tmp_path / "out.db", "out"), id="out")
    run_job(job, tmp_path / "root")
    (one,) = ask("status", "--root", tmp_path / "root", "judged")["verdicts"]
    assert one["kind"] == "not running"
    shown = call("status", "--root", tmp_path / "root", "judged", "--prometheus")[1].splitlines()
    assert [line for line in shown if line.startswith("streamwork_verdict{") and line.endswith(" 1.0")] == [
        'streamwork_verdict{component="",job="judged",verdict="not running"} 1.0'
    ]


def test_the_page_lists_every_verdict() -> None:
    page = (Path(__file__).parents[2] / "docs" / "operating.md").read_text()
    table = page.partition("## Verdicts")[2].partition("## ")[0]
    assert re.findall(r"^\| `([a-z ]+)` \|", table, re.MULTILINE) == [kind.value for kind in Kind]
