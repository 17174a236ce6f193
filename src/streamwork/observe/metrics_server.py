"""The HTTP server that Prometheus reads metrics from while a job runs.

It has one route, and every request must carry the bearer token. It listens on loopback unless another address is given.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from streamwork.errors import StreamworkError, WrongUse
from streamwork.serving.access import Endpoint, Token
from streamwork.serving.guard import Guard
from streamwork.serving.http import STATUS

ROUTE = "/metrics"
TOKEN = "STREAMWORK_METRICS_TOKEN"
"""The environment variable of the token; without it, the root has a token file (`serving.access`)."""
SOCKET_SECONDS = 5.0
CONTENT = "text/plain; version=0.0.4; charset=utf-8"


@contextlib.contextmanager
def serving(
    text: Callable[[], bytes], endpoint: Endpoint, token: Token, note: Callable[[str], None]
) -> Iterator[ThreadingHTTPServer]:
    """Answer requests with `text` until the block ends. `note` receives the address, and where the token is."""

    class Server(ThreadingHTTPServer):
        address_family = socket.AF_INET6 if endpoint.is_ipv6 else socket.AF_INET

    class Handler(_Handler):
        at = endpoint
        answer = staticmethod(text)

    Handler.token = token

    try:
        server = Server((endpoint.host, endpoint.port), Handler)
    except OSError as error:
        raise WrongUse(
            "SW-SERVE-PORT",
            f"cannot listen on {endpoint.name(endpoint.port)}: {error}",
            "choose another address or port, or port 0 for any that is free",
        ) from error
    server.block_on_close = False  # a slow client does not delay the end of a run
    thread = threading.Thread(target=server.serve_forever, name="streamwork-metrics", daemon=True)
    thread.start()
    try:
        note(f"metrics at http://{endpoint.name(server.server_port)}{ROUTE}, bearer token in {token.where}")
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers GET /metrics only."""

    server_version, sys_version = "streamwork", ""
    timeout = SOCKET_SECONDS
    token: Token
    at: Endpoint
    answer: Callable[[], bytes]

    def do_GET(self) -> None:
        if (refused := self._refusal()) is not None:
            self._send(refused, refused.phrase.encode())
            return
        try:
            self._send(HTTPStatus.OK, self.answer())
        except StreamworkError as error:  # such as a job that has not started yet
            self._send(HTTPStatus.SERVICE_UNAVAILABLE, error.code.encode())

    def _refusal(self) -> HTTPStatus | None:
        """The status of a refused request: one from a web page, under another name of this machine, or without the token.

        The names of a server that is not on loopback are unknown here: only the token is checked.
        """
        assert isinstance(self.server, ThreadingHTTPServer)
        names: frozenset[str] | None = frozenset() if self.at.is_loopback else None
        guard = Guard(self.token, self.at, self.server.server_port, names)
        if "Origin" in self.headers:  # there are no pages here
            return HTTPStatus.FORBIDDEN
        try:
            guard.check(self.headers.get("Host"), None, self.headers.get("Authorization"))
        except WrongUse as refused:
            return HTTPStatus(STATUS[refused.code])
        return None if self.path.partition("?")[0] == ROUTE else HTTPStatus.NOT_FOUND

    def _send(self, status: HTTPStatus, body: bytes) -> None:
        self.send_response(status)
        if status is HTTPStatus.UNAUTHORIZED:
            self.send_header("WWW-Authenticate", "Bearer")
        self.send_header("Content-Type", CONTENT if status is HTTPStatus.OK else "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Requests are not logged."""
