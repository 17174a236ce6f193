"""Files of a job that are damaged, or that no job has written: the console says so, and goes on showing the others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from console.console_world import Served, showing
from query.query_jobs import sales, sales_job
from sample import run_job

GARBAGE = [b"", b"\xff\xfe\x00", b"[]", b"{}", b'{"fence": "<script>"}', b"[" * 5_000, b'{"a": 1e999}']
FILES = [
    "job.json",
    "graph.json",
    "history.sqlite",
    "fences/1.json",
    "fences/1.alive",
    "fences/1.start.json",
    "vitals/run.json",
    "vitals/1-x.json",
    "standbys/x.json",
]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    root = tmp_path / "root"
    run_job(sales_job(sales(range(0, 1_000, 97)), tmp_path), root)
    shutil.copytree(root / "sales", root / "whole")
    with showing(root) as found:
        yield found


@pytest.mark.parametrize("file", FILES)
def test_a_damaged_file_of_one_job(served: Served, file: str) -> None:
    path = served.root / "sales" / file
    for garbage in GARBAGE:
        path.parent.mkdir(exist_ok=True)
        path.unlink(missing_ok=True)
        path.write_bytes(garbage)
        jobs = {one["job"]: one for one in served.get("/api/overview")["jobs"]}
        assert jobs["whole"]["verdict"]["kind"] == "not running" and jobs["whole"]["problem"] == ""
        assert jobs["sales"]["problem"] or jobs["sales"]["verdict"]
        for behind in ("", "/epochs", "/epochs/1", "/history", "/savepoints", "/dead-letters"):
            answer = served.ask(f"/api/jobs/sales{behind}")
            assert answer.status == 200 or answer.code != "SW-INTERNAL", (garbage, behind, answer.body)


def test_folders_that_are_no_jobs_are_passed_over(served: Served) -> None:
    for name in ("<b>hostile", "a b", "..x", "empty", "\u202etxt"):
        (served.root / name).mkdir()
        if name != "empty":
            (served.root / name / "job.json").write_text("{}")
    assert [one["job"] for one in served.get("/api/overview")["jobs"]] == ["sales", "whole"]
