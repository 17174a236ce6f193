"""Verdicts about the flow: keeping up, falling behind, under pressure, thrashing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby, pairwise
from statistics import fmean
from typing import NamedTuple

from streamwork.engine.vitals import EdgeVital, Episode
from streamwork.observe.verdicts.pace import WINDOW, Pace
from streamwork.observe.verdicts.signs import Signs
from streamwork.observe.verdicts.verdict import Kind, Verdict
from streamwork.observe.verdicts.words import clock, duration, rate, since, stop_command
from streamwork.wording import plural

LEAST_BYTES = 65_536
"""The beginning of a line is no backlog: fewer bytes than this, unread for long, are none."""
THRASHING_EPISODES = 3
THRASHING_SECONDS = 900.0
"""So many times of pressure within so many seconds are thrashing."""
SHORT_EPISODE = 5.0
"""A time of pressure below this, in seconds, is a burst; a relief below this is none."""
CHANGED = 1.3
"""A rate that differs by this factor has changed."""
NEVER_CAUGHT_UP = 1.02
"""Reading must be faster than the input by this factor for the source to catch up."""


def paces(signs: Signs) -> dict[str, Pace]:
    """By source."""
    mine = sorted(signs.samples, key=lambda one: (one.source, one.at))
    return {
        source: Pace(list(found), signs.run.checkpoint_every)
        for source, found in groupby(mine, key=lambda one: one.source)
    }


def falling_behind(signs: Signs) -> Iterator[Verdict]:
    for source, pace in paces(signs).items():
        limit, unit = pace.limit(), signs.units.get(source, "events")
        began = pace.behind_since(limit)
        if began is None or pace.samples[-1].at - began < min(SHORT_EPISODE, limit and SHORT_EPISODE):
            continue
        now = pace.now()
        stalled = now is None or (now.incoming <= 0 and now.reading <= 0)
        if pace.lag <= 0 or (unit == "bytes" and pace.lag < LEAST_BYTES and stalled):
            continue
        yield _behind(signs, source, pace, began, unit)


def _behind(signs: Signs, source: str, pace: Pace, began: float, unit: str) -> Verdict:
    rates, lag, end = pace.now(), pace.lag, None
    seconds = pace.seconds_behind
    text = f"{source} is {lag:,} {unit} behind, {since(began, signs.now)}"
    advice = ""
    if rates is not None:
        if seconds is not None:
            text += f": that is {duration(seconds)} of input"
        text += f". Input comes at {rate(rates.incoming, unit)} and is read at {rate(rates.reading, unit)}"
        surplus = rates.reading - rates.incoming
        if rates.reading > rates.incoming * NEVER_CAUGHT_UP and surplus > 0:
            end = signs.now + lag / surplus
            text += f"; at these rates it has caught up at {clock(end, signs.now)} (in {duration(lag / surplus)})"
        else:
            text += "; at these rates it does not catch up"
            advice = f"raise parallelism= of the slowest component (or of the job), then stop and start it; {_slowest(signs)}"
    return Verdict(
        kind=Kind.FALLING_BEHIND,
        text=text,
        since=began,
        component=source,
        behind=lag,
        behind_seconds=seconds,
        unit=unit,
        caught_up_at=end,
        advice=advice,
        command=stop_command(signs) if advice else "",
    )


def _slowest(signs: Signs) -> str:
    """Where the time of the last epochs goes."""
    done = [row.seconds for row in signs.epochs if row.outcome.committed][-20:]
    compute, commit = sum(one.compute or 0.0 for one in done), sum(one.commit or 0.0 for one in done)
    if compute + commit <= 0:
        return "`status` shows where the time goes"
    if commit > compute:
        return f"the sinks take {commit / (compute + commit):.0%} of the time: more instances do not help a slow sink"
    return f"computing takes {compute / (compute + commit):.0%} of the time"


def under_pressure(signs: Signs) -> Iterator[Verdict]:
    """One for each instance whose inputs are full."""
    began_at = {edge: began for task in signs.tasks for edge in task.edges if (began := _full_since(edge, signs.now))}
    full = list(began_at)
    senders = {edge.sender for edge in full}
    for receiver in sorted({edge.receiver for edge in full} - senders):  # those that are stopped themselves do not lag
        mine = [edge for edge in full if edge.receiver == receiver]
        began = min(began_at[edge] for edge in mine)
        stops = _stopped_by(receiver, full)
        component, _, instance = receiver.rstrip("]").partition("[")
        yield Verdict(
            kind=Kind.UNDER_PRESSURE,
            text=f"{receiver} lags: {_waiting(mine)}, {since(began, signs.now)}. {_effect(mine, stops)}",
            since=began,
            component=component,
            instance=int(instance) if instance.isdigit() else None,
            behind=sum(edge.events for edge in mine),
            unit="events",
            stops=tuple(stops),
            advice=f"if it lasts, raise parallelism= of {component}, or find what it waits for; then stop and start the job",
            command=stop_command(signs),
        )


def _full_since(edge: EdgeVital, now: float) -> float | None:
    """Since when a channel has been full, short times of room included; None if it has room, or for a burst only.

    Under steady pressure a channel drains to its lower threshold, and is full again at once.
    """
    times = _joined(edge.episodes)
    if edge.since is not None and (not times or times[-1].ended is not None):
        times = _joined([*times, Episode(edge.since)])
    if not times or (times[-1].ended is not None and now - times[-1].ended >= SHORT_EPISODE):
        return None
    return times[-1].began if now - times[-1].began >= SHORT_EPISODE else None


def _joined(episodes: Sequence[Episode]) -> list[Episode]:
    """Times of pressure without the short reliefs between them."""
    found: list[Episode] = []
    for one in episodes:
        before = found[-1] if found else None
        if before is not None and before.ended is not None and one.began - before.ended < SHORT_EPISODE:
            found[-1] = Episode(before.began, one.ended)
        else:
            found.append(one)
    return found


def _stopped_by(receiver: str, full: Sequence[EdgeVital]) -> list[str]:
    """The instances that wait for one, directly or through others."""
    found: list[str] = []
    wanted = [receiver]
    while wanted:
        name = wanted.pop()
        for edge in full:
            if edge.receiver == name and edge.policy != "drop" and edge.sender not in found:
                found.append(edge.sender)
                wanted.append(edge.sender)
    return sorted(found)


def _waiting(edges: Sequence[EdgeVital]) -> str:
    events, size = sum(edge.events for edge in edges), sum(edge.bytes for edge in edges)
    return f"{plural(events, 'event')} ({size / 1e6:,.1f} MB) {'waits' if events == 1 else 'wait'} for it"


def _effect(edges: Sequence[EdgeVital], stops: Sequence[str]) -> str:
    if all(edge.policy == "drop" for edge in edges):
        return f"New events for it are dropped: {sum(edge.dropped for edge in edges):,} so far"
    who = "the sources" if any(edge.policy == "sources" for edge in edges) else "what comes before it"
    return f"It stops {who}: {', '.join(stops)}" if stops else f"It stops {who}"


def thrashing(signs: Signs) -> Iterator[Verdict]:
    """Pressure that is relieved and comes back: in channels, else of a source."""
    edges = [edge for task in signs.tasks for edge in task.edges]
    found = [(edge, _recent(_joined(edge.episodes), signs)) for edge in edges]
    found = [(edge, episodes) for edge, episodes in found if len(episodes) >= THRASHING_EPISODES]
    known = paces(signs)
    if found:
        edge, episodes = max(found, key=lambda one: len(one[1]))
        yield _thrashing(signs, edge.receiver.partition("[")[0], edge.receiver, episodes, list(known.values()))
        return
    for source, pace in known.items():
        episodes = _recent(pace.episodes(pace.limit()), signs)
        if len(episodes) >= THRASHING_EPISODES:
            yield _thrashing(signs, source, source, episodes, [pace])


def _recent(episodes: Sequence[Episode], signs: Signs) -> list[Episode]:
    return [
        one
        for one in episodes
        if (one.ended or signs.now) >= signs.now - THRASHING_SECONDS
        and (one.ended or signs.now) - one.began >= SHORT_EPISODE
    ]


def _thrashing(signs: Signs, component: str, who: str, episodes: Sequence[Episode], known: Sequence[Pace]) -> Verdict:
    text = f"{who} was under pressure {len(episodes)} times {since(episodes[0].began, signs.now)}, and relieved between"
    cause, advice = _cause(component, _changes(known, episodes, signs.now))
    return Verdict(
        kind=Kind.THRASHING,
        text=f"{text}. {cause}",
        since=episodes[0].began,
        component=component,
        advice=advice,
        command=stop_command(signs),
    )


class _Changes(NamedTuple):
    """Rates per second, of all sources together, while pressure rises and otherwise."""

    incoming: float
    incoming_before: float
    reading: float
    reading_best: float


def _changes(known: Sequence[Pace], episodes: Sequence[Episode], now: float) -> _Changes | None:
    found: list[_Changes] = []
    for pace in known:
        spans = [(one.began, pace.peak(one.began, one.ended or now), one.ended or now) for one in episodes]
        rising = pace.all_between([(began, peak) for began, peak, _ in spans])
        falling = pace.all_between([(peak, ended) for _, peak, ended in spans])
        calm_spans = [(before[2], after[0]) for before, after in pairwise(spans)]
        calm = pace.all_between([(spans[0][0] - WINDOW, spans[0][0]), *calm_spans])
        if rising and calm:
            found.append(
                _Changes(
                    fmean(one.incoming for one in rising),
                    fmean(one.incoming for one in calm),
                    fmean(one.reading for one in rising),
                    max(one.reading for one in [*rising, *falling, *calm]),
                )
            )
    return _Changes(*(sum(numbers) for numbers in zip(*found, strict=True))) if found else None


def _cause(component: str, rates: _Changes | None) -> tuple[str, str]:
    """Whether traffic grew or the component slowed, and what to do."""
    steady = "raise parallelism= of the slow component, or checkpoint_every=, then stop and start the job"
    if rates is None or rates.incoming_before <= 0:
        return "The rates do not show whether traffic grew or it slowed", steady
    causes, advice = [], []
    if rates.incoming >= CHANGED * rates.incoming_before:
        causes.append(f"traffic grew: {rates.incoming:,.0f} per second instead of {rates.incoming_before:,.0f}")
        advice.append(f"scale for the peak: raise parallelism= of {component}, then stop and start the job")
    if rates.reading_best >= CHANGED * rates.reading:
        causes.append(
            f"it slowed, or something that it depends on: it read {rates.reading:,.0f} per second, and "
            f"{rates.reading_best:,.0f} at other times"
        )
        advice.append(
            f"find what {component} waits for (a database, a service, a disk, garbage collection) and tune that; "
            "more instances may not help it"
        )
    if not causes:
        return "Traffic and speed are steady: it has just enough capacity", steady
    return f"The rates show that {', and that '.join(causes)}", "; ".join(advice)


def keeping_up(signs: Signs) -> Verdict:
    known = paces(signs)
    texts = []
    for source, pace in known.items():
        rates, unit = pace.now(), signs.units.get(source, "events")
        if rates is not None and rates.incoming > 0:
            texts.append(f"{source} reads {rate(rates.reading, unit)} of {rate(rates.incoming, unit)}")
        else:
            texts.append(f"{source} has no new input" if pace.lag == 0 else f"{source} reads what comes")
    return Verdict(kind=Kind.KEEPING_UP, text="; ".join(texts) or "nothing has been read yet")
