"""The files of the pages, in `static/`. They hold no data, so they need no token."""

from __future__ import annotations

import hashlib
from importlib.resources import files
from pathlib import PurePosixPath

from streamwork.errors import WrongUse
from streamwork.serving.http import Request, Response

INDEX = "index.html"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".mjs": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".svg": "image/svg+xml",
    ".png": "image/png",
    ".ico": "image/x-icon",
    ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8",
}
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "form-action 'none'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = (
    (b"content-security-policy", POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
)
"""Of every answer: pages run their own scripts only, appear in no frame, and no address leads away from them."""


def index(request: Request, rest: list[str]) -> Response:
    if rest:
        raise _nothing("/".join(["", *rest]))
    return _file(request, [INDEX])


def static(request: Request, rest: list[str]) -> Response:
    return _file(request, rest)


def _file(request: Request, segments: list[str]) -> Response:
    """A file of the package. Each segment is a plain name: none leads out of the folder."""
    shown = "/".join(segments)
    kind = TYPES.get(PurePosixPath(segments[-1]).suffix if segments else "")
    if kind is None or any(not _is_plain(name) for name in segments):
        raise _nothing(shown)
    found = files("streamwork.console") / "static"
    for name in segments:
        found = found / name
    if not found.is_file():
        raise _nothing(shown)
    body = found.read_bytes()
    tag = b'"%s"' % hashlib.sha256(body).hexdigest()[:32].encode()
    headers = ((b"etag", tag),)
    if (request.header(b"if-none-match") or "").encode() == tag:
        return Response(304, kind, b"", headers, cache=b"no-cache")
    return Response(200, kind, body, headers, cache=b"no-cache")


def _is_plain(name: str) -> bool:
    return bool(name) and not name.startswith(".") and all(c.isascii() and (c.isalnum() or c in "._-") for c in name)


def _nothing(shown: str) -> WrongUse:
    return WrongUse("SW-SERVE-ROUTE", f"there is nothing at {shown[:80]!r}", "the pages begin at /")
