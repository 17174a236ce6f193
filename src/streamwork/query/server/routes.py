"""The routes of the server.

GET  /health                         answers whenever the server runs; needs no token
GET  /openapi.json                   describes all of this
GET  /jobs                           the jobs that can be asked
GET  /state                          components, the names and types of their keys and fields
GET  /state/COMPONENT/KEY...         one key
POST /state/COMPONENT                many keys
GET  /range/COMPONENT                keys in order: from, to, prefix, after, limit
GET  /windows/COMPONENT/KEY...       the windows of a key: since, until, limit
GET  /scan/COMPONENT                 all keys, in no order
GET  /count/COMPONENT                how many keys there are
GET  /watch/COMPONENT/KEY...         server-sent events: the changes of a component, or of a key, checkpoint by checkpoint
POST /sql                            a SELECT, in which each component is a table

Where a server answers for several jobs, /jobs/JOB stands before each. All of them take at, consistency, at_least and timeout.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from streamwork.query.answer import Consistency, Selection, Stamp
from streamwork.query.local import many as many_rows
from streamwork.query.local import rows as some_rows
from streamwork.query.server import asked, encoding
from streamwork.query.server.followed import Followed, Jobs
from streamwork.query.server.openapi import document
from streamwork.query.shape import Shape
from streamwork.query.sql.parent import SqlChild
from streamwork.query.sql.wire import SqlLimits
from streamwork.query.state import Span
from streamwork.query.version import Version
from streamwork.query.watching import Watch, watched
from streamwork.serving.application import Application, Route, unknown_route
from streamwork.serving.http import ARROW, EVENTS, Request, Response, too_large
from streamwork.serving.limits import Limits

PULSE = 10.0
"""Seconds between two signs of life of an answer that goes on."""
FEW_KEYS = 256
"""So many keys are found on the event loop, which is faster than a thread."""
T = TypeVar("T")
Found = Response | Awaitable[Response]
Asked = Callable[[Request, Followed, list[str]], Found]


class Further(NamedTuple):
    """Routes that a package above this one adds to a server."""

    routes: Callable[[Application], Mapping[str, Route]]
    paths: Mapping[str, Any]  # of the OpenAPI document


class Questions:
    """The routes for the jobs of a root."""

    def __init__(
        self,
        jobs: Jobs,
        limits: Limits,
        report: Callable[[str], None],
        sql: SqlLimits | None = None,
        further: Further | None = None,
    ) -> None:
        self._jobs = jobs
        self._about_a_job: Mapping[str, Mapping[str, Asked]] = {
            "state": {"GET": self._state, "POST": self._many},
            "range": {"GET": self._range},
            "windows": {"GET": self._windows},
            "scan": {"GET": self._scan},
            "count": {"GET": self._count},
            "sql": {"POST": self._sql},
            "watch": {"GET": self._watch},
        }
        self._child = SqlChild(sql)
        self._child_is_free = asyncio.Semaphore()
        routes = {name: Route(self._for_the_job(handlers)) for name, handlers in self._about_a_job.items()}
        routes["health"] = Route({"GET": self._health}, open=True)
        routes["openapi.json"] = Route({"GET": self._document})
        routes["jobs"] = Route({"GET": self.below_jobs, "POST": self.below_jobs})
        self.application = Application(routes, limits, report)
        self._further = further
        if further is not None:
            routes.update(further.routes(self.application))

    # ---- about the server -----------------------------------------------------------------------------------------

    def _health(self, request: Request, rest: list[str]) -> Response:
        _end(rest)
        return encoding.in_json({"ok": True})

    def _document(self, request: Request, rest: list[str]) -> Response:
        _end(rest)
        found = document()
        if self._further is not None:
            found["paths"].update(self._further.paths)
        return encoding.in_json(found)

    def below_jobs(self, request: Request, rest: list[str]) -> Found:
        """The answer to a request at /jobs/REST."""
        if not rest or rest == [""]:
            return encoding.in_json({"jobs": self._jobs.names()})
        handlers = self._about_a_job.get(rest[1]) if len(rest) > 1 else None
        if handlers is None or request.method not in handlers:
            raise unknown_route(["jobs", *rest])
        return handlers[request.method](request, self._jobs.get(rest[0]), rest[2:])

    def _for_the_job(self, handlers: Mapping[str, Asked]) -> dict[str, Callable[[Request, list[str]], Found]]:
        def bound(handler: Asked) -> Callable[[Request, list[str]], Found]:
            return lambda request, rest: handler(request, self._jobs.get(), rest)

        return {method: bound(handler) for method, handler in handlers.items()}

    # ---- questions ------------------------------------------------------------------------------------------------

    def _state(self, request: Request, job: Followed, rest: list[str]) -> Found:
        if not rest:
            return self._components(request, job)
        component, *parts = rest
        asked.check(request, (*asked.SELECTION, "key_json"))
        selection = asked.selection(request)

        def find(version: Version) -> tuple[Shape, Any]:
            state = version.component(component)
            return state.shape, state.pile.get(asked.key(request, state.shape, parts))

        if _is_quick(selection):
            (shape, row), stamp = job.reader.answer(selection, find)
            return encoding.record(shape, row, stamp)
        return self._later(job, selection, find, lambda found, stamp: encoding.record(*found, stamp))

    def _components(self, request: Request, job: Followed) -> Found:
        asked.check(request, asked.SELECTION)
        return self._later(
            job,
            asked.selection(request),
            _described,
            lambda found, stamp: encoding.in_json(found | encoding.origin(stamp)),
        )

    async def _many(self, request: Request, job: Followed, rest: list[str]) -> Response:
        component = _component(rest)
        asked.check(request, asked.SELECTION)
        selection, arrow = asked.selection(request), request.wants(ARROW)
        body = await request.body(self.application.limits.body_bytes)

        def answer(selection: Selection) -> Response:
            def find(version: Version) -> tuple[Shape, list[Any], pa.Table]:
                state = version.component(component)
                keys = asked.keys(body, state.shape)
                if not arrow and len(keys) > encoding.MOST_JSON_ROWS:
                    raise too_large(f"the number of keys, {len(keys):,}, is too large for JSON", f"accept {ARROW}")
                return state.shape, keys, many_rows(state.pile, state.shape.key_batch(keys))

            (shape, keys, table), stamp = job.reader.answer(selection, find)
            return encoding.many(shape, keys, table, stamp, arrow)

        if len(body) <= 16 * FEW_KEYS and _is_quick(selection):
            return answer(selection)
        with self.application.streaming():
            selection = await job.reach(selection)
        return await self.application.at_work(lambda: answer(selection))

    def _range(self, request: Request, job: Followed, rest: list[str]) -> Found:
        component = _component(rest)
        asked.check(request, (*asked.SELECTION, *asked.SPAN))
        return self._rows(request, job, component, lambda shape, most: asked.span(request, shape, most))

    def _windows(self, request: Request, job: Followed, rest: list[str]) -> Found:
        if not rest:
            raise unknown_route(["windows"])
        asked.check(request, (*asked.SELECTION, *asked.WINDOWS))
        return self._rows(request, job, rest[0], lambda shape, most: asked.windows(request, shape, rest[1:], most))

    def _rows(self, request: Request, job: Followed, component: str, span: Callable[[Shape, int], Span]) -> Found:
        arrow = request.wants(ARROW)
        most = encoding.MOST_ARROW_ROWS if arrow else encoding.MOST_JSON_ROWS

        def find(version: Version) -> tuple[Shape, pa.Table, bool]:
            state = version.component(component)
            table, more = some_rows(state.pile, span(state.shape, most))
            return state.shape, table, more

        def tell(found: tuple[Shape, pa.Table, bool], stamp: Stamp) -> Response:
            shape, table, more = found
            return encoding.rows(shape, table, stamp, more, arrow)

        return self._later(job, asked.selection(request), find, tell)

    def _count(self, request: Request, job: Followed, rest: list[str]) -> Found:
        component = _component(rest)
        asked.check(request, asked.SELECTION)
        return self._later(
            job,
            asked.selection(request),
            lambda version: version.component(component).pile.count(),
            lambda count, stamp: encoding.in_json({"count": count, **encoding.origin(stamp)}),
        )

    async def _scan(self, request: Request, job: Followed, rest: list[str]) -> Response:
        component = _component(rest)
        asked.check(request, asked.SELECTION)
        arrow = request.wants(ARROW)

        def find(version: Version) -> Any:
            state = version.component(component)
            if arrow:
                return state.shape, state.pile
            if (count := state.pile.count()) > encoding.MOST_JSON_ROWS:
                raise too_large(
                    f"the number of keys of {component}, {count:,}, is too large for JSON",
                    f"accept {ARROW}, or ask for ranges",
                )
            return state.shape, state.pile.table()

        def tell(found: Any, stamp: Stamp) -> Response:
            shape, rows = found
            if not arrow:
                return encoding.rows(shape, rows, stamp, False, False)
            pieces = encoding.pieces(shape.schema, rows.batches(), {**encoding.origin(stamp), "more": False})
            return Response(kind=ARROW, pieces=self._streamed(pieces))

        return await self._later(job, asked.selection(request), find, tell)

    async def _watch(self, request: Request, job: Followed, rest: list[str]) -> Response:
        if not rest:
            raise unknown_route(["watch"])
        asked.check(request, ("consistency", "key_json", "as"))
        arrow = asked.one(request, "as") == "arrow"
        selection = watched(asked.selection(request))

        def begin() -> tuple[Watch, int]:
            now = job.reader.current(selection)
            shape = now.version.component(rest[0]).shape
            whole = len(rest) == 1 and "key_json" not in request.parameters
            parts = None if whole else asked.key(request, shape, rest[1:])
            return Watch(rest[0], parts, now), now.version.epoch

        self.application.check_streams()
        watch, epoch = await self.application.at_work(begin)
        return Response(kind=EVENTS, pieces=self._events(request, job, selection, watch, epoch, arrow))

    async def _events(
        self, request: Request, job: Followed, selection: Selection, watch: Watch, epoch: int, arrow: bool
    ) -> AsyncIterator[bytes]:
        """Until the client goes away. A comment now and then shows that the connection is alive."""
        gone = asyncio.ensure_future(request.closed())
        try:
            with self.application.streaming(), job.listening() as news:
                yield encoding.began(epoch)
                while not gone.done():
                    news.clear()
                    changes = await self.application.at_work(lambda: watch.next(job.reader.current(selection)))
                    if changes:
                        yield b"".join(encoding.event(change, arrow) for change in changes)
                    waiting = asyncio.ensure_future(news.wait())
                    await asyncio.wait((gone, waiting), timeout=PULSE, return_when=asyncio.FIRST_COMPLETED)
                    if not waiting.cancel():
                        continue
                    yield b": alive\n\n"
        finally:
            gone.cancel()

    async def _sql(self, request: Request, job: Followed, rest: list[str]) -> Response:
        _end(rest)
        asked.check(request, asked.SELECTION)
        arrow = request.wants(ARROW)
        sql = asked.statement(await request.body(self.application.limits.body_bytes))
        selection = asked.selection(request)
        with self.application.streaming():
            selection = await job.reach(selection)
            async with self._child_is_free:

                def work() -> Response:
                    table, stamp = job.reader.answer(selection, lambda version: self._child.answer(version, sql))
                    return encoding.sql_result(table, stamp, arrow)

                return await self.application.at_work(work)

    def close(self) -> None:
        self._child.close()

    # ---- at work --------------------------------------------------------------------------------------------------

    async def _later(
        self, job: Followed, selection: Selection, find: Callable[[Version], T], tell: Callable[[T, Stamp], Response]
    ) -> Response:
        """Wait for the checkpoint, then answer in a thread."""
        if selection.at_least is not None:
            with self.application.streaming():
                selection = await job.reach(selection)

        def work() -> Response:
            found, stamp = job.reader.answer(selection, find)
            return tell(found, stamp)

        return await self.application.at_work(work)

    async def _streamed(self, pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
        """Pieces that are made in threads, one after the other, at the speed of the client."""
        with self.application.streaming():
            while (piece := await self.application.at_work(lambda: next(pieces, None))) is not None:
                yield piece


def _described(version: Version) -> dict[str, Any]:
    found = {}
    for name, known in version.known.items():
        shape = known.shape
        found[name] = {
            "key": {part: str(shape.schema.field(part).type) for part in shape.key},
            "record": {field.name: str(field.type) for field in shape.schema if field.name not in shape.key},
            "class": shape.name,
            "schema": base64.b64encode(shape.schema.serialize().to_pybytes()).decode(),
        }
    return {"components": found}


def _is_quick(selection: Selection) -> bool:
    """True if the answer is in memory."""
    at_once = selection.consistency is not Consistency.LATEST
    return at_once and selection.at is None and selection.at_least is None


def _component(rest: list[str]) -> str:
    if len(rest) != 1 or not rest[0]:
        raise unknown_route(rest)
    return rest[0]


def _end(rest: list[str]) -> None:
    if rest:
        raise unknown_route(rest)
