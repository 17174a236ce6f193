"""docs/sinks.md: its examples run."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"


@pytest.mark.usefixtures("redis_server")  # it starts its own; where there is none, it is skipped
def test_the_examples_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    (tmp_path / "example.py").write_text("\n".join(blocks))
    command = [sys.executable, "-W", "error", "example.py"]
    answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
