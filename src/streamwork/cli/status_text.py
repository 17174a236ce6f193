"""The text of ``streamwork status``, made from `JobStatus`."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

import msgspec

from streamwork.delivery.counts import KINDS
from streamwork.engine.vitals import EdgeVital
from streamwork.epoch.fences import Holder, Life, moment
from streamwork.epoch.history.lag import Lag
from streamwork.epoch.history.values import Seconds
from streamwork.epoch.in_doubt import lines as doubt_lines
from streamwork.job.params import text_of
from streamwork.observe.counts import ComponentCounts
from streamwork.observe.dead_letters import LetterCounts
from streamwork.observe.latency import Latency
from streamwork.observe.retrying import RetriedEvent
from streamwork.observe.status import RECENT, JobStatus
from streamwork.observe.verdicts import Kind, Verdict
from streamwork.observe.waiting import WaitingEvents
from streamwork.run.standbys import Waiting
from streamwork.wording import plural

MOST_LISTED = 5
"""Maximum number of events or partitions listed one by one."""


def status_lines(status: JobStatus) -> list[str]:
    """The status of a job in a few lines."""
    lines = [f"job {status.job}, root {status.root}", holder_line(status.holder), *verdict_lines(status.verdicts)]
    if status.params:
        lines.append("parameters: " + ", ".join(f"{name}={text_of(value)}" for name, value in status.params.items()))
    lines += [standby_line(one) for one in status.standbys]
    if status.checkpoint is not None:
        age = "" if status.age_seconds is None else f", completed {status.age_seconds:,.1f} s ago"
        lines.append(f"checkpoint {status.checkpoint}{age}")
    if status.position:
        lines.append(f"position: {status.position}")
    lines += retry_lines(status.retrying)
    lines += pressure_lines(status.edges)
    lines += lag_lines(status.lag, bool(status.running))
    lines += latency_lines(status.latency)
    if status.steps is not None:
        lines.append(f"last steps: {durations(status.steps)}")
    if status.prepared:
        lines.append("prepared, not completed yet: " + ", ".join(map(str, status.prepared)))
    if status.abandoned:
        lines.append(f"abandoned: {status.abandoned} of the last {RECENT} epochs")
    for epoch, fence in sorted(status.quarantined.items()):
        lines.append(f"quarantined: checkpoint {epoch}, by the start of fence {fence} (see quarantine/{fence})")
    lines += [*_counts_table(status.counts), *doubt_lines(status.in_doubt)]
    return [*lines, *_waiting_lines(status.waiting), *_letter_lines(status.dead_letters, status.root, status.job)]


def holder_line(holder: Holder | None) -> str:
    """Whether the job runs, and in which process."""
    if holder is None:
        return "not running: it was never started"
    process, fence = holder.process, f"fence {holder.fence}, since {moment(holder.since)}"
    match holder.life:
        case Life.RUNNING if holder.restarting:
            return f"restarting after a failure: {process} ({fence})"
        case Life.RUNNING:
            return f"running: {process} ({fence})"
        case Life.ENDED:
            return f"not running: {process} has ended ({fence})"
        case Life.GONE:
            return f"not running: {process} was killed or has crashed ({fence}); start the job again"
        case Life.UNKNOWN:
            return f"perhaps running: {process} ({fence}) is on another machine and gave no sign of life"


def verdict_lines(found: Sequence[Verdict]) -> list[str]:
    """What is so, and what to do about it."""
    lines = []
    for one in found:
        if one.kind is Kind.NOT_RUNNING:  # the line about the holder says it
            continue
        lines.append(f"{one.kind.value}: {one.text}")
        lines += [f"  {detail}" for detail in one.details]
        lines += [f"  advice: {one.advice}"] if one.advice else []
        lines += [f"  command: {one.command}"] if one.command else []
    return lines


def pressure_lines(edges: Sequence[EdgeVital]) -> list[str]:
    """The channels that are full or have dropped events."""
    lines = []
    for one in edges:
        if one.since is None and not one.dropped:
            continue
        state = "has room" if one.since is None else "full"
        dropped = f", {one.dropped:,} dropped" if one.dropped else ""
        lines.append(f"channel {one.sender} -> {one.receiver}: {state}, {plural(one.events, 'event')} queued{dropped}")
    return lines


def standby_line(one: Waiting) -> str:
    read = "no checkpoint read yet" if one.checkpoint is None else f"checkpoint {one.checkpoint} read"
    return f"standby: {one.process} watches fence {one.fence}, {read} (since {moment(one.since)})"


def lag_lines(lag: Mapping[str, Lag], running: bool) -> list[str]:
    """One line; partitions are listed if few of them lag."""
    if not lag:
        return []
    texts = []
    for source, mine in lag.items():
        behind = {name: number for name, number in mine.partitions.items() if number}
        listed = ", ".join(f"partition {name}: {number:,}" for name, number in behind.items())
        where = f" ({listed})" if len(mine.partitions) > 1 and 0 < len(behind) <= MOST_LISTED else ""
        texts.append(f"{source} {mine.total:,} {mine.unit}{where}" if mine.total else f"{source} none")
    return ["lag: " + ", ".join(texts) + ("" if running else "; input that arrived after the stop is not counted")]


def latency_lines(found: Latency | None) -> list[str]:
    """In live mode, a line for each sink."""
    lines = []
    for one in () if found is None else found.sinks:
        parts = {"p50": one.p50, "p99": one.p99, "p99.9": one.p999, "max": one.max}
        known = ", ".join(f"{name} {short(seconds)}" for name, seconds in parts.items() if seconds is not None)
        assert found is not None
        over = f"in the last {found.window_seconds:.0f} s"
        staged = "; visible with its checkpoint" if one.staged else ""
        text = f"{known} ({plural(one.events, 'event')} {over}{staged})" if known else f"no event {over}"
        lines.append(f"latency to {one.component}: {text}")
    return lines


def short(seconds: float) -> str:
    """With three digits: 840 us, 2.35 ms, 1.2 s."""
    unit, factor = ("us", 1e6) if seconds < 1e-3 else ("ms", 1e3) if seconds < 1 else ("s", 1)
    return f"{float(f'{seconds * factor:.3g}'):,.10g} {unit}"


def retry_lines(found: Sequence[RetriedEvent]) -> list[str]:
    """Two lines for each event that is retried in place."""
    lines = []
    for one in found:
        limits = [] if one.times is None else [f"{one.times} retries"]
        limits += [] if one.within is None else [f"{one.within:g} s"]
        end = f"after {' or '.join(limits)}: {one.then}" if limits else "without a limit"
        lines.append(
            f"retrying: {one.component}[{one.instance}] has failed {one.failures} times in {one.for_seconds:.1f} s, "
            f"next attempt in {one.next_seconds:.1f} s ({end}); checkpoint {one.checkpoint} waits"
        )
        lines.append(f"  {one.error}; event {one.event}")
    return lines


def durations(seconds: Seconds) -> str:
    known = {name: value for name, value in msgspec.structs.asdict(seconds).items() if value is not None}
    return ", ".join(f"{name} {value * 1000:,.0f} ms" for name, value in known.items()) or "none"


def _counts_table(found: Mapping[str, ComponentCounts]) -> list[str]:
    """Committed counts by component, and events processed in attempts that were not committed; columns of zeros are left out."""
    if not found:
        return []
    names = ["component", *(kind.replace("_", " ") for kind in KINDS), "uncommitted"]
    table = [names]
    for name, mine in found.items():
        table.append([name, *(f"{mine.committed[kind]:,}" for kind in KINDS), f"{mine.uncommitted:,}"])
    kept = [0, 1, 2, *(i for i in range(3, len(names)) if any(row[i] != "0" for row in table[1:]))]
    widths = [max(len(row[i]) for row in table) for i in kept]
    lines = [
        "  ".join(row[i].ljust(width) if i == 0 else row[i].rjust(width) for i, width in zip(kept, widths, strict=True))
        for row in table
    ]
    return ["counts:", *(f"  {line}".rstrip() for line in lines)]


def _waiting_lines(waiting: WaitingEvents) -> list[str]:
    if waiting.problem:
        return [f"waiting events: {waiting.problem}"]
    if not waiting.count:
        return []
    lines = [f"waiting: {plural(waiting.count, 'event')}, {waiting.pending:,} of them not acknowledged yet"]
    for one in waiting.first[:MOST_LISTED]:
        when = f"{max(0.0, one.due_seconds):.1f} s"
        then = f"fails in {when}" if one.pending else f"is replayed in {when}"
        where = ", ".join(one.owed) or one.component
        lines.append(f"  {one.id} at {where}, {plural(one.attempts, 'failed attempt')}, {then}: {one.error}")
    if waiting.count > MOST_LISTED:
        lines.append("  ... (--json shows more)")
    return lines


def _letter_lines(found: LetterCounts, root: str, job: str) -> list[str]:
    if found.problem:
        return [f"dead letters: {found.problem}"]
    if not found.count:
        return []
    by = ", ".join(f"{name} {count:,}" for name, count in found.by_component.items())
    replayed = f", {found.replayed:,} of them replayed" if found.replayed else ""
    command = shlex.join(["streamwork", "dead-letters", "list", "--root", root, job])
    return [f"dead letters: {found.count:,}{replayed} ({by}); see `{command}`"]
