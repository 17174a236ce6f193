"""``streamwork status`` and ``streamwork stop``: who drives a job, how far it is, and asking it to end."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from streamwork.components import Position
from streamwork.components.position import shown
from streamwork.delivery import DeadLetters, Inbox
from streamwork.delivery.counts import KINDS, summed
from streamwork.epoch.control import GONE, Control, Kind
from streamwork.epoch.fences import Fences, Holder, Life, moment
from streamwork.epoch.history.history import Seconds, counts, in_doubt, input_ends, rows, totals
from streamwork.epoch.history.lag import Lag, lags
from streamwork.epoch.in_doubt import InDoubt
from streamwork.epoch.in_doubt import lines as doubt_lines
from streamwork.epoch.store import Store
from streamwork.errors import JobFailed, Refused
from streamwork.observe.checkpoints import NOTHING, open_store
from streamwork.observe.retrying import RetriedEvent, retried, retried_lines
from streamwork.wording import plural
from streamwork.world import Clock, RealProcesses

POLL_SECONDS = 0.05
TELL_SECONDS = 5.0
GRACE_SECONDS = 5.0
"""A driver says that it has ended a moment before it answers: so long that may take."""
RESTART_SECONDS = 0.5
"""A driver that fails says that it has ended a moment before its supervisor says that it will start again."""
WATCH_SECONDS = 5.0
"""How long a holder on another machine is watched for a sign of life, unless its own lease says otherwise."""

MOST_WAITING = 20
"""So many of the events that wait are named; people are told of fewer."""
MOST_TOLD = 5
LOOKS = 3


class ComponentCounts(msgspec.Struct, frozen=True):
    """How often a component did what; `delivery.counts` says what the words mean."""

    attempted: dict[str, int]  # in every attempt that is known of, also those that came to nothing
    committed: dict[str, int]
    last: dict[str, dict[str, int]]  # in the last epoch, by instance; "-1" are all together


class WaitingEvent(msgspec.Struct, frozen=True):
    """An event that is not done, under acknowledging."""

    id: str
    component: str  # that has failed it, or has not acknowledged it yet
    attempts: int
    error: str
    pending: bool
    due_seconds: float  # until it comes again, or, if it is pending, until it has failed
    owed: dict[str, int] = {}  # if it is pending: component -> how many acknowledgements lack


class Waits(msgspec.Struct, frozen=True):
    count: int = 0
    pending: int = 0
    first: tuple[WaitingEvent, ...] = ()
    problem: str = ""


class Letters(msgspec.Struct, frozen=True):
    count: int = 0
    by_component: dict[str, int] = {}
    problem: str = ""
    replayed: int = 0


class Status(msgspec.Struct, frozen=True, kw_only=True):
    job: str
    root: str
    running: bool | None  # None: it cannot be told from here
    restarting: bool
    holder: Holder | None
    checkpoint: int | None  # the newest completed one
    age_seconds: float | None
    position: Position
    lag: dict[str, Lag]  # by source with offsets: input that no completed checkpoint has read
    steps: Seconds | None  # of the last epoch that the history knows
    prepared: list[int]  # not completed yet
    quarantined: dict[int, int]  # epoch -> the fence whose start set it aside
    abandoned: int  # of the last hundred epochs
    counts: dict[str, ComponentCounts]  # as far as the history knows
    retrying: list[RetriedEvent]  # what a checkpoint under way waits for
    waiting: Waits
    dead_letters: Letters
    in_doubt: list[InDoubt]  # under at-most-once: input of epochs that broke off


def look(root: Path, job: str, clock: Clock) -> Status:
    """What is known of a job, from its files alone. A holder on another machine is watched for a few seconds."""
    store = open_store(root, job)
    fences = Fences(store.disk, store.folder, clock, RealProcesses())
    newest = fences.newest()
    holder = fences.holder(watch=newest.lease / 2 if newest is not None and newest.lease else WATCH_SECONDS)
    stored = store.stored()
    done = next((one for one in stored if one.completed), None)
    position = {} if done is None or done.manifest is None else done.manifest.positions
    history = store.folder / "history.sqlite"
    recent = rows(history, 100)
    return Status(
        job=job,
        root=str(root),
        running=_running(holder),
        restarting=holder is not None and holder.restarting and holder.life is Life.RUNNING,
        holder=holder,
        checkpoint=None if done is None else done.epoch,
        age_seconds=None if done is None else round(clock.now() - store.written_at(done.epoch), 1),
        position=position,
        lag=dict(lags(input_ends(history), position)),
        steps=recent[0].seconds if recent else None,
        prepared=sorted(one.epoch for one in stored if not one.completed),
        quarantined=store.quarantined(),
        abandoned=sum(row.outcome in NOTHING for row in recent),
        counts=counted(history, recent[0].epoch if recent else 0),
        retrying=retried(store.disk, store.folder, holder.fence, done.epoch if done else 0, clock)
        if holder is not None and _running(holder) is not False
        else [],
        waiting=waits(store, clock.now()),
        dead_letters=letters(store),
        in_doubt=in_doubt(history),
    )


def counted(history: Path, epoch: int) -> dict[str, ComponentCounts]:
    """By component; `epoch` is the last one."""
    known = totals(history)
    every = summed(one.counts for one in known)
    done = summed(one.counts for one in known if one.outcome.committed)
    last: dict[str, dict[str, dict[str, int]]] = {}
    for one in counts(history, epoch):
        mine = last.setdefault(one.counts.component, {})
        before = mine.get(str(one.counts.instance), dict.fromkeys(KINDS, 0))
        mine[str(one.counts.instance)] = {kind: before[kind] + n for kind, n in one.counts.numbers.items()}
    nothing = dict.fromkeys(KINDS, 0)
    return {name: ComponentCounts(every[name], done.get(name, nothing), last.get(name, {})) for name in every}


def waits(store: Store, now: float) -> Waits:
    """What waits at the newest checkpoint. A job that runs may remove a file before it is read: then there is a newer one."""
    for left in reversed(range(LOOKS)):
        done = next((one.manifest for one in store.stored() if one.completed and one.manifest is not None), None)
        try:
            found = Inbox(store.disk, store.folder).read_waiting(done.failed if done is not None else ())
        except Refused as damaged:
            if left:
                continue
            return Waits(problem=damaged.cause)
        first = sorted(found, key=lambda one: one.due)[:MOST_WAITING]
        shown = tuple(
            WaitingEvent(
                one.id,
                one.component,
                one.attempts,
                one.error,
                one.pending,
                round(one.due / 1_000_000 - now, 3),
                dict(Counter(by.rpartition("/")[0] for by in one.owed)),
            )
            for one in first
        )
        return Waits(len(found), sum(one.pending for one in found), shown)
    raise AssertionError


def letters(store: Store) -> Letters:
    try:
        sizes = DeadLetters(store.disk, store.folder).sizes()
    except Refused as damaged:
        return Letters(problem=damaged.cause)
    try:
        replayed = len(Inbox(store.disk, store.folder).replayed())
    except Refused as damaged:
        return Letters(sum(sizes.values()), sizes, damaged.cause)
    return Letters(sum(sizes.values()), sizes, replayed=replayed)


def lines(status: Status) -> list[str]:
    """A few plain lines."""
    told = [f"job {status.job}, root {status.root}", who(status.holder)]
    if status.checkpoint is not None:
        told.append(f"checkpoint {status.checkpoint}, completed {status.age_seconds:,.1f} s ago")
    if status.position:
        told.append(f"position: {shown(status.position)}")
    told += retried_lines(status.retrying)
    told += lag_lines(status.lag, bool(status.running))
    if status.steps is not None:
        told.append(f"last steps: {durations(status.steps)}")
    if status.prepared:
        told.append("prepared, not completed yet: " + ", ".join(map(str, status.prepared)))
    if status.abandoned:
        told.append(f"abandoned: {status.abandoned} of the last hundred epochs")
    for epoch, fence in sorted(status.quarantined.items()):
        told.append(f"quarantined: checkpoint {epoch}, by the start of fence {fence} (see quarantine/{fence})")
    counted = [*_counts_table(status.counts), *doubt_lines(status.in_doubt)]
    return [*told, *counted, *_waiting_lines(status.waiting), *_letter_lines(status)]


def lag_lines(lag: Mapping[str, Lag], running: bool) -> list[str]:
    """One line; partitions are named where few are behind."""
    if not lag:
        return []
    told = []
    for source, mine in lag.items():
        behind = {name: number for name, number in mine.partitions.items() if number}
        shown = ", ".join(f"partition {name}: {number:,}" for name, number in behind.items())
        where = f" ({shown})" if len(mine.partitions) > 1 and 0 < len(behind) <= MOST_TOLD else ""
        told.append(f"{source} {mine.total:,} {mine.unit}{where}" if mine.total else f"{source} none")
    return ["lag: " + ", ".join(told) + ("" if running else "; input that came since it stopped is not counted")]


def _counts_table(found: dict[str, ComponentCounts]) -> list[str]:
    """What is committed; and beside it what was done in vain, where something was."""
    if not found:
        return []
    names = ["component", *(kind.replace("_", " ") for kind in KINDS), "in vain"]
    table = [names]
    for name, mine in found.items():
        in_vain = mine.attempted["processed"] - mine.committed["processed"]
        table.append([name, *(f"{mine.committed[kind]:,}" for kind in KINDS), f"{in_vain:,}"])
    kept = [0, 1, 2, *(i for i in range(3, len(names)) if any(row[i] != "0" for row in table[1:]))]
    widths = [max(len(row[i]) for row in table) for i in kept]
    shown = [
        "  ".join(row[i].ljust(width) if i == 0 else row[i].rjust(width) for i, width in zip(kept, widths, strict=True))
        for row in table
    ]
    return ["counts:", *(f"  {line}".rstrip() for line in shown)]


def _waiting_lines(waiting: Waits) -> list[str]:
    if waiting.problem:
        return [f"waiting events: {waiting.problem}"]
    if not waiting.count:
        return []
    told = [f"waiting: {plural(waiting.count, 'event')}, {waiting.pending:,} of them not acknowledged yet"]
    for one in waiting.first[:MOST_TOLD]:
        when = f"{max(0.0, one.due_seconds):.1f} s"
        then = f"has failed in {when}" if one.pending else f"comes again in {when}"
        where = ", ".join(one.owed) or one.component
        told.append(f"  {one.id} at {where}, {one.attempts} attempts failed, {then}: {one.error}")
    if waiting.count > MOST_TOLD:
        told.append("  ... (--json shows more)")
    return told


def _letter_lines(status: Status) -> list[str]:
    found = status.dead_letters
    if found.problem:
        return [f"dead letters: {found.problem}"]
    if not found.count:
        return []
    by = ", ".join(f"{name} {count:,}" for name, count in found.by_component.items())
    where = shlex.join(["--root", status.root, status.job])
    again = f", of which {found.replayed:,} replayed" if found.replayed else ""
    return [f"dead letters: {found.count:,}{again} ({by}); see `streamwork dead-letters list {where}`"]


def who(holder: Holder | None) -> str:
    if holder is None:
        return "not running: it was never started"
    process, fence = holder.process, f"fence {holder.fence}, since {moment(holder.since)}"
    match holder.life:
        case Life.RUNNING if holder.restarting:
            return f"starting again after a failure: {process} ({fence})"
        case Life.RUNNING:
            return f"running: {process} ({fence})"
        case Life.ENDED:
            return f"not running: {process} has ended ({fence})"
        case Life.GONE:
            return f"not running: {process} is gone without having ended ({fence}); start the job again"
        case Life.UNKNOWN:
            return f"perhaps running: {process} ({fence}) is on another machine, and gave no sign of life"


def durations(seconds: Seconds) -> str:
    known = {name: value for name, value in msgspec.structs.asdict(seconds).items() if value is not None}
    return ", ".join(f"{name} {value * 1000:,.0f} ms" for name, value in known.items()) or "none"


class Stopped(msgspec.Struct, frozen=True):
    job: str
    root: str
    was_running: bool
    checkpoint: int | None
    text: str


def stop(root: Path, job: str, timeout: float, clock: Clock, tell: Callable[[str], object]) -> Stopped:
    """Ask the driver to end after the epoch under way, and wait until it has. Raises SW-STOP-TIMEOUT.

    A driver that fails meanwhile may be followed by another one of the same run: then that one is asked.
    """
    store, processes = open_store(root, job), RealProcesses()
    fences = Fences(store.disk, store.folder, clock, processes)
    control = Control(store.disk, store.folder, clock)
    until, next_word, asked, fence = clock.monotonic() + timeout, 0.0, "", 0
    ended_at: float | None = None
    while True:
        # Whether it is over is looked at before the answer, so that an answer given in between is not missed.
        holder = fences.holder()
        over = holder is None or holder.life is Life.GONE
        if holder is not None and holder.life is Life.ENDED:
            ended_at = clock.monotonic() if ended_at is None else ended_at
            patience = ended_at + (GRACE_SECONDS if asked else RESTART_SECONDS)
            over = processes.gone(holder.process) or clock.monotonic() > patience
        answer = control.answer(asked) if asked else None
        if answer is not None and answer.text != GONE:
            return Stopped(job, str(root), True, answer.checkpoint, answer.text)
        if over or holder is None:
            if asked:
                control.withdraw(asked)
            ended = "was killed" if holder is not None and holder.life is Life.GONE else "has ended by itself"
            newest = max(store.completed(), default=None)
            return Stopped(job, str(root), bool(asked), newest, ended if asked else "not running")
        if holder.life is Life.ENDED:
            clock.sleep(POLL_SECONDS)
            continue
        ended_at = None
        if holder.fence != fence or answer is not None:
            if asked:
                control.withdraw(asked)
            asked, fence = control.ask(Kind.STOP, holder.fence), holder.fence
        now = clock.monotonic()
        if now >= until:
            raise JobFailed(
                "SW-STOP-TIMEOUT",
                f"{holder.process} has not stopped within {timeout:g} s",
                "the request stands: it will stop when the epoch under way is completed. If it must end now, kill the "
                "process (kill -9): nothing is lost, the next start resumes at the last checkpoint",
            )
        if now >= next_word:
            tell(f"asked {holder.process} to stop; it completes the epoch under way (waiting {until - now:.0f} s more)")
            next_word = now + TELL_SECONDS
        clock.sleep(POLL_SECONDS)


def _running(holder: Holder | None) -> bool | None:
    if holder is None:
        return False
    return {Life.RUNNING: True, Life.ENDED: False, Life.GONE: False, Life.UNKNOWN: None}[holder.life]
