"""The gateway over HTTP, with kept-alive connections, on this machine only unless another address is given.

POST /transactions        a transaction as JSON; answers with the verdict
GET  /outcomes            how transactions were answered so far
"""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from .gateway import LARGEST, BadTransaction, Gateway, too_large
from .presenter import Presenter

LOOPBACK = "127.0.0.1"


class Server:
    """Serves HTTP inside a `with` block."""

    def __init__(self, gateway: Gateway, presenter: Presenter, host: str = LOOPBACK, port: int = 0) -> None:
        """`port` 0: any free one."""

        class Handler(_Handler):
            pass

        Handler.gateway, Handler.presenter = gateway, presenter
        self._http = _HTTPServer((host, port), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.05,), name="http", daemon=True)

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._http.server_address[:2]
        return str(host), port

    def __enter__(self) -> Server:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _HTTPServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # kept-alive connections may be idle
    request_queue_size = 128


class _Handler(BaseHTTPRequestHandler):
    gateway: Gateway
    presenter: Presenter
    protocol_version = "HTTP/1.1"  # connections are kept alive
    disable_nagle_algorithm = True
    wbufsize = -1  # head and body leave in one packet
    timeout = 10  # seconds without a byte

    def do_POST(self) -> None:
        try:
            if self.path != "/transactions":
                raise BadTransaction(404, "unknown-path", f"there is no {self.path}", "POST to /transactions")
            answer = self.gateway.submit_json(self._body()).answer()
        except BadTransaction as bad:
            return self._refuse(bad)
        except TimeoutError:
            self.close_connection = True
            return None
        except Exception as error:  # the log is full or locked, for instance
            unavailable = BadTransaction(503, "unavailable", f"{type(error).__name__}: {error}", "try again later")
            return self._refuse(unavailable)
        return self._send(200, answer._asdict())

    def do_GET(self) -> None:
        if self.path == "/outcomes":
            return self._send(200, {outcome.value: n for outcome, n in self.presenter.outcomes.items()})
        return self._refuse(BadTransaction(404, "unknown-path", f"there is no {self.path}", "GET /outcomes"))

    def _body(self) -> bytes:
        stated = self.headers.get("Content-Length")
        if stated is None:
            raise BadTransaction(411, "no-length", "there is no Content-Length", "state the length of the body")
        if not (stated.isascii() and stated.isdigit()):
            raise BadTransaction(400, "no-length", f"Content-Length is {stated[:20]!r}", "state the length of the body")
        if len(stated) > 9 or int(stated) > LARGEST:
            raise too_large()  # without reading it
        return self.rfile.read(int(stated))

    def _refuse(self, bad: BadTransaction) -> None:
        self.close_connection = True  # the body may be unread
        self._send(bad.status, {"error": {"code": bad.code, "cause": bad.cause, "action": bad.action}})

    def _send(self, status: int, content: Any) -> None:
        body = msgspec.json.encode(content)
        self.send_response_only(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002  (the name in http.server)
        """One line for each request would be most of the work."""
