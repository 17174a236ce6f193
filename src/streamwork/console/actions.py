"""What pages may do to a job, if the console was started for it. Each is a command of the command line."""

from __future__ import annotations

from typing import Any

import msgspec

from streamwork.components.duration import seconds
from streamwork.console.commands import printed
from streamwork.console.job_files import JobFiles
from streamwork.console.routing import Asked, Route, post
from streamwork.epoch.job_folder import open_store
from streamwork.observe.dead_letters import DeadLetterBook
from streamwork.run.savepoints import savepoint_of_running
from streamwork.run.stop_request import check_drained, request_stop
from streamwork.serving.http import malformed

MOST_SECONDS = 3600.0
MOST_LETTERS = 1_000
MOST_NOTE = 1_000


class StopAsked(msgspec.Struct, forbid_unknown_fields=True):
    drain: bool = False
    timeout: str = "60s"


class SavepointAsked(msgspec.Struct, forbid_unknown_fields=True):
    name: str
    note: str = ""
    timeout: str = "10min"


class ReplayAsked(msgspec.Struct, forbid_unknown_fields=True):
    """Some letters, or all; of one component, if it is named."""

    ids: list[str] = []
    all: bool = False
    component: str | None = None


class Actions:
    """The routes of actions."""

    def __init__(self, files: JobFiles) -> None:
        self._files = files
        self.routes: tuple[Route, ...] = (
            post("jobs/{job}/stop", stop),
            post("jobs/{job}/savepoints", self.savepoint),
            post("jobs/{job}/dead-letters/replay", self.replay),
        )

    def savepoint(self, asked: Asked) -> Any:
        """A running job makes it itself. For a job at rest a process with the job's code takes the fence."""
        given: SavepointAsked = asked.content(SavepointAsked)
        wait, store = _seconds(given.timeout), open_store(asked.root, asked.job)
        if len(given.note) > MOST_NOTE:
            raise malformed(f"the note is longer than {MOST_NOTE:,} characters")
        made = savepoint_of_running(asked.job, store, given.name, given.note, wait, asked.clock)
        if made is not None:
            return made
        about = ("--root", str(asked.root))
        target = self._files.of(asked.job, ("savepoint", "create", *about, "JOBFILE", given.name))
        options = ("--note", given.note, "--timeout", given.timeout, "--json")
        return printed(("savepoint", "create", *about, *options, "--", target, given.name), wait + MOST_SECONDS)

    def replay(self, asked: Asked) -> Any:
        given: ReplayAsked = asked.content(ReplayAsked)
        if given.all == bool(given.ids) or (given.component is not None and not given.all):
            raise malformed('which letters? name their "ids", or say "all": true, with or without a "component"')
        if len(given.ids) > MOST_LETTERS:
            raise malformed(f"at most {MOST_LETTERS:,} letters can be named")
        book = DeadLetterBook(asked.root, asked.job)
        if given.component is not None:
            book.check_component(given.component)
        letters = [one.letter.id for one in book.find(given.ids)]  # refuses unknown ones
        chosen = ["--all"] if given.all else []
        chosen += [] if given.component is None else ["--component", given.component]
        about = ("--root", str(asked.root))
        target = self._files.of(asked.job, ("dead-letters", "replay", *about, *chosen, "JOBFILE", *letters[:3]))
        return printed(("dead-letters", "replay", *about, *chosen, "--json", "--", target, *letters), MOST_SECONDS)


def stop(asked: Asked) -> Any:
    given: StopAsked = asked.content(StopAsked)
    stopped = request_stop(asked.root, asked.job, _seconds(given.timeout), asked.clock, drain=given.drain)
    if given.drain:
        check_drained(stopped)
    return stopped


def _seconds(text: str) -> float:
    found = seconds(text)
    if not 0 <= found <= MOST_SECONDS:
        raise malformed(f"a timeout of {text[:20]} is longer than {MOST_SECONDS:g} s")
    return found
