"""The example card_habits: a batch model makes fraud detection better, and the page says how much."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "examples" / "card_habits"


def test_precision_and_recall_are_those_of_the_page() -> None:
    answer = subprocess.run([sys.executable, FOLDER], capture_output=True, text=True, check=False)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout)
    page = (FOLDER / "README.md").read_text()
    for name in ("before", "after"):
        row = re.search(rf"^\| {name}: .*\| ([\d.]+) \| ([\d.]+) \|$", page, re.MULTILINE)
        assert row is not None
        assert (found[name]["precision"], found[name]["recall"]) == tuple(map(float, row.groups()))
    assert found["after"]["recall"] > found["before"]["recall"] + 0.2
    assert found["after"]["precision"] > found["before"]["precision"]
