"""Verdicts about the job itself: not running, restart loop, stopped, slow sink, short interval, skewed key, growing state."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from statistics import median

from streamwork.engine.vitals import InstanceVital
from streamwork.epoch.history.values import Result, Row, StateSize
from streamwork.observe.verdicts.signs import Signs
from streamwork.observe.verdicts.verdict import Kind, Verdict
from streamwork.observe.verdicts.words import clock, duration, interval_option, since, stop_command
from streamwork.wording import plural

LOOP_FAILURES = 3
LOOP_SECONDS = 600.0
"""So many drivers that fail within so many seconds are a loop."""
STOPPED_SECONDS = 30.0
STOPPED_TIMES = 10
"""An epoch is stopped after this many times the seconds that epochs usually take."""
EPOCHS = 20
"""The number of epochs that durations are taken from."""
LEAST_EPOCHS = 5
SKEW = 3.0
"""An instance has too much if it gets this many times the mean of the others."""
SKEW_EVENTS = 1_000
GROWTH_SECONDS = 300.0
GROWTH_KEYS = 10_000
GROWTH_BYTES = 10_000_000
GROWTH = 1.25
"""State grows if it has grown by this factor, and no slower at the end than at the beginning."""


def not_running(signs: Signs) -> Iterator[Verdict]:
    if signs.running is not False or signs.restarting:
        return
    if signs.ended:
        text = "the job does not run: its last run has ended" if signs.holder else "the job was never started"
    else:
        text = f"the job does not run: {signs.holder} was killed or has crashed"
    advice = "" if signs.ended else "start the job again: it goes on from its last checkpoint"
    yield Verdict(kind=Kind.NOT_RUNNING, text=text, advice=advice)


def restart_loop(signs: Signs) -> Iterator[Verdict]:
    if signs.running is False and not signs.restarting:
        return
    after = signs.now - LOOP_SECONDS
    failed = {row.fence: (row.started, row.note) for row in signs.epochs if row.outcome is Result.FAILED}
    failed |= {one.fence: (one.at, one.error) for one in signs.run.failures}
    recent = sorted(one for one in failed.values() if one[0] >= after)
    if len(recent) < LOOP_FAILURES:
        return
    yield Verdict(
        kind=Kind.RESTART_LOOP,
        text=f"the job has failed {plural(len(recent), 'time')} {since(recent[0][0], signs.now)}, and was restarted. "
        f"The last failure: {recent[-1][1]}",
        since=recent[0][0],
        advice="fix the cause; if one event fails again and again, start with --on-error COMPONENT=dead-letter to set it aside",
        command=stop_command(signs),
    )


def stopped(signs: Signs) -> Iterator[Verdict]:
    """Instances that consume nothing: first by the vital signs of their tasks, else by the epoch that does not end."""
    found = [one for task in signs.tasks for one in task.instances if _is_stopped(one, signs)]
    for one in found:
        yield _stopped(signs, one)
    run = signs.run
    if found or not signs.running or not run.epoch or run.phase_at is None or run.phase != "plan" or run.mode == "live":
        return  # in live mode an epoch is open as long as nothing comes
    usual = [row.seconds.compute for row in signs.epochs if row.outcome.committed and row.seconds.compute][-EPOCHS:]
    took = signs.now - run.phase_at
    if not usual or took < max(STOPPED_SECONDS, STOPPED_TIMES * median(usual)):
        return
    yield Verdict(
        kind=Kind.STOPPED,
        text=f"checkpoint {run.epoch} has been computed {since(run.phase_at, signs.now)}; the last ones took "
        f"{duration(median(usual))}",
        since=run.phase_at,
        advice="stop the job and start it again; if it stops at the same place, search for the bug there",
        command=stop_command(signs),
    )


def _is_stopped(one: InstanceVital, signs: Signs) -> bool:
    """In the middle of a turn, for long. An instance that waits for room in a channel is not stopped, but under pressure."""
    return one.busy and signs.now - one.moved_at >= STOPPED_SECONDS


def _stopped(signs: Signs, one: InstanceVital) -> Verdict:
    task = next((task for task in signs.tasks if one in task.instances), None)
    details = [f"last event: {one.last_event}"] if one.last_event else []
    details += [f"  {line}" for line in one.stack]
    kill = f"; if it does not stop, end process {task.pid} on {task.host}" if task is not None else ""
    return Verdict(
        kind=Kind.STOPPED,
        text=f"{one.name} consumes nothing {since(one.moved_at, signs.now)}; {plural(one.waiting, 'item')} wait at its inputs",
        since=one.moved_at,
        component=one.components[0],
        instance=one.instance,
        details=tuple(details),
        advice=f"stop the job and start it again{kill}. If it stops at the same event, that event shows the bug",
        command=stop_command(signs),
    )


def _durations(signs: Signs) -> list[Row]:
    return [row for row in signs.epochs if row.outcome.committed and row.seconds.compute is not None][-EPOCHS:]


def slow_sink(signs: Signs) -> Iterator[Verdict]:
    """The sinks take longer than computing, and longer than the time between two checkpoints: they set the pace."""
    done = _durations(signs)
    if len(done) < LEAST_EPOCHS:
        return
    compute = sum(row.seconds.compute or 0.0 for row in done) / len(done)
    commit = sum(row.seconds.commit or 0.0 for row in done) / len(done)
    if commit <= compute or commit + compute < signs.run.checkpoint_every:
        return
    names = ", ".join(signs.sinks) or "the sinks"
    yield Verdict(
        kind=Kind.SLOW_SINK,
        text=f"{names}: a commit takes {_ms(commit)}, computing the same checkpoint {_ms(compute)}: the sink sets the pace",
        since=done[0].started,
        component=signs.sinks[0] if len(signs.sinks) == 1 else "",
        advice="write fewer rows (aggregate before the sink), give its table fewer indexes, or use a faster target; with a longer "
        "interval each commit writes more rows at once",
        command=interval_option(2 * (commit + compute)),
    )


def short_interval(signs: Signs) -> Iterator[Verdict]:
    """Checkpoints follow each other without a pause, and most of their time is not spent on events."""
    done = _durations(signs)
    if len(done) < LEAST_EPOCHS or signs.run.checkpoint_every <= 0:
        return
    fixed = [
        sum(getattr(row.seconds, step) or 0.0 for step in ("plan", "prepare", "complete", "prune")) for row in done
    ]
    total = [sum(getattr(row.seconds, step) or 0.0 for step in type(row.seconds).__struct_fields__) for row in done]
    if median(total) < signs.run.checkpoint_every or sum(fixed) < 0.5 * sum(total):
        return
    yield Verdict(
        kind=Kind.SHORT_INTERVAL,
        text=f"a checkpoint takes {_ms(median(total))}, {_ms(median(fixed))} of it for itself, and checkpoint_every is "
        f"{_ms(signs.run.checkpoint_every)}: there is no time left for events",
        since=done[0].started,
        advice="checkpoint less often: stop the job and start it with a longer interval",
        command=interval_option(5 * median(fixed)),
    )


def skewed_key(signs: Signs) -> Iterator[Verdict]:
    for component, by_instance in sorted(signs.processed.items()):
        total = sum(by_instance.values())
        if component not in signs.keyed or len(by_instance) < 2 or total < SKEW_EVENTS:
            continue
        instance, most = max(by_instance.items(), key=lambda one: one[1])
        others = (total - most) / (len(by_instance) - 1)
        if most < SKEW * max(1.0, others):
            continue
        yield Verdict(
            kind=Kind.SKEWED_KEY,
            text=f"{component}[{instance}] gets {most / total:.0%} of the events of {component}, which has "
            f"{plural(len(by_instance), 'instance')}: one key, or a few, have most of the events",
            component=component,
            instance=instance,
            advice="more instances do not help: one key is processed by one instance. Count per key and a part of it first "
            "(a second field in key=), and sum the parts behind that; or use a window, which sums before it sends",
        )


def growing_state(signs: Signs) -> Iterator[Verdict]:
    ordered = sorted(signs.states, key=lambda one: (one.component, one.at))
    for component, found in groupby(ordered, key=lambda one: one.component):
        sizes = list(found)
        measured = "keys" if sizes[-1].keys else "bytes"
        yield from _growth(signs, component, sizes, measured)


def _growth(signs: Signs, component: str, sizes: Sequence[StateSize], measured: str) -> Iterator[Verdict]:
    first, middle, last = sizes[0], sizes[len(sizes) // 2], sizes[-1]
    a, b, c = (int(getattr(one, measured)) for one in (first, middle, last))
    seconds = last.at - first.at
    least = GROWTH_KEYS if measured == "keys" else GROWTH_BYTES
    if len(sizes) < LEAST_EPOCHS or seconds < GROWTH_SECONDS or c < least or c < GROWTH * max(1, a):
        return
    early, late = (b - a) / max(1.0, middle.at - first.at), (c - b) / max(1.0, last.at - middle.at)
    if late < 0.5 * early or late <= 0:
        return  # it levels off
    more = (c - a) / seconds * 3600
    unit = "keys" if measured == "keys" else "bytes"
    yield Verdict(
        kind=Kind.GROWING_STATE,
        text=f"the state of {component} grows: from {a:,} {unit} at {clock(first.at, signs.now)} to {c:,} now, "
        f"{more:,.0f} {unit} an hour, and does not level off",
        since=first.at,
        component=component,
        behind=None,
        advice=f"forget keys that are done: ttl= on {component}, clear_state(), or a window in its place; "
        "or give the job a key with fewer values",
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms" if seconds < 10 else duration(seconds)
