"""docs/sinks.md: its examples run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from real_servers import PostgresServer, RedisServer

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"


def test_the_examples_run(tmp_path: Path, redis_server: RedisServer) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    (tmp_path / "example.py").write_text("\n".join(blocks))
    command = [sys.executable, "-W", "error", "example.py"]
    with PostgresServer.started() as postgres:  # its own: tables of other tests have the same names
        given = {**os.environ, "POSTGRES": postgres.dsn, "REDIS": redis_server.url}
        answer = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
