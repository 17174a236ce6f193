"""A console in a thread, and raw requests to it."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streamwork.console.application import ConsoleServer
from streamwork.serving.access import Endpoint, Token
from streamwork.serving.limits import Limits
from streamwork.serving.server import Listening

SECRET = "a-secret-for-tests"
EVERY = 0.05


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Of an error, which has a cause and an action."""
        answer = self.json
        assert set(answer) == {"error"} and set(answer["error"]) == {"code", "cause", "action"}, answer
        assert all(answer["error"].values())
        return str(answer["error"]["code"])


@dataclass
class Served:
    url: str
    root: Path
    problems: list[str] = field(default_factory=list)

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ask(
        self, path: str, method: str = "GET", body: Any = None, token: str | None = SECRET, **headers: str
    ) -> Answer:
        """Names of headers are written with _ for -."""
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        if token is not None:
            given["Authorization"] = f"Bearer {token}"
        data = None if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        try:
            connection.request(method, path, data, given)
            response = connection.getresponse()
            found = {name.lower(): value for name, value in response.getheaders()}
            return Answer(response.status, found, response.read())
        finally:
            connection.close()

    def get(self, path: str) -> Any:
        answer = self.ask(path)
        assert answer.status == 200, answer.body
        return answer.json

    def cookie(self) -> str:
        """A browser's session."""
        answer = self.ask("/session", "POST", {"token": SECRET}, None, Origin=self.url)
        assert answer.status == 204
        return answer.headers["set-cookie"].partition(";")[0]

    @contextlib.contextmanager
    def events(self, path: str) -> Iterator[Iterator[tuple[str, Any]]]:
        """(event, data), as they come."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        connection.request("GET", path, headers={"Cookie": self.cookie()})
        response = connection.getresponse()
        assert response.status == 200 and response.headers["content-type"] == "text/event-stream"
        try:
            yield _events(response)
        finally:
            connection.close()


def _events(response: http.client.HTTPResponse) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in response:
        text = line.decode().rstrip("\n")
        if text.startswith("event: "):
            name = text.removeprefix("event: ")
        elif text.startswith("data: "):
            yield name, json.loads(text.removeprefix("data: "))


@contextlib.contextmanager
def showing(
    root: Path, allow_actions: bool = False, limits: Limits | None = None, listen: str = "0", **options: Any
) -> Iterator[Served]:
    problems: list[str] = []
    console = ConsoleServer(root, limits or Limits(), problems.append, allow_actions, every=EVERY, **options)
    listening = Listening(console.application, Endpoint.parse(listen), Token(SECRET, "a test"))
    with listening.in_thread() as url:
        try:
            yield Served(url, root, problems)
        finally:
            console.close()
    assert problems == []
