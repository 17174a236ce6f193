"""The questions of the pages: each answer is a read model of `observe`, and the command line that prints the same (`cli`)."""

from __future__ import annotations

from typing import Any

import streamwork
from streamwork.console import twins
from streamwork.console.plain import to_plain
from streamwork.console.routing import Asked, Route, get
from streamwork.epoch.history.values import Result
from streamwork.observe.epoch import read_epoch
from streamwork.observe.history import MOST_EPOCHS, MOST_POINTS, POINTS, read_epochs, read_history
from streamwork.observe.job_view import read_job
from streamwork.serving.http import malformed

EPOCHS = 100


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


def version() -> str:
    return streamwork.__version__


ROUTES: tuple[Route, ...] = (
    get("jobs/{job}", job),
    get("jobs/{job}/history", history, "points", "since"),
    get("jobs/{job}/epochs", epochs, "limit", "before", "outcome"),
    get("jobs/{job}/epochs/{epoch}", epoch),
)
