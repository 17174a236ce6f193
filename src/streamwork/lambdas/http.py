"""The merged view over HTTP: further routes of the query server (`streamwork lambda serve`).

GET  /merged/KEY...     the answer for one key
POST /merged            many keys: {"keys": [...]}; all from one batch run and one checkpoint
GET  /merged            all keys; JSON up to its limit of rows, or Arrow
GET  /merged-stand      what answers are made of

Every answer says which part of it is exact: `exact` is of the batch run alone, up to the seam, `recent` of the streaming job alone,
behind it; `is_exact` is true if nothing of the key came behind the seam.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import msgspec
import pyarrow as pa

from streamwork.components.schema import arrow_schema
from streamwork.lambdas.view import MergedAnswer, View
from streamwork.query.server import asked, encoding
from streamwork.query.server.openapi import merged_paths
from streamwork.query.server.routes import Further
from streamwork.serving.application import Application, Route, unknown_route
from streamwork.serving.http import ARROW, Request, Response, too_large
from streamwork.statefiles.plain_values import plain, plain_rows

T = TypeVar("T")


class MergedRoutes:
    """Answers from a view, one question at a time. `opened` opens the view at the first question: the job may not have run yet."""

    def __init__(self, opened: Callable[[], View[Any]]) -> None:
        self._opened = opened
        self._view: View[Any] | None = None
        self._lock = threading.Lock()

    def further(self) -> Further:
        return Further(
            lambda application: {
                "merged": Route(
                    {
                        "GET": lambda request, rest: self._get(application, request, rest),
                        "POST": lambda request, rest: self._many(application, request, rest),
                    }
                ),
                "merged-stand": Route({"GET": lambda request, rest: self._stand(application, request, rest)}),
            },
            merged_paths(),
        )

    def close(self) -> None:
        with self._lock:
            if self._view is not None:
                self._view.close()

    async def _get(self, application: Application, request: Request, rest: list[str]) -> Response:
        asked.check(request, ("key_json",))
        text = asked.one(request, "key_json")
        if not rest and text is None:
            return await self._all(application, request)

        def work(view: View[Any]) -> Response:
            key = view.key_of_plain(asked.decoded(text)) if text is not None else view.key_of(rest)
            return encoding.in_json(_of(view.get(key)))

        return await application.at_work(lambda: self._with(work))

    async def _many(self, application: Application, request: Request, rest: list[str]) -> Response:
        if rest:
            raise unknown_route(["merged", *rest])
        body = await request.body(application.limits.body_bytes)
        given = asked.plain_keys(body)

        def work(view: View[Any]) -> Response:
            keys = [view.key_of_plain(one) for one in given]
            if len(keys) > encoding.MOST_JSON_ROWS:
                raise too_large(f"the number of keys, {len(keys):,}, is too large", "ask for fewer at a time")
            answers = view.get_many(keys)
            stand = msgspec.to_builtins(answers[0].stand if answers else view.stand())
            rows = [{"key": one, **_parts(answer)} for one, answer in zip(given, answers, strict=True)]
            return encoding.in_json({"rows": rows, "stand": stand})

        return await application.at_work(lambda: self._with(work))

    async def _all(self, application: Application, request: Request) -> Response:
        arrow = request.wants(ARROW)

        def work(view: View[Any]) -> Response:
            table: pa.Table = view.table()
            if arrow:
                return encoding.table_as_arrow(table, {})
            if table.num_rows > encoding.MOST_JSON_ROWS:
                raise too_large(f"the number of keys, {table.num_rows:,}, is too large for JSON", f"accept {ARROW}")
            return encoding.in_json({"rows": list(plain_rows(table))})

        return await application.at_work(lambda: self._with(work))

    async def _stand(self, application: Application, request: Request, rest: list[str]) -> Response:
        if rest:
            raise unknown_route(["merged-stand", *rest])
        asked.check(request, ())
        return await application.at_work(
            lambda: self._with(lambda view: encoding.in_json(msgspec.to_builtins(view.stand())))
        )

    def _with(self, work: Callable[[View[Any]], T]) -> T:
        """A view follows new runs while it answers, so it is used by one thread at a time."""
        with self._lock:
            if self._view is None:
                self._view = self._opened()
            return work(self._view)


def _of(answer: MergedAnswer[Any]) -> dict[str, Any]:
    return {**_parts(answer), "stand": msgspec.to_builtins(answer.stand)}


def _parts(answer: MergedAnswer[Any]) -> dict[str, Any]:
    named: Sequence[tuple[str, Any]] = (("record", answer.record), ("exact", answer.exact), ("recent", answer.recent))
    return {**{name: _plain(one) for name, one in named}, "is_exact": answer.is_exact}


def _plain(record: Any) -> dict[str, Any] | None:
    if record is None:
        return None
    kind: Any = type(record)
    return {field.name: plain(getattr(record, field.name), field.type) for field in arrow_schema(kind)}
