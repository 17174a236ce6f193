"""The OpenAPI document of the server."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

from streamwork.query.answer import Consistency
from streamwork.serving.http import ARROW, EVENTS, JSON

_TEXT = {"type": "string"}
_NUMBER = {"type": "integer", "minimum": 0}

_SELECTION = [
    ("at", "`checkpoint:N` or `savepoint:NAME`; without it, the newest checkpoint", _TEXT),
    (
        "consistency",
        "committed: in every sink. prepared: also computed, never computed again. latest: also what tasks of live mode have "
        "changed behind it, which may be undone.",
        {"type": "string", "enum": [one.value for one in Consistency], "default": Consistency.COMMITTED.value},
    ),
    ("at_least", "wait until this checkpoint is in the answer, else 412", _NUMBER),
    ("timeout", "seconds to wait", {"type": "number", "minimum": 0, "maximum": 60, "default": 5}),
]
_BOUNDS: list[tuple[str, str, dict[str, Any]]] = [
    (name, f"{what}; repeat the parameter for a key of several parts", {"type": "array", "items": _TEXT})
    for name, what in (
        ("from", "the first key"),
        ("to", "the key behind the last one"),
        ("prefix", "the beginning of keys"),
        ("after", "go on behind this key"),
    )
]
_BOUNDS += [(f"{name}_json", f"as `{name}`, as a JSON list", _TEXT) for name, _, _ in list(_BOUNDS)]
_LIMIT = ("limit", "the most rows", {**_NUMBER, "default": 1000})
_COMPONENT = {"name": "component", "in": "path", "required": True, "schema": _TEXT}
_KEY = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": "the key; the parts of a key of several parts are separated by slashes",
    "schema": _TEXT,
}
_STAMP = {
    "epoch": {
        "type": "integer",
        "description": "the checkpoint that the answer was read from, or the epoch in progress",
    },
    "committed": {"type": "boolean", "description": "true if every sink has this checkpoint"},
    "age": {"type": "number", "description": "seconds since it was written"},
    "regressed": {"type": "boolean", "description": "an earlier answer was from a checkpoint that no longer counts"},
    "possibly_undone": {"type": "boolean", "description": "the answer lies behind the checkpoint"},
}


def document() -> dict[str, Any]:
    found = {
        "/health": {
            "get": {**_operation("health", "Whether the server runs", {"ok": {"type": "boolean"}}), "security": []}
        },
        "/jobs": {"get": _operation("jobs", "The jobs", {"jobs": {"type": "array", "items": _TEXT}})},
        "/state": {
            "get": _question("components", "The components and their keys and fields", {"components": _object()})
        },
        "/state/{component}": {
            "post": _question(
                "get_many",
                "Many keys, all from one checkpoint",
                _rows(),
                path=[_COMPONENT],
                body={"keys": {"type": "array", "items": {}}},
                arrow=True,
            )
        },
        "/state/{component}/{key}": {
            "get": _question("get", "One key", {"record": {**_object(), "nullable": True}}, path=[_COMPONENT, _KEY])
        },
        "/range/{component}": {
            "get": _question("range", "Keys in order", _rows(), [*_BOUNDS, _LIMIT], [_COMPONENT], arrow=True)
        },
        "/windows/{component}/{key}": {
            "get": _question(
                "windows",
                "The windows of a key",
                _rows(),
                [
                    ("since", "the first start of a window", _TEXT),
                    ("until", "the start behind the last one", _TEXT),
                    _LIMIT,
                ],
                [_COMPONENT, _KEY],
                arrow=True,
            )
        },
        "/scan/{component}": {
            "get": _question("scan", "All keys, in no order", _rows(), path=[_COMPONENT], arrow=True)
        },
        "/watch/{component}/{key}": {
            "get": {
                **_operation("watch", "The changes of a component, or of a key, checkpoint by checkpoint", {}),
                "parameters": [
                    _COMPONENT,
                    {**_KEY, "description": "without it, the whole component"},
                    {"name": "consistency", "in": "query", "schema": _TEXT},
                    {"name": "as", "in": "query", "description": "arrow: rows as base64 of a stream", "schema": _TEXT},
                ],
                "responses": {"200": {"description": "server-sent events", "content": {EVENTS: {}}}},
            }
        },
        "/sql": {
            "post": _question(
                "sql",
                "A SELECT in DuckDB's SQL, in which each component is a table",
                {
                    "columns": {"type": "array", "items": _object()},
                    "rows": {"type": "array", "items": {"type": "array"}},
                },
                body={"sql": _TEXT},
                arrow=True,
            )
        },
        "/count/{component}": {"get": _question("count", "The number of keys", {"count": _NUMBER}, path=[_COMPONENT])},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Streamwork: queryable state",
            "version": version("streamwork"),
            "description": "Where a server answers for several jobs, every path but /health begins with /jobs/JOB.",
        },
        "paths": found,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }


def _question(
    name: str,
    summary: str,
    answer: dict[str, Any],
    parameters: list[tuple[str, str, dict[str, Any]]] | None = None,
    path: list[dict[str, Any]] | None = None,
    body: dict[str, Any] | None = None,
    arrow: bool = False,
) -> dict[str, Any]:
    found = _operation(name, summary, {**answer, **_STAMP}, arrow)
    asked = [*(parameters or []), *_SELECTION]
    found["parameters"] = (path or []) + [
        {"name": one, "in": "query", "description": what, "schema": schema} for one, what, schema in asked
    ]
    if body is not None:
        found["requestBody"] = {
            "required": True,
            "content": {JSON: {"schema": _object(body) | {"required": list(body), "additionalProperties": False}}},
        }
    return found


def merged_paths() -> dict[str, Any]:
    """Of the merged view of a lambda (`lambdas.http`)."""
    parts = {name: {**_object(), "nullable": True} for name in ("record", "exact", "recent")}
    answer = {**parts, "is_exact": {"type": "boolean"}, "stand": _object()}
    rows = {"rows": {"type": "array", "items": _object()}}
    one = _operation("merged", "Both parts of one key: of the batch run, and behind its seam", answer)
    return {
        "/merged": {
            "get": _operation("merged_all", "All keys of the merged view", rows, arrow=True),
            "post": _operation("merged_many", "Many keys of the merged view", {**rows, "stand": _object()}),
        },
        "/merged/{key}": {"get": {**one, "parameters": [_KEY]}},
        "/merged-stand": {"get": _operation("merged_stand", "What answers are made of", {})},
    }


def _operation(name: str, summary: str, answer: dict[str, Any], arrow: bool = False) -> dict[str, Any]:
    content: dict[str, Any] = {JSON: {"schema": _object(answer)}}
    if arrow:
        content[ARROW] = {}
    error = _object({"error": _object(dict.fromkeys(("code", "cause", "action"), _TEXT))})
    refused = {"description": "refused", "content": {JSON: {"schema": error}}}
    return {
        "operationId": name,
        "summary": summary,
        "responses": {"200": {"description": summary, "content": content}, "4XX": refused, "5XX": refused},
    }


def _rows() -> dict[str, Any]:
    row = _object({"key": _object(), "record": {**_object(), "nullable": True}})
    return {"rows": {"type": "array", "items": row}, "more": {"type": "boolean"}}


def _object(properties: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"type": "object", **({"properties": properties} if properties is not None else {})}
