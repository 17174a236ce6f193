"""docs/kafka.md: its examples run, as one program, against a broker."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kafka_broker.server import KafkaServer
from servers import kafka  # noqa: F401  (fixture)

PAGE = Path(__file__).parents[2] / "docs" / "kafka.md"


@pytest.mark.slow
def test_the_examples_run(tmp_path: Path, kafka: KafkaServer) -> None:  # noqa: F811
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 6
    (tmp_path / "example.py").write_text("\n".join(blocks))
    command = [sys.executable, "-W", "error", "example.py"]
    given = {**os.environ, "KAFKA": kafka.address}
    answer = subprocess.run(command, cwd=tmp_path, env=given, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
