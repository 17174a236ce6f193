"""`States`: the state browser. It answers as `streamwork serve` does, and follows a job only while there are questions about it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

from streamwork.query.answer import Selection
from streamwork.query.server.followed import Jobs
from streamwork.query.server.routes import Questions
from streamwork.serving.application import unknown_route
from streamwork.serving.http import Request, Response
from streamwork.serving.limits import Limits
from streamwork.world import Clock

QUESTIONS = ("state", "range", "windows", "count", "sql")
MOST = 4
"""Jobs that are followed at a time, unless more questions are being answered at this moment."""
IDLE = 300.0
"""Seconds after the last question about a job until it is followed no more."""
OPEN_SECONDS = 30.0
"""How long the first question waits until the state has been read."""


class States:
    def __init__(self, root: Path, limits: Limits, report: Callable[[str], None], clock: Clock) -> None:
        self._jobs = Jobs(root, eager=False)
        self._questions = Questions(self._jobs, limits, report)
        self._clock = clock
        self._asked: dict[str, float] = {}  # job -> time of the last question
        self._busy: Counter[str] = Counter()  # job -> questions that are being answered

    async def answer(self, request: Request, job: str, rest: list[str]) -> Response:
        if not rest or rest[0] not in QUESTIONS:
            raise unknown_route(["api", "jobs", job, "query", *rest])
        self._busy[job] += 1
        self._asked[job] = self._clock.monotonic()
        try:
            for other in self._too_long():
                del self._asked[other]
                await self._questions.application.at_work(partial(self._jobs.forget, other))
            await self._jobs.get(job).changed(Selection(), 0, OPEN_SECONDS)
            found = self._questions.below_jobs(request, [job, *rest])
            return await found if inspect.isawaitable(found) else found
        finally:
            self._busy[job] -= 1

    def _too_long(self) -> list[str]:
        """Jobs to forget: the last question was long ago, or there are too many; the oldest question first."""
        free = sorted((job for job in self._asked if not self._busy[job]), key=lambda job: self._asked[job])
        most, now = max(0, len(self._asked) - MOST), self._clock.monotonic()
        return [job for place, job in enumerate(free) if place < most or now - self._asked[job] > IDLE]

    def close(self) -> None:
        self._questions.application.close()
        self._questions.close()
        self._jobs.close()
