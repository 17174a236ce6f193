"""`SqlChild`: runs SQL over the state of a version, in a child process that is started when it is first needed.

The child keeps the tables of the last statement. It is killed and replaced if it does not answer in time, or ends.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import BinaryIO, cast

import msgspec
import pyarrow as pa

from streamwork.errors import WrongUse
from streamwork.query.sql.wire import MOST_HEAD, Answered, Asked, Sent, SqlLimits, read_block, write
from streamwork.query.version import Version
from streamwork.statefiles.sql import duckdb_for, mentions, names_of

MORE_SECONDS = 20.0
"""After the time of a statement is over, the child has this long to say so."""
_START = "import sys; sys.path[:] = {path!r}; from streamwork.query.sql.child import main; main()"


class SqlChild:
    def __init__(self, limits: SqlLimits | None = None) -> None:
        self.limits = limits or SqlLimits()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._has: set[str] = set()

    def answer(self, version: Version, sql: str) -> pa.Table:
        """The result of one SELECT. Refuses what is none, and what goes beyond a limit (SW-QUERY-SQL, SW-QUERY-LIMIT)."""
        duckdb_for("SQL")
        if len(sql) > MOST_HEAD // 16:
            raise WrongUse("SW-QUERY-LIMIT", f"the statement has {len(sql):,} characters", "send a shorter one")
        with self._lock:
            return self._answer(version, sql)

    def close(self) -> None:
        with self._lock:
            self._end()

    def _answer(self, version: Version, sql: str) -> pa.Table:
        process = self._running()
        tables, blocks = self._tables(version, sql)
        late = threading.Timer(self.limits.seconds + MORE_SECONDS, process.kill)
        late.start()
        try:
            write(cast(BinaryIO, process.stdin), Asked(sql, tables, self.limits), *blocks)
            answer = msgspec.json.decode(self._read(process, MOST_HEAD), type=Answered)
            if answer.error is not None:
                raise WrongUse(*answer.error)
            with pa.ipc.open_stream(pa.py_buffer(self._read(process, 2 * self.limits.bytes))) as reader:
                return reader.read_all()
        except (EOFError, OSError, ValueError):
            self._end()
            raise WrongUse(
                "SW-QUERY-LIMIT",
                "the process that ran this SQL has ended: it took too much memory or time",
                "ask for less: add conditions, aggregate, or add a LIMIT",
            ) from None
        finally:
            late.cancel()

    def _tables(self, version: Version, sql: str) -> tuple[tuple[Sent, ...], list[memoryview]]:
        """The tables that a statement names, and those of them that the child lacks."""
        names = names_of(version.known)
        wanted = {component: several for component, several in names.items() if any(mentions(sql, n) for n in several)}
        sent, blocks, size = [], [], 0
        for component, several in wanted.items():
            token = f"{version.sha256}/{component}"
            follows = token not in self._has
            if follows:
                table = version.component(component).pile.table()
                size += table.nbytes
                if size > self.limits.memory // 2:
                    raise WrongUse(
                        "SW-QUERY-LIMIT",
                        f"{component} has {table.nbytes:,} bytes, which is too much for SQL in this server",
                        "ask for keys or ranges, or use `streamwork state query job.py SQL`, which reads files",
                    )
                blocks.append(_stream(table))
            sent.append(Sent(several, token, follows))
        self._has = {one.token for one in sent}
        return tuple(sent), blocks

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._end()
            start = _START.format(path=[entry for entry in sys.path if entry])
            command = [sys.executable, "-I", "-c", start, str(self.limits.memory)]
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={}, cwd="/"
            )
        return self._process

    def _read(self, process: subprocess.Popen[bytes], most: int) -> bytes:
        return read_block(cast(BinaryIO, process.stdout), most)

    def _end(self) -> None:
        process, self._process, self._has = self._process, None, set()
        if process is None:
            return
        process.kill()
        for pipe in (process.stdin, process.stdout):
            try:
                if pipe is not None:
                    pipe.close()
            except OSError:  # what was not sent is lost with it
                pass
        process.wait()


def _stream(table: pa.Table) -> memoryview:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write(table)
    return memoryview(sink.getvalue())
