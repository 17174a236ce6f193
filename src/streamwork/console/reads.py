"""The questions of the pages: each answer is a read model of `observe`, and the command line that prints the same (`cli`)."""

from __future__ import annotations

from importlib import metadata
from typing import Any

from streamwork.console import twins
from streamwork.console.plain import to_plain
from streamwork.console.routing import Asked, Route, get
from streamwork.epoch.history.values import Result
from streamwork.epoch.job_folder import open_store
from streamwork.epoch.savepoints import FOLDER
from streamwork.job.names import check_name
from streamwork.observe.dead_letters import read_letter, read_letters
from streamwork.observe.epoch import read_epoch
from streamwork.observe.history import MOST_EPOCHS, MOST_POINTS, POINTS, read_epochs, read_history
from streamwork.observe.job_log import read_log
from streamwork.observe.job_view import read_job
from streamwork.observe.savepoints import read_savepoint, read_savepoints
from streamwork.serving.http import malformed

EPOCHS = 100
LETTERS = 100
MOST_LETTERS = 1_000
LOG_ENTRIES = 200
MOST_LOG_ENTRIES = 2_000


def with_twin(found: Any, cli: str) -> dict[str, Any]:
    return {**to_plain(found), "cli": cli}


def about(asked: Asked, found: Any, *command: object) -> dict[str, Any]:
    return with_twin(found, twins.about(asked.root, asked.job, *command))


def job(asked: Asked) -> Any:
    return about(asked, read_job(asked.root, asked.job, asked.clock, watch=False), "status", "--graph")


def history(asked: Asked) -> Any:
    points, since = int(asked.number("points", POINTS, 2, MOST_POINTS)), asked.number("since", 0.0)
    return about(asked, read_history(asked.root, asked.job, since, points), "history", "--points", points)


def epochs(asked: Asked) -> Any:
    last = int(asked.number("limit", EPOCHS, 1, MOST_EPOCHS))
    before = None if asked.text("before") is None else int(asked.number("before", 0))
    given = asked.text("outcome")
    outcome = next((one for one in Result if one.value == given), None)
    if given is not None and outcome is None:
        raise malformed(f"outcome={given[:40]} is not one of {', '.join(one.value for one in Result)}")
    options = ["--epochs", last]
    options += [] if before is None else ["--before", before]
    options += [] if outcome is None else ["--outcome", outcome.value]
    return about(asked, read_epochs(asked.root, asked.job, last, before, outcome), "history", *options)


def epoch(asked: Asked) -> Any:
    number = asked.whole("epoch")
    return about(asked, read_epoch(asked.root, asked.job, number, asked.clock), "checkpoints", "--show", number)


def letters(asked: Asked) -> Any:
    last, component, after = (
        int(asked.number("limit", LETTERS, 1, MOST_LETTERS)),
        asked.text("component"),
        asked.text("after"),
    )
    options: list[object] = ["--last", last]
    options += [] if component is None else ["--component", component]
    options += [] if after is None else ["--after", after]
    if component is not None:
        check_name(component, "component")
    found = read_letters(asked.root, asked.job, last, component, after)
    return about(asked, found, "dead-letters list", *options)


def letter(asked: Asked) -> Any:
    given = asked.text("id")
    if given is None:
        raise malformed("which letter? id= is missing")
    check_name(given.partition("/")[0], "component")
    return about(asked, read_letter(asked.root, asked.job, given), "dead-letters show", given)


def log(asked: Asked) -> Any:
    """The entries of failures have the traceback of the task."""
    last, errors = int(asked.number("last", LOG_ENTRIES, 1, MOST_LOG_ENTRIES)), asked.number("errors", 0, 0, 1) == 1
    options = ["--last", last, *(["--errors"] if errors else [])]
    return about(asked, read_log(asked.root, asked.job, last, errors), "logs", *options)


def savepoints(asked: Asked) -> Any:
    return about(asked, read_savepoints(asked.root, asked.job), "savepoint list")


def savepoint(asked: Asked) -> Any:
    name = check_name(asked.names["name"], "savepoint")
    store = open_store(asked.root, asked.job)
    return about(asked, read_savepoint(store.disk, store.folder / FOLDER / name), "savepoint show", name)


def version() -> str:
    return metadata.version("streamwork")


ROUTES: tuple[Route, ...] = (
    get("jobs/{job}", job),
    get("jobs/{job}/history", history, "points", "since"),
    get("jobs/{job}/epochs", epochs, "limit", "before", "outcome"),
    get("jobs/{job}/epochs/{epoch}", epoch),
    get("jobs/{job}/dead-letters", letters, "component", "limit", "after"),
    get("jobs/{job}/dead-letters/one", letter, "id"),
    get("jobs/{job}/log", log, "last", "errors"),
    get("jobs/{job}/savepoints", savepoints),
    get("jobs/{job}/savepoints/{name}", savepoint),
)
