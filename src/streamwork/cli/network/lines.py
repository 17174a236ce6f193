"""The demo without a terminal: a line for each event, and about one line a second with the figures."""

from __future__ import annotations

from streamwork.cli.network.schedule import Job
from streamwork.cli.network.state import LIMIT_MS, Note, State, clock, milliseconds
from streamwork.cli.output import say

EVERY = 1.0
"""Seconds between two lines of figures."""


class Lines:
    def __init__(self, err: bool) -> None:
        """To standard output; with `err`, to standard error."""
        self._err = err
        self._shown = -EVERY
        self._last = ""

    def note(self, note: Note) -> None:
        self._print(f"{clock(note.at)}  {note.text}")

    def update(self, state: State) -> None:
        """Prints nothing before the first transaction: the notes say what happens."""
        line = figures(state)
        if state.now.sent is None or state.now.at - self._shown < EVERY or line == self._last:
            return
        self._shown, self._last = state.now.at, line
        self._print(f"{clock(state.now.at)}  {line}")

    def close(self) -> None:
        """Nothing to restore."""

    def _print(self, line: str) -> None:
        say(line, err=self._err)


def figures(state: State) -> str:
    """The figures of a moment, in a line."""
    now, sent = state.now, state.now.sent
    parts = [f"{state.decided[-1] if state.decided else 0:,.0f} decisions/s"]
    if sent is not None:
        latency = sent.latency
        p50, p99 = milliseconds(latency.get("p50_ms")), milliseconds(latency.get("p99_ms"))
        parts.append(f"p50 {p50} p99 {p99} ms (limit {LIMIT_MS:g})")
        parts.append(f"fraud {sent.caught:,}/{sent.planted:,} caught")
    totals = now.totals
    parts.append(
        f"usage {totals.transactions:,}/{now.logged:,}, fraudulent {totals.fraudulent:,}, unknown {totals.unknown:,}"
    )
    parts.append(f"checkpoints {now.job(Job.FRAUD).checkpoint:,} and {now.job(Job.USAGE).checkpoint:,}")
    return " | ".join(parts)
