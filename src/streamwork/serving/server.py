"""Runs an `Application` with uvicorn: in this thread until a signal, or in a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

import uvicorn

from streamwork.errors import WrongUse
from streamwork.serving.access import Endpoint, Token
from streamwork.serving.application import Application
from streamwork.serving.connection import Connection
from streamwork.serving.guard import Guard
from streamwork.serving.session import Sessions
from streamwork.world.pauses import short_turns


class Listening:
    """A server that is bound to its port."""

    def __init__(
        self, application: Application, endpoint: Endpoint, token: Token, names: frozenset[str] | None = frozenset()
    ) -> None:
        """Refuses an address that is not available (SW-SERVE-PORT)."""
        self._socket = _bound(endpoint)
        self.port = int(self._socket.getsockname()[1])
        self.url = f"http://{endpoint.name(self.port)}"
        sessions = Sessions(token.secret, self.port, time.time) if application.has_pages else None
        application.guard = Guard(token, endpoint, self.port, names, sessions)
        self._application = application

        class Bounded(Connection):
            limits = application.limits

        config = uvicorn.Config(
            application,
            http=Bounded,
            ws="none",
            lifespan="off",
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            date_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(application.limits.idle_seconds),
            timeout_graceful_shutdown=1,
        )
        self._server = uvicorn.Server(config)

    def run(self, ready: Callable[[], None] = lambda: None) -> None:
        """Answer until `stop` is called, or, in the main thread, until a signal."""
        ready()
        try:
            with short_turns():
                self._server.run(sockets=[self._socket])
        finally:
            self._application.close()
            self._socket.close()

    def stop(self) -> None:
        self._server.should_exit = True

    @contextlib.contextmanager
    def in_thread(self) -> Iterator[str]:
        """The URL, until the block ends."""
        thread = threading.Thread(target=self.run, name="streamwork-serve", daemon=True)
        thread.start()
        try:
            yield self.url
        finally:
            self.stop()
            thread.join()


def _bound(endpoint: Endpoint) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if endpoint.is_ipv6 else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((endpoint.host, endpoint.port))
        made.listen(1024)
    except OSError as error:
        made.close()
        raise WrongUse(
            "SW-SERVE-PORT",
            f"cannot listen on {endpoint.name(endpoint.port)}: {error}",
            "choose another address or port, or port 0 for any that is free",
        ) from error
    return made
