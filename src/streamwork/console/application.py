"""`ConsoleServer`: the console, as one application of `serving`.

GET  /, /static/...            the pages; they hold no data, and need no token
POST /session                  a browser swaps the token for a cookie; GET: is there one?; DELETE: forget it
GET  /api, /api/overview       the server; all jobs of the root
GET  /api/jobs/JOB/...         about a job (`routes`)
...  /api/jobs/JOB/query/...   its state, by the routes of `streamwork serve` (`query.server`)
GET  /api/events, /api/jobs/JOB/events     server-sent events
POST /api/jobs/JOB/...         actions, only if the server was started for them
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from streamwork.console import decoders, events, pages, twins
from streamwork.console.actions import Actions
from streamwork.console.background import in_daemon
from streamwork.console.job_files import JobFiles
from streamwork.console.overviews import Overviews
from streamwork.console.plain import in_json
from streamwork.console.poller import EVERY, Poller
from streamwork.console.reads import about, version, with_twin
from streamwork.console.routes import ROUTES
from streamwork.console.routing import Asked, find
from streamwork.console.states import States
from streamwork.errors import Refused, WrongUse
from streamwork.job.names import is_name
from streamwork.observe.job_view import JobView, read_job
from streamwork.observe.summary import Overview
from streamwork.serving import application as serving
from streamwork.serving.http import Request, Response, busy, failed, malformed
from streamwork.serving.limits import Limits
from streamwork.world import Clock, RealClock, inside

MOST_BODY = 1 << 20
MOST_ACTIONS = 8
Found = Response | Awaitable[Response]


class ConsoleServer:
    """The pages and the JSON for the jobs of one root."""

    def __init__(
        self,
        root: Path,
        limits: Limits,
        report: Callable[[str], None],
        allow_actions: bool = False,
        job_files: Sequence[str] = (),
        clock: Clock | None = None,
        every: float = EVERY,
    ) -> None:
        """`job_files` are for actions that need a job's code: JOBFILE or JOBFILE:NAME. `every` is how often, in seconds, the files
        are read for events.
        """
        decoders.prepare()
        self.root = root
        self.clock = clock or RealClock()
        self.allow_actions = allow_actions
        self._routes = (*ROUTES, *Actions(JobFiles(job_files)).routes)
        self._acting = 0
        self._overviews = Overviews(root, self.clock)
        self._poller: Poller[Overview | JobView] = Poller(self._read, events.same, self.clock, every)
        self._states = States(root, limits, report, self.clock)
        self.application = serving.Application(
            {
                "": serving.Route({"GET": pages.index}, open=True),
                "static": serving.Route({"GET": pages.static}, open=True),
                "session": serving.Route({"POST": self._begin, "GET": self._session, "DELETE": self._end}, open=True),
                "api": serving.Route({"GET": self._api, "POST": self._api}),
            },
            limits,
            report,
            pages.HEADERS,
            has_pages=True,
        )

    def close(self) -> None:
        self._poller.close()
        self._states.close()

    # ---- the session of a browser ---------------------------------------------------------------------------------

    async def _begin(self, request: Request, rest: list[str]) -> Response:
        """The token is in the body, so in no log of addresses."""
        _nothing_behind(rest)
        guard, body = self._guard(), await request.body(MOST_BODY)
        try:
            given = msgspec.json.decode(body, type=dict[str, str]).get("token", "")
        except msgspec.MsgspecError:
            raise malformed('the body is not {"token": "..."}') from None
        guard.check_token(given)
        assert guard.sessions is not None
        return Response(204, headers=((b"set-cookie", guard.sessions.begin()),))

    def _session(self, request: Request, rest: list[str]) -> Response:
        _nothing_behind(rest)
        sessions = self._guard().sessions
        return in_json({"session": sessions is not None and sessions.holds(request.header(b"cookie"))})

    def _end(self, request: Request, rest: list[str]) -> Response:
        _nothing_behind(rest)
        sessions = self._guard().sessions
        assert sessions is not None
        return Response(204, headers=((b"set-cookie", sessions.end()),))

    def _guard(self) -> Any:
        assert self.application.guard is not None
        return self.application.guard

    # ---- JSON -----------------------------------------------------------------------------------------------------

    def _api(self, request: Request, rest: list[str]) -> Found:
        if rest == ["events"]:
            return events.stream(
                request, self.application, self._poller, events.ROOT, events.OverviewEvents(self.clock)
            )
        if len(rest) == 3 and rest[0] == "jobs" and rest[2] == "events":
            return self._job_events(request, rest[1])
        if len(rest) >= 3 and rest[0] == "jobs" and rest[2] == "query":
            self._check_job(rest[1])
            return self._states.answer(request, rest[1], rest[3:])
        if not rest or rest == ["overview"]:
            return self._about_root(request, rest)
        return self._ask(request, rest)

    def _about_root(self, request: Request, rest: list[str]) -> Found:
        if request.method != "GET":
            raise WrongUse("SW-SERVE-METHOD", f"{request.method} does not work here", "use GET")
        if rest:
            return self._later(lambda: with_twin(self._overviews.read(), twins.overview(self.root)))
        return in_json(
            {
                "version": version(),
                "root": str(self.root),
                "actions": self.allow_actions,
                "at": self.clock.now(),
                "cli": twins.console(self.root),
            }
        )

    async def _ask(self, request: Request, rest: list[str]) -> Response:
        route, names = find(self._routes, request.method, rest)
        if route.action and not self.allow_actions:
            raise Refused(
                "SW-CONSOLE-READ-ONLY",
                "this console only shows; it changes nothing",
                "start it with --allow-actions, or use the command line",
            )
        route.check(request.parameters)
        self._check_job(names.get("job"))
        body = await request.body(MOST_BODY) if route.method == "POST" else b""
        asked = Asked(self.root, self.clock, names, request.parameters, body)
        if route.action:
            return await self._act(lambda: route.handler(asked))
        return await self._later(lambda: route.handler(asked))

    async def _act(self, work: Callable[[], Any]) -> Response:
        """In a thread of its own: an action may wait for long, and must neither hold up questions nor the end of the server."""
        if self._acting >= MOST_ACTIONS:
            raise busy("too many actions are under way")
        self._acting += 1
        try:
            return in_json(await in_daemon(work))
        except Refused as error:  # repeating it does not help
            return failed(error, 409)
        finally:
            self._acting -= 1

    async def _later(self, work: Callable[[], Any]) -> Response:
        return await self.application.at_work(lambda: in_json(work()))

    def _check_job(self, name: str | None) -> None:
        """Refuse what is not a job of the root (SW-QUERY-JOB)."""
        if name is None:
            return
        if not is_name(name) or not (inside(self.root, name) / "job.json").is_file():
            raise WrongUse("SW-QUERY-JOB", f"there is no job named {name[:80]!r}", "/api/overview lists the jobs")

    # ---- what changes ---------------------------------------------------------------------------------------------

    def _job_events(self, request: Request, name: str) -> Response:
        self._check_job(name)
        asked = Asked(self.root, self.clock, {"job": name})

        def made(found: JobView) -> tuple[str, Any]:
            return "job", about(asked, found, "status", "--graph")

        return events.stream(request, self.application, self._poller, name, made)

    def _read(self, topic: str) -> Overview | JobView:
        if topic == events.ROOT:
            return self._overviews.read()
        return read_job(self.root, topic, self.clock, watch=False)


def _nothing_behind(rest: list[str]) -> None:
    if rest:
        raise serving.unknown_route(["session", *rest])
