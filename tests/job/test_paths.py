"""Relative paths of sources and sinks follow the job file, as the root does; never the working directory."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sample import Seen
from streamwork import (
    Csv,
    Event,
    EventLog,
    Job,
    JsonLines,
    LogSink,
    LogSource,
    Parquet,
    ParquetSink,
    Refused,
    SqliteSink,
)
from streamwork.job.jobfile import load_job
from streamwork.run.backfill import everything

PROGRAM = Path(sys.executable).parent / "streamwork"
ROWS = [{"card": f"c{n}", "number": n, "total": n} for n in range(3)]

JOB = """
import sys
from streamwork import Csv, Event, Job, JsonLines, LogSink, LogSource, Parquet, ParquetSink, Refused, SqliteSink

class Seen(Event):
    card: str
    number: int
    total: int

job = Job("paths")
for name, source in {"jsonl": JsonLines("in.jsonl", Seen), "csv": Csv("in.csv", Seen),
                     "parquet": Parquet("in.parquet", Seen), "log": LogSource("in.log", Seen)}.items():
    stream = job.source(source, id=name)
    stream.sink(SqliteSink("out.db", name), id=f"{name}-db")
    stream.sink(ParquetSink(f"out-{name}"), id=f"{name}-files")
    stream.sink(LogSink(f"out-{name}.log"), id=f"{name}-log")

if __name__ == "__main__":
    job.run(mode=sys.argv[1], until_caught_up=True)
"""


def fill(folder: Path, name: str = "paths_job.py") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(JOB)
    (folder / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    with (folder / "in.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(ROWS[0]))
        writer.writeheader()
        writer.writerows(ROWS)
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "in.parquet")
    with EventLog.create(folder / "in.log", Seen) as log:
        for row in ROWS:
            log.append(Seen(**row))
    return folder / name


def made(folder: Path) -> set[str]:
    """The targets in a folder, and the root."""
    return {name for name in os.listdir(folder) if name.startswith(("out", ".streamwork"))}  # noqa: PTH208


TARGETS = {".streamwork", "out.db", *(f"out-{s}{e}" for s in ("jsonl", "csv", "parquet", "log") for e in ("", ".log"))}


@pytest.mark.slow(how="python")
@pytest.mark.parametrize("how", ["run", "python"])
@pytest.mark.proves("a job started from another folder")
def test_a_job_started_from_elsewhere_uses_the_files_beside_it(tmp_path: Path, how: str) -> None:
    file = fill(tmp_path / "job")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    run = [PROGRAM, "run", "../job/paths_job.py", "--mode", "local", "--until-caught-up"]
    command = run if how == "run" else [sys.executable, file, "local"]
    for folder in (elsewhere, tmp_path / "job", tmp_path):
        if how == "run" and folder != elsewhere:
            command = [PROGRAM, "run", file, "--mode", "local", "--until-caught-up"]
        answer = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
    assert made(tmp_path / "job") == TARGETS
    assert os.listdir(elsewhere) == []  # noqa: PTH208
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(tmp_path / "job" / "out.db")) as db:
        for table in ("jsonl", "csv", "parquet", "log"):
            assert db.execute(f"SELECT count(*) FROM {table}").fetchone() == (3,)


@pytest.mark.slow
@pytest.mark.spark
def test_on_spark_as_well(tmp_path: Path) -> None:
    file = fill(tmp_path / "job")
    for mode in ("microbatch", "local"):
        command = [sys.executable, str(file), mode]
        answer = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert answer.returncode == 0, answer.stderr
    assert made(tmp_path / "job") == TARGETS
    assert made(tmp_path) == set()


def paths(graph: Any) -> set[Path]:
    found = [getattr(node.component, "_source", node.component).path for node in graph.nodes]
    assert all(path.is_absolute() for path in found)
    return {path.parent for path in found}


def test_every_way_to_the_graph_gives_the_same_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = fill(tmp_path / "job", "paths_of_graph.py")
    monkeypatch.chdir(tmp_path)
    job = load_job(str(file)).job
    assert paths(job.graph()) == {tmp_path / "job"}
    assert paths(everything(job.graph())) == {tmp_path / "job"}, "batch mode"
    monkeypatch.chdir("/")
    assert paths(job.graph()) == {tmp_path / "job"}


class Line(Event):
    text: str


COMPONENTS = {
    "jsonl": lambda path: JsonLines(path, Line),
    "csv": lambda path: Csv(path, Line),
    "parquet": lambda path: Parquet(path, Line),
    "log": lambda path: LogSource(path, Line),
    "sqlite sink": lambda path: SqliteSink(path, "t"),
    "parquet sink": lambda path: ParquetSink(path),
    "log sink": lambda path: LogSink(path),
}


@pytest.mark.parametrize("kind", COMPONENTS)
def test_a_relative_path_follows_the_file_that_makes_the_job(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    relative, absolute = COMPONENTS[kind]("data/x"), COMPONENTS[kind](tmp_path / "x")
    for component, expected in ((relative, Path(__file__).parent / "data" / "x"), (absolute, tmp_path / "x")):
        job = Job("one")
        if "sink" in kind:
            job.source(JsonLines(tmp_path / "in", Line), id="in").sink(component, id="it")
        else:
            job.source(component, id="it").print()
        assert job.graph()["it"].component.path == expected
    assert relative.path == Path("data/x"), "one component may belong to several jobs"


def test_a_job_that_no_file_makes_follows_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    space: dict[str, Any] = {"Job": Job, "source": JsonLines("in", Line)}
    exec("job = Job('one'); job.source(source, id='in').print()", space)  # as in an interactive session
    assert space["job"].graph()["in"].component.path == tmp_path / "in"


def test_a_job_whose_target_is_where_paths_used_to_lead_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It ran from elsewhere when relative paths followed the working directory: its ledger is there, and is not begun anew."""
    (tmp_path / "job").mkdir()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    (tmp_path / "job" / "in.jsonl").write_text('{"text": "a"}\n')

    def run(*sinks: Any) -> Any:
        job = Job("moved")
        job.home = tmp_path / "job"
        stream = job.source(JsonLines("in.jsonl", Line), id="in")
        for number, sink in enumerate(sinks):
            stream.sink(sink, id=f"s{number}")
        return job.run(mode="local", root=tmp_path / "root", until_caught_up=True, restart=False)

    old = tmp_path / "elsewhere"
    for make, name in ((lambda p: SqliteSink(p, "t"), "t.db"), (ParquetSink, "files"), (LogSink, "log")):
        run(make(old / name))
        for _ in range(2):
            with pytest.raises(Refused, match="SW-SINK-LOST.*job file"):
                run(make(name))
        assert os.listdir(tmp_path / "job") == ["in.jsonl"], "nothing is made"  # noqa: PTH208
        (old / name).rename(tmp_path / "job" / name)
        run(make(name))  # moved to where it is looked for, it goes on
        shutil.rmtree(tmp_path / "root")
        (tmp_path / "job" / name).rename(old / f"done-{name}")


def test_the_path_of_a_job_file_does_not_depend_on_where_it_was_named_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`views.sql` and others keep the path of the root, which must hold when the folder in between is removed."""
    (tmp_path / "plain.py").write_text("from streamwork import Job\n\njob = Job('plain')\n")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load_job("../plain.py").default_root == tmp_path.resolve() / ".streamwork"
