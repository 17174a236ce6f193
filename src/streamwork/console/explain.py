"""The routes of the page "How a checkpoint works"."""

from __future__ import annotations

from typing import Any

from streamwork.console.reads import about, with_twin
from streamwork.console.routing import Asked, Route, get
from streamwork.observe.explained import explain_epoch
from streamwork.serving.http import malformed
from streamwork.testing.playback import demonstrate

MOST_CRASHES = 3
MOST_SEED = 10**6
MOST_STEP = 10**4


def newest(asked: Asked) -> Any:
    return _explained(asked, None)


def epoch(asked: Asked) -> Any:
    return _explained(asked, asked.whole("epoch"))


def playback(asked: Asked) -> Any:
    seed, crashes = int(asked.number("seed", 1, 0, MOST_SEED)), _crashes(asked.text("crash", "") or "")
    options = "".join(f" --crash-at {step}" for step in crashes)
    return with_twin(demonstrate(seed, crashes), f"streamwork explain --simulate {seed}{options} --json")


def _explained(asked: Asked, number: int | None) -> Any:
    found = explain_epoch(asked.root, asked.job, asked.clock, number)
    return about(asked, found, "explain", found.checkpoint)


def _crashes(text: str) -> list[int]:
    """``39,60``: the steps at which the machine crashes."""
    steps = [int(one) if one.isascii() and one.isdigit() and len(one) < 6 else 0 for one in text.split(",") if one]
    if len(steps) > MOST_CRASHES or not all(0 < step <= MOST_STEP for step in steps):
        raise malformed(f"crash={text[:40]} is not a list of at most {MOST_CRASHES} steps")
    return steps


ROUTES: tuple[Route, ...] = (
    get("jobs/{job}/explain", newest),
    get("jobs/{job}/explain/epochs/{epoch}", epoch),
    get("explain/playback", playback, "seed", "crash"),
)
