"""What runs in Spark's JVM, and what is said about it. No Spark is needed to know."""

from __future__ import annotations

import json
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from frames import Priced, Tagged, Timed, View, counting_job, views
from streamwork import DataFrameSource, Job, ListSource, SqliteSink, Stream, field
from streamwork.job import Layout


def layout(job: Job) -> Layout:
    return Layout.of(job.graph(), 256)


def test_filters_in_a_row_behind_a_source_in_the_jvm_run_there() -> None:
    found = layout(counting_job(views(Path("v")), Path(), parallelism=2))
    assert found.native["views"].filters == ("only-views", "paid")
    assert found.explain().splitlines()[:5] == [
        "chain 1 (1 instance): views -> only-views -> paid",
        "  runs as 1 task in stage 1 of 2 of each checkpoint's Spark job",
        "  in Spark's JVM: views -> only-views (field('kind') == 'view') -> paid (field('amount') >= 1)",
        "chain 2 (2 instances): counts -> out",
        "  runs as 2 tasks in stage 2 of 2 of each checkpoint's Spark job, behind the exchange from chain 1",
    ]
    assert "  in Python workers: counts, out\n  on the driver: the commit of out\n" in found.explain()
    assert "  exchange between paid and counts: paid has parallelism 1, counts has 2" in found.explain()


def test_a_source_in_python_has_nothing_there() -> None:
    found = layout(counting_job(ListSource([], View), Path()))
    assert found.native == {}
    assert "in Python workers: views, only-views, paid, counts, out" in found.explain()


def source(event: Any) -> DataFrameSource[Any]:
    return DataFrameSource(lambda spark: spark.table("t"), event, offset="id")


def forked(job: Job) -> Stream:
    stream = job.source(source(View), id="in")
    stream.sink(SqliteSink("x.db", "all"), id="all")
    return stream.where(field("kind") == "view", id="filter")


def unioned(job: Job) -> Stream:
    streams = [job.source(source(View), id=name) for name in ("in", "other")]
    return streams[0].union(streams[1]).where(field("kind") == "view", id="filter")


def behind_a_map(job: Job) -> Stream:
    return job.source(source(View), id="in").filter(bool, id="own").where(field("kind") == "view", id="filter")


CASES = [
    (forked, "other components also read from in"),
    (unioned, "its input comes from several instances or components"),
    (
        lambda job: job.source(source(Timed), id="in", time="at").where(field("kind") == "a", id="filter"),
        "advances the watermark",
    ),
    (lambda job: job.source(source(Tagged), id="in").where(field("kind") == "a", id="filter"), "Tagged.tags"),
    (lambda job: job.source(source(Priced), id="in").where(field("price") > Decimal(1), id="filter"), "Decimals"),
    (behind_a_map, ""),
]


@pytest.mark.parametrize(("build", "why"), CASES)
def test_a_filter_that_would_change_what_others_see_stays_in_python(build: Any, why: str) -> None:
    job = Job("j")
    build(job).sink(SqliteSink("x.db", "t"), id="out")
    found = layout(job)
    assert found.native["in"].filters == ()
    assert why in found.native["in"].rest
    assert bool(why) == ("filter is not applied by Spark: " in found.explain())


def test_as_many_as_possible_run_there() -> None:
    job = Job("j")
    stream = job.source(source(Priced), id="in").where(field("kind") == "a", id="first")
    stream.where(field("price") > Decimal(1), id="second").where(field("kind") == "a", id="third")
    found = layout(job)
    assert found.native["in"].filters == ("first",)
    assert "second is not applied by Spark: it compares Decimals" in found.explain()


def test_explain_on_the_command_line(tmp_path: Path) -> None:
    lines = [
        "from pathlib import Path",
        "from frames import counting_job, views",
        "job = counting_job(views(Path('views')), Path())",
    ]
    (tmp_path / "explained.py").write_text("\n".join(lines))
    program = [str(Path(sys.executable).parent / "streamwork"), "run", "explained.py", "--explain"]
    tests = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin"}
    said = [
        subprocess.run([*program, *more], cwd=tmp_path, capture_output=True, text=True, check=True, env=tests).stdout
        for more in ([], ["--json"])
    ]
    assert "in Spark's JVM: views -> only-views" in said[0]
    assert json.loads(said[1])["native"]["views"]["filters"] == ["only-views", "paid"]
