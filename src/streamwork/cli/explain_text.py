"""An explained epoch, and the playback of a simulated run, as text."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from datetime import UTC, datetime

from streamwork.observe.explained import CrashRow, ExplainedEpoch, LedgerFact, Step, StepFile
from streamwork.testing.playback import Frame, Playback
from streamwork.wording import plural

WIDTH = 110


def epoch_lines(one: ExplainedEpoch) -> Iterator[str]:
    yield f"job {one.job}, root {one.root}"
    events = "" if one.events is None else f", {plural(one.events, 'event')}"
    yield f"epoch {one.checkpoint}, {one.semantics}, fence {one.fence}, parent {one.parent}{events}: {one.state.value}"
    yield f"reads from {one.start}"
    yield f"to         {one.end}"
    for step in one.steps:
        yield ""
        yield from _step(step)
    yield ""
    yield "If the driver is killed, the next start does this:"
    for place, row in enumerate(one.crash_table):
        yield from _row(row, place == one.here)
    yield ""
    yield one.story


def _step(step: Step) -> Iterator[str]:
    taken = "" if step.seconds is None else f" ({step.seconds * 1000:,.0f} ms)"
    yield f"{step.number} {step.name}{taken}{'' if step.reached else ': not reached'}"
    yield from _wrapped(step.does, 2)
    for file in step.files:
        yield f"    {file.path}"
        yield f"      {_facts(file)}"
    for ledger in step.ledgers:
        yield f"    {_ledger(ledger)}"
    yield from _wrapped(f"Durable: {step.durable[0].lower()}{step.durable[1:]}", 2)


def _facts(file: StepFile) -> str:
    facts = [file.content]
    facts += [] if file.bytes is None else [f"{file.bytes:,} bytes"]
    facts += [] if file.rows is None else [f"{file.rows:,} rows"]
    facts += [] if file.sha256 is None else [f"sha256 {file.sha256[:12]}"]
    facts += [] if file.written_at is None else [f"{datetime.fromtimestamp(file.written_at, UTC):%H:%M:%S.%f}"[:-3]]
    return ", ".join([*facts, *([] if file.there else ["removed since"])])


def _ledger(ledger: LedgerFact) -> str:
    return f"ledger row of {ledger.sink}: {ledger.position}, manifest {ledger.manifest_sha256[:12]}"


def _row(row: CrashRow, here: bool) -> Iterator[str]:
    yield f"{'>' if here else ' '} {row.killed}: {row.left}"
    yield from _wrapped(row.does, 6)


def playback_lines(playback: Playback) -> Iterator[str]:
    yield f"job {playback.job} in the simulator, seed {playback.seed}"
    yield "|1| is checkpoint event 1, # a blocked input; --crash-at N crashes right after the step with number N"
    edges = {one.id: (one.sender, one.receiver) for one in playback.scene.edges}
    for frame in playback.frames:
        yield ""
        yield from _wrapped(f"{frame.crash_at or '*':>3}  {frame.caption}", 0, 5)
        yield from _wrapped(frame.why, 5)
        yield from _channels(frame, edges)


def _channels(frame: Frame, edges: dict[str, tuple[str, str]]) -> Iterator[str]:
    """The channels that hold something, or are blocked: what is received next stands on the right."""
    blocked = {edge for place in frame.places.values() for edge in place.blocked}
    for edge, (sender, receiver) in edges.items():
        tokens = frame.edges.get(edge, ())
        if tokens or edge in blocked:
            items = " ".join(f"|{one.label}|" if one.checkpoint else one.label for one in reversed(tokens))
            yield f"       {sender} -> {items}{' ' if items else ''}{'#' if edge in blocked else '->'} {receiver}"


def _wrapped(text: str, indent: int, more: int | None = None) -> list[str]:
    behind = " " * (indent if more is None else more)
    return textwrap.wrap(text, WIDTH, initial_indent=" " * indent, subsequent_indent=behind, break_on_hyphens=False)
