"""`Route`: one kind of request below /api, and `Asked`: such a request."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from streamwork.errors import WrongUse
from streamwork.serving.http import malformed
from streamwork.world import Clock


@dataclass(frozen=True)
class Asked:
    """A request whose path fits a route. `names` are the parts of the path that the route's pattern names."""

    root: Path
    clock: Clock
    names: Mapping[str, str]
    parameters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    body: bytes = b""

    @property
    def job(self) -> str:
        """A job of the root."""
        return self.names["job"]

    def whole(self, name: str) -> int:
        """A number in the path."""
        text = self.names[name]
        if not (text.isascii() and text.isdigit() and len(text) <= 12):
            raise malformed(f"{text[:40]!r} is not the number of an {name}")
        return int(text)

    def text(self, name: str, default: str | None = None) -> str | None:
        """A parameter of the query string that is given at most once."""
        found = self.parameters.get(name, ())
        if len(found) > 1:
            raise malformed(f"{name} is given more than once")
        return found[0] if found else default

    def number(self, name: str, default: float, least: float = 0, most: float = math.inf) -> float:
        text = self.text(name)
        try:
            found = default if text is None else float(text)
        except ValueError:
            found = math.nan
        if not least <= found <= most:
            raise malformed(f"{name}={str(text)[:40]} is not a number from {least:g} to {most:g}")
        return found

    def content(self, kind: type[Any]) -> Any:
        """The JSON body, as a value of this type."""
        try:
            return msgspec.json.decode(self.body or b"{}", type=kind)
        except msgspec.MsgspecError as error:
            raise malformed(f"the body cannot be read: {error}") from None


Handler = Callable[[Asked], Any]


@dataclass(frozen=True)
class Route:
    """`pattern` is a path below /api, in which {name} is any one part, such as ``jobs/{job}/epochs/{epoch}``. `takes` names the
    parameters of its query string. The handler runs in a thread; what it returns becomes JSON. An `action` changes a job.
    """

    method: str
    pattern: str
    handler: Handler
    takes: tuple[str, ...] = ()
    action: bool = False

    def fits(self, segments: Sequence[str]) -> dict[str, str] | None:
        """The named parts of a path; None if it is another one."""
        parts = self.pattern.split("/")
        if len(parts) != len(segments):
            return None
        found = {}
        for part, segment in zip(parts, segments, strict=True):
            if part.startswith("{"):
                if not segment:
                    return None
                found[part[1:-1]] = segment
            elif part != segment:
                return None
        return found

    def check(self, parameters: Mapping[str, Sequence[str]]) -> None:
        for name in parameters:
            if name not in self.takes:
                known = ", ".join(self.takes) or "nothing"
                raise malformed(f"{name[:40]!r} is not known here, which takes {known}")


def get(pattern: str, handler: Handler, *takes: str) -> Route:
    return Route("GET", pattern, handler, takes)


def post(pattern: str, handler: Handler) -> Route:
    """An action."""
    return Route("POST", pattern, handler, action=True)


def find(routes: Sequence[Route], method: str, segments: Sequence[str]) -> tuple[Route, dict[str, str]]:
    """The route of a request. Refuses an unknown path (SW-SERVE-ROUTE) or method (SW-SERVE-METHOD)."""
    fitting = [(route, names) for route in routes if (names := route.fits(segments)) is not None]
    if not fitting:
        shown = "/".join(["", "api", *segments])[:80]
        raise WrongUse("SW-SERVE-ROUTE", f"there is nothing at {shown!r}", "see docs/console-api.md for what there is")
    for route, names in fitting:
        if route.method == method:
            return route, names
    known = " or ".join(route.method for route, _ in fitting)
    raise WrongUse("SW-SERVE-METHOD", f"{method} does not work here", f"use {known}")
