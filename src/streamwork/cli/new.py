"""``streamwork new``: creates a folder with a small job, its input and its test. The job runs as it is."""

from __future__ import annotations

import importlib.util
import keyword
import sys
from pathlib import Path
from string import Template

import msgspec

from streamwork.errors import JobFailed, Refused, WrongUse
from streamwork.job.names import check_name

SAMPLE = "visits.jsonl"

_JOB = Template('''\
"""How often each page is visited, and for how long in all."""

from pathlib import Path

from streamwork import (
    Event,
    Job,
    JsonLines,
    KeyedCollector,
    KeyedOperator,
    OffsetSource,
    Record,
    SqliteSink,
)

HERE = Path(__file__).parent


class Visit(Event):  # what comes in
    page: str
    seconds: float


class PageUsage(Event):  # what goes out
    page: str
    visits: int
    seconds: float


class Totals(Record):  # what is remembered of each page
    visits: int = 0
    seconds: float = 0.0


class PerPage(KeyedOperator[Visit, Totals, PageUsage]):
    def apply(self, event: Visit, state: Totals, collector: KeyedCollector) -> None:
        state.visits += 1
        state.seconds += event.seconds
        collector.emit(PageUsage(event.page, state.visits, state.seconds))


def build(source: OffsetSource[Visit], database: Path) -> Job:
    """The job, reading from any source: a file when it runs, a list in its test."""
    job = Job("$name")
    usage = job.source(source, id="visits").apply(PerPage(), key="page", id="per-page")
    usage.sink(SqliteSink(database, "pages", key="page"), id="pages")
    return job


job = build(JsonLines(HERE / "$sample", Visit), HERE / "$module.db")
''')

_TEST = Template('''\
"""The job in one process, without Spark, on input that the test makes up."""

import sqlite3
from contextlib import closing
from pathlib import Path

from streamwork import JsonLines, ListSource, OffsetSource

from $module import HERE, Visit, build


def pages(source: OffsetSource[Visit], folder: Path) -> list[tuple[str, int, float]]:
    """What the job has written once it has read all of its input."""
    database = folder / "out.db"
    build(source, database).run(mode="local", root=folder, until_caught_up=True)
    with closing(sqlite3.connect(database)) as db:
        query = "SELECT page, visits, seconds FROM pages ORDER BY page"
        return db.execute(query).fetchall()


def test_visits_are_counted_per_page(tmp_path: Path) -> None:
    visits = [Visit("/a", 1.5), Visit("/b", 4.0), Visit("/a", 2.0)]
    assert pages(ListSource(visits), tmp_path) == [("/a", 2, 3.5), ("/b", 1, 4.0)]


def test_it_goes_on_where_it_stopped(tmp_path: Path) -> None:
    file = tmp_path / "visits.jsonl"
    file.write_text('{"page": "/a", "seconds": 1.5}\\n')
    assert pages(JsonLines(file, Visit), tmp_path) == [("/a", 1, 1.5)]
    with file.open("a") as more:
        more.write('{"page": "/a", "seconds": 2.0}\\n')
    assert pages(JsonLines(file, Visit), tmp_path) == [("/a", 2, 3.5)]


def test_the_sample_can_be_read(tmp_path: Path) -> None:
    found = pages(JsonLines(HERE / "$sample", Visit), tmp_path)
    assert [page for page, _, _ in found] == ["/", "/about", "/shop"]
''')

_LINES = """\
{"page": "/", "seconds": 3.5}
{"page": "/shop", "seconds": 41.0}
{"page": "/", "seconds": 1.25}
{"page": "/about", "seconds": 12.0}
{"page": "/shop", "seconds": 7.75}
"""

# Makes the folder its own pytest project: the test finds the job, independent of settings in parent folders.
_PYTEST = "[pytest]\npythonpath = .\n"


class Created(msgspec.Struct, frozen=True):
    """What was written, and the commands that go on from there."""

    job: str
    folder: str
    files: list[str]
    next: list[str]


def create(name: str, folder: Path) -> Created:
    """Write the job `name` and what belongs to it into `folder`, which must be empty or not there yet.

    Nothing is written if the name cannot be that of a job (SW-JOB-NAME) or of its module (SW-JOBFILE-NAME), or if something is
    in the folder already (SW-NEW-EXISTS).
    """
    module = module_name(name)
    values = {"name": name, "module": module, "sample": SAMPLE}
    files = {
        f"{module}.py": _JOB.substitute(values),
        f"test_{module}.py": _TEST.substitute(values),
        SAMPLE: _LINES,
        "pytest.ini": _PYTEST,
    }
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            what = "is not empty" if folder.is_dir() else "is a file"
            raise Refused("SW-NEW-EXISTS", f"{folder} {what}", "choose another name, or another folder with --folder")
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise JobFailed("SW-IO-FAILED", str(error), "choose a folder that can be written to with --folder") from error
    return Created(
        job=name,
        folder=str(folder),
        files=list(files),
        next=[
            f"streamwork run {module}.py --mode local --until-caught-up",
            f"streamwork dev {module}.py",
            "python -m pytest",
        ],
    )


def module_name(name: str) -> str:
    """The module of a job: `card-usage` lives in `card_usage`. Refuses what no worker could import by that name."""
    module = check_name(name, "job name").replace("-", "_")
    if not module.isidentifier() or keyword.iskeyword(module):
        raise WrongUse(
            "SW-JOBFILE-NAME",
            f"{module}.py cannot be imported",
            "begin the name with a letter, and use no word of Python's own",
        )
    if module in {"conftest", "pytest"} or _is_taken(module):
        raise WrongUse("SW-JOBFILE-NAME", f"{module} is the name of another module", "give the job another name")
    return module


def _is_taken(module: str) -> bool:
    if module in sys.modules:
        return True
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.origin is not None  # a folder without __init__.py is a "module" without origin
