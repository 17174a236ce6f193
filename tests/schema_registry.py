"""A schema registry for tests: the part of its REST contract that writers and readers use, over HTTP on the loopback address.

POST /subjects/SUBJECT/versions   {"schema": TEXT, "schemaType": ...} -> {"id": N}; the same text gets the same number
GET /schemas/ids/N                {"schema": TEXT}, or 404 with {"error_code": 40403}
GET /subjects/SUBJECT/versions/V  the same, for a schema that another one refers to
"""

from __future__ import annotations

import io
import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, unquote

import fastavro

_TYPE = "application/vnd.schemaregistry.v1+json"


class SchemaRegistry(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.schemas: list[dict[str, Any]] = []  # as they were posted; the number of the first one is 1
        self.versions: dict[str, list[int]] = {}  # numbers by subject
        self.asked: list[str] = []
        self.failing = 0  # so many requests are answered with an error
        self.wanted = ""  # the header Authorization
        self.lock = threading.Lock()

    @classmethod
    @contextmanager
    def started(cls) -> Iterator[SchemaRegistry]:
        server = cls()
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def register(self, schema: Any, subject: str = "orders-value", **more: Any) -> int:
        """As a writer does. `more` is for example schemaType="PROTOBUF"; without it, the schema is one of Avro."""
        body = {"schema": schema if isinstance(schema, str) else json.dumps(schema), **more}
        request = urllib.request.Request(
            f"{self.url}/subjects/{quote(subject, safe='')}/versions", json.dumps(body).encode()
        )
        request.add_header("Content-Type", _TYPE)
        request.add_header("Authorization", self.wanted)
        with urllib.request.urlopen(request, timeout=60) as answer:
            return int(json.loads(answer.read())["id"])

    def wire(self, number: int, row: dict[str, Any]) -> bytes:
        """A row in the wire format, written with a registered schema."""
        body = io.BytesIO()
        schema = fastavro.parse_schema(json.loads(self.schemas[number - 1]["schema"]))
        fastavro.schemaless_writer(body, schema, row)
        return b"\0" + number.to_bytes(4, "big") + body.getvalue()


class _Answers(BaseHTTPRequestHandler):
    server: SchemaRegistry

    def do_POST(self) -> None:
        posted = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            if posted not in self.server.schemas:
                self.server.schemas.append(posted)
            number = self.server.schemas.index(posted) + 1
            versions = self.server.versions.setdefault(unquote(self.path.split("/")[2]), [])
            if number not in versions:
                versions.append(number)
            self._answer(200, {"id": number})

    def do_GET(self) -> None:
        folder, _, number = self.path.rpartition("/")
        with self.server.lock:
            self.server.asked.append(number)
            if folder.startswith("/subjects/"):
                versions = self.server.versions.get(unquote(folder.split("/")[2]), [])
                number = str(versions[int(number) - 1]) if 0 < int(number) <= len(versions) else "0"
            if self.server.failing:
                self.server.failing -= 1
                self._answer(503, {"error_code": 50001, "message": "Error in the backend data store"})
            elif self.server.wanted and self.headers["Authorization"] != self.server.wanted:
                self._answer(401, {"error_code": 401, "message": "Unauthorized"})
            elif 0 < int(number) <= len(self.server.schemas):
                self._answer(200, self.server.schemas[int(number) - 1])
            else:
                self._answer(404, {"error_code": 40403, "message": f"Schema {number} not found"})

    def _answer(self, status: int, answer: dict[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", _TYPE)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *anything: object) -> None: ...
