"""A server of queryable state in a thread, and raw requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from query.query_jobs import Sums
from streamwork import query
from streamwork.query.answer import Selection
from streamwork.query.remote import RemoteState
from streamwork.query.server.followed import Jobs
from streamwork.query.server.routes import Questions
from streamwork.query.sql.wire import SqlLimits
from streamwork.serving.access import Endpoint, Token
from streamwork.serving.limits import Limits
from streamwork.serving.server import Listening

SECRET = "a-secret-for-tests"


@dataclass
class Served:
    url: str
    jobs: Jobs
    problems: list[str]

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def connect(self, **options: Any) -> RemoteState:
        return query.connect(self.url, SECRET, **{"types": {"by-shop": Sums}, **options})

    def ask(
        self, path: str, method: str = "GET", body: bytes | None = None, token: str | None = SECRET, **headers: str
    ) -> tuple[int, Any]:
        """(status, the JSON of the answer)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            if token is not None:
                headers["Authorization"] = f"Bearer {token}"
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def refused(self, path: str, *given: Any, **options: Any) -> tuple[int, str]:
        """(status, code) of an error, which has a cause and an action."""
        status, answer = self.ask(path, *given, **options)
        assert set(answer) == {"error"} and set(answer["error"]) == {"code", "cause", "action"}, answer
        assert all(answer["error"].values())
        return status, answer["error"]["code"]

    def follow(self, epoch: int, job: str = "sales") -> None:
        """Wait until the server has read a checkpoint."""
        wait_for(lambda: self.jobs.get(job).epoch(Selection()) >= epoch)


@contextlib.contextmanager
def serving(
    root: Path,
    only: str | None = None,
    limits: Limits | None = None,
    listen: str = "0",
    cache: Path | None = None,
    sql: SqlLimits | None = None,
) -> Iterator[Served]:
    jobs, problems = Jobs(root, only, cache or root.parent / "cache"), []
    questions = Questions(jobs, limits or Limits(), problems.append, sql)
    listening = Listening(questions.application, Endpoint.parse(listen), Token(SECRET, "a test"))
    with listening.in_thread() as url:
        try:
            yield Served(url, jobs, problems)
        finally:
            questions.close()
            jobs.close()
    assert problems == []


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)
