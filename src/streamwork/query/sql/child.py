"""The process that runs SQL: one SELECT at a time over tables in memory.

1  everything is imported, and a first statement has run
2  the process gives up what it could do: it cannot open a file or a socket (no free descriptor), write files (size 0), or take
   more memory
3  a statement: only one, only a SELECT; DuckDB without access to files, networks, extensions and Python's variables, with its
   settings locked; a bounded number of rows, bytes and seconds

Step 2 holds for what is wrong in step 3. The environment is empty, so there are no secrets to read.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import io
import os
import resource
import sys
import threading
from typing import Any, BinaryIO

import duckdb
import msgspec
import pyarrow as pa

from streamwork.query.sql.wire import MOST_HEAD, Answered, Asked, SqlLimits, read_block, write

THREADS = 2
ROOM = 1 << 30
"""Address space beside the memory that a statement may take: stacks and arenas of threads, which are mostly not used."""
LIMIT = ("SW-QUERY-LIMIT", "ask for less: add conditions, aggregate, or add a LIMIT")
SETTINGS = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "allow_unsigned_extensions": "false",
    "allow_persistent_secrets": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",
    "max_temp_directory_size": "0KB",
    "threads": str(THREADS),
}


class Refusal(Exception):
    """Code, cause and action."""


def main() -> None:
    requests, answers = sys.stdin.buffer, sys.stdout.buffer
    tables: dict[str, pa.Table] = {}
    memory = int(sys.argv[1])
    database = opened(memory)
    answer(database, Asked("SELECT count(*) AS n FROM t", (), SqlLimits()), {"t": pa.table({"a": [1]})})  # 1
    give_up(memory)  # 2
    while True:
        try:
            asked = msgspec.json.decode(read_block(requests, MOST_HEAD), type=Asked)
            named = _received(asked, tables, requests, memory)
        except EOFError:
            return
        serve(database, asked, named, answers)


def opened(memory: int) -> Any:
    """An empty database in memory, whose settings cannot be changed."""
    database = duckdb.connect(config={**SETTINGS, "memory_limit": f"{memory // (1 << 20)}MiB"})
    database.execute("SET GLOBAL TimeZone = 'UTC'")
    database.execute("SET enable_external_access = false")
    database.execute("SET lock_configuration = true")
    return database


def serve(database: Any, asked: Asked, named: dict[str, pa.Table], answers: BinaryIO) -> None:
    try:
        result = answer(database, asked, named)  # 3
    except Refusal as refusal:
        write(answers, Answered(error=refusal.args))
    except (MemoryError, pa.ArrowMemoryError, duckdb.OutOfMemoryException):
        write(
            answers, Answered(error=(LIMIT[0], f"it takes more than {asked.limits.memory:,} bytes of memory", LIMIT[1]))
        )
    except (duckdb.Error, pa.ArrowException, RuntimeError, ValueError) as error:
        write(answers, Answered(error=_sql(" ".join(str(error).split())[:500])))
    else:
        write(answers, Answered(), result)
    gc.collect()


def answer(database: Any, asked: Asked, named: dict[str, pa.Table]) -> memoryview:
    """3. The result as an Arrow stream."""
    db = database.cursor()
    late = threading.Timer(asked.limits.seconds, db.interrupt)
    late.daemon = True
    try:
        for name, table in named.items():
            db.register(name, table)
        statements = db.extract_statements(asked.sql)
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise Refusal(*_sql("it is not one SELECT"))
        late.start()
        return _result(db.sql(asked.sql), asked.limits)
    except duckdb.InterruptException:
        raise Refusal(LIMIT[0], f"it takes longer than {asked.limits.seconds:g} s", LIMIT[1]) from None
    finally:
        late.cancel()
        for name in named:
            db.unregister(name)
        with contextlib.suppress(duckdb.Error):
            db.close()


def _result(found: Any, limits: SqlLimits) -> memoryview:
    reader = found.to_arrow_reader(10_000) if hasattr(found, "to_arrow_reader") else found.fetch_arrow_reader(10_000)
    sink, rows = io.BytesIO(), 0
    with pa.ipc.new_stream(sink, reader.schema) as writer:
        for batch in reader:
            rows += batch.num_rows
            if rows > limits.rows:
                raise Refusal(LIMIT[0], f"the result has more than {limits.rows:,} rows", LIMIT[1])
            writer.write_batch(batch)
            if sink.tell() > limits.bytes:
                raise Refusal(LIMIT[0], f"the result has more than {limits.bytes:,} bytes", LIMIT[1])
    return sink.getbuffer()


def _received(asked: Asked, tables: dict[str, pa.Table], requests: BinaryIO, memory: int) -> dict[str, pa.Table]:
    """The tables by name. Those that are not wanted now are forgotten."""
    wanted = {one.token for one in asked.tables}
    for token in [*tables]:
        if token not in wanted:
            del tables[token]
    named = {}
    for one in asked.tables:
        if one.follows:
            with pa.ipc.open_stream(pa.py_buffer(read_block(requests, memory))) as reader:
                tables[one.token] = reader.read_all()
        for name in one.names:
            named[name] = tables[one.token]
    return named


def give_up(memory: int) -> None:
    """2."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    most = address_space() + memory + ROOM if sys.platform == "linux" else resource.RLIM_INFINITY
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free, free))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def address_space() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        return int(file.read().split()[0]) * resource.getpagesize()


def _sql(cause: str) -> tuple[str, str, str]:
    return "SW-QUERY-SQL", f"this SQL cannot be run: {cause}", "send one SELECT over the components, which are tables"


if __name__ == "__main__":
    main()
