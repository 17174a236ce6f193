"""Watchers that print: one changing line on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TextIO, TypeVar

from rich.status import Status

from streamwork.cli.entry_watcher import EntryWatcher
from streamwork.cli.output import cell, console
from streamwork.epoch import Manifest, Phase, Started
from streamwork.epoch import in_doubt as doubt
from streamwork.errors import printable
from streamwork.run.mode import Mode
from streamwork.run.outcome import NOT_STARTED, Outcome
from streamwork.run.watcher import Watcher
from streamwork.wording import plural

T = TypeVar("T")

PLAIN_SECONDS = 1.0  # the shortest time between two plain lines


def watcher_for(stream: TextIO) -> Watcher:
    return TerminalWatcher(stream) if stream.isatty() else PlainWatcher(stream)


def watched(as_json: bool, work: Callable[[Watcher], T], log_format: str = "text") -> T:
    """Run `work` with a watcher. With --json, standard output is reserved for the result."""
    watcher: Watcher
    if log_format == "json":
        watcher = EntryWatcher(sys.stderr if as_json else sys.stdout)
    else:
        watcher = PlainWatcher(sys.stderr) if as_json else watcher_for(sys.stdout)
    with contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext():
        try:
            return work(watcher)
        finally:
            watcher.close()


class Count:
    """Progress since the start of this run, as text."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._events = 0

    def line(self, manifest: Manifest) -> str:
        self._events += manifest.events
        keys = sum(counters.get("keys", 0) for counters in manifest.counters.values())
        rate = plural(round(self._events / max(1e-9, time.monotonic() - self._began)), "event")
        return f"checkpoint {manifest.epoch} · {plural(self._events, 'event')} · {rate}/s · {plural(keys, 'key')}"


class PlainWatcher:
    """Prints lines, for logs and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = -PLAIN_SECONDS
        self._pending: str | None = None

    def on_starting(self, job: str, mode: Mode, root: Path) -> None:
        self._say(starting_line(job, mode, root))

    def on_started(self, job: str, started: Started) -> None:
        for line in started_lines(started):
            self._say(line)
        self._count = Count()

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if phase is Phase.COMPLETE and manifest is not None:
            self._pending = self._count.line(manifest)
            if time.monotonic() - self._shown >= PLAIN_SECONDS:
                self._flush()

    def on_note(self, line: str) -> None:
        self._flush()
        self._say(line)

    def on_end(self, outcome: Outcome) -> None:
        self._flush()
        for line in end_lines(outcome):
            self._say(line)

    def close(self) -> None:
        """Nothing to restore."""

    def _flush(self) -> None:
        if self._pending is not None:
            self._say(self._pending)
            self._pending, self._shown = None, time.monotonic()

    def _say(self, line: str) -> None:
        print(printable(line), file=self._stream, flush=True)


class TerminalWatcher:
    """Shows one changing line on a terminal."""

    def __init__(self, stream: TextIO) -> None:
        self._console = console(stream)
        self._status: Status | None = None

    def on_starting(self, job: str, mode: Mode, root: Path) -> None:
        self.on_note(starting_line(job, mode, root))
        what = "starting Spark ..." if mode.on_spark else "starting ..."
        self._status = self._console.status(what)
        self._status.start()

    def on_started(self, job: str, started: Started) -> None:
        for line in started_lines(started):
            self.on_note(line)
        self._show("waiting for events")
        self._count = Count()

    def on_phase(self, phase: Phase, epoch: int, manifest: Manifest | None) -> None:
        if phase is Phase.COMPLETE and manifest is not None:
            self._show(self._count.line(manifest))

    def on_note(self, line: str) -> None:
        self._console.print(cell(line), soft_wrap=True)

    def on_end(self, outcome: Outcome) -> None:
        self.close()
        for line in end_lines(outcome):
            self.on_note(line)

    def close(self) -> None:
        if self._status is not None:
            self._status.stop()
            self._status = None

    def _show(self, line: str) -> None:
        if self._status is not None:
            self._status.update(line)


def starting_line(job: str, mode: Mode, root: Path) -> str:
    return f"job {job} ({mode.value}), root {root}"


def started_lines(started: Started) -> list[str]:
    """How it started, and what recovery found and did."""
    if started.new:
        return ["new", *started.story]
    return [f"resumed at checkpoint {started.resumed_at}", *started.story]


def end_lines(outcome: Outcome) -> list[str]:
    """The input events, and how many events were dropped, dead letters, retried or late in any component."""
    if outcome.started == NOT_STARTED:
        return [f"{NOT_STARTED}; the last checkpoint is {outcome.checkpoint}"]
    lost = f", {outcome.dropped:,} dropped" if outcome.dropped else ""
    lost += f", {plural(outcome.dead_letters, 'dead letter')}" if outcome.dead_letters else ""
    lost += f", {plural(outcome.retried, 'retry', 'retries')}" if outcome.retried else ""
    lost += f", {outcome.late:,} late" if outcome.late else ""
    end = f"stopped at checkpoint {outcome.checkpoint}: {plural(outcome.events, 'event')}{lost} in {outcome.seconds:.1f} s"
    return [*doubt.lines(outcome.in_doubt), end]
