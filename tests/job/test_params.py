"""Parameters of a job: typed by their defaults, given on the command line, the same on every worker."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from commands import call_in
from streamwork import Duration, Job, WrongUse
from streamwork.epoch.start_records import StartRecords
from streamwork.job import params
from streamwork.job.jobfile import load_job
from streamwork.world import RealDisk

PROGRAM = str(Path(sys.executable).parent / "streamwork")
JOBFILE = """
from decimal import Decimal
from streamwork import Event, Job, ListSource, SqliteSink

class Amount(Event):
    id: str
    amount: float

class Found(Event):
    id: str
    limit: float
    text: str

job = Job("alarms")
threshold = job.param("threshold", default=10.0)
label = job.param("label", default="high")

def large(event: Amount) -> bool:
    return event.amount > threshold  # a global variable, which workers get by importing this file

def found(event: Amount) -> Found:
    return Found(event.id, threshold, label)

amounts = job.source(ListSource([Amount(f"e{n}", float(n)) for n in range(20)]), id="amounts")
amounts.filter(large).map(found, to=Found).sink(SqliteSink("alarms.db", "alarms", key="id"), id="alarms")
"""


@pytest.fixture
def jobfile(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    path = tmp_path / f"alarms_{abs(hash(request.node.nodeid))}.py"
    path.write_text(JOBFILE)
    return path


def alarms(folder: Path) -> list[tuple[Any, ...]]:
    import sqlite3

    with sqlite3.connect(folder / "alarms.db") as database:
        return database.execute('SELECT id, "limit", text FROM alarms ORDER BY CAST(substr(id, 2) AS INT)').fetchall()


@pytest.mark.parametrize(
    "mode", ["local", *(pytest.param(one, marks=pytest.mark.slow) for one in ("microbatch", "live"))]
)
def test_a_value_reaches_every_process_that_computes(jobfile: Path, mode: str) -> None:
    words = ("--mode", mode, "--until-caught-up", "--param", "threshold=16.5", "--param", "label=a=b")
    if mode == "local":
        code, _, err = call_in(jobfile.parent, "run", jobfile.name, *words)
        assert code == 0, err
    else:  # a Spark of its own: its workers have the path of this file
        subprocess.run([PROGRAM, "run", jobfile.name, *words], cwd=jobfile.parent, check=True, stdout=subprocess.PIPE)
    assert alarms(jobfile.parent) == [(f"e{n}", 16.5, "a=b") for n in (17, 18, 19)]
    code, out, _ = call_in(jobfile.parent, "status", jobfile.name, "--json")
    assert json.loads(out)["params"] == {"threshold": 16.5, "label": "a=b"}
    assert "parameters: label=a=b, threshold=16.5" in call_in(jobfile.parent, "status", jobfile.name)[1]
    folder = jobfile.parent / ".streamwork" / "alarms" / "fences"
    assert StartRecords(RealDisk(), folder).params() == {"threshold": 16.5, "label": "a=b"}


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--param", "thresold=5"], "SW-PARAM-UNKNOWN", "threshold (a number), label (text)"),
        (["--param", "threshold=many"], "SW-PARAM-VALUE", "'many' is not a number"),
        (["--param", "threshold=nan"], "SW-PARAM-VALUE", "is not a number"),
        (["--param", "threshold"], "SW-USAGE", "has no value"),
        (["--param", "threshold=1", "--param", "threshold=2"], "SW-USAGE", "given twice"),
    ],
)
def test_what_cannot_be_a_value_is_refused_before_anything_is_written(
    jobfile: Path, words: list[str], code: str, says: str
) -> None:
    status, _, err = call_in(jobfile.parent, "run", jobfile.name, "--mode", "local", *words)
    assert status == 2
    assert code in err and says in " ".join(err.split())
    assert not (jobfile.parent / ".streamwork").exists()


def test_a_file_is_imported_again_with_other_values(jobfile: Path) -> None:
    first, again, other = (load_job(str(jobfile), one).job for one in ({}, {}, {"threshold": "3"}))
    assert first is again
    assert (first.params["threshold"], other.params["threshold"]) == (10.0, 3.0)
    assert load_job(str(jobfile)).job.params["threshold"] == 10.0


def values(kind: type) -> st.SearchStrategy[Any]:
    return {
        int: st.integers(-(2**63), 2**63 - 1),
        float: st.floats(allow_nan=False, allow_infinity=False),
        bool: st.booleans(),
        str: st.text(),
        Decimal: st.decimals(allow_nan=False, allow_infinity=False),
        timedelta: st.timedeltas(timedelta(), timedelta(days=100_000)),
        Duration: st.sampled_from([Duration("10min"), Duration("0.5 s")]),
    }[kind]


KINDS: list[type] = [int, float, bool, str, Decimal, timedelta, Duration]


@given(st.sampled_from(KINDS).flatmap(lambda kind: st.tuples(values(kind), values(kind))))
def test_every_value_survives_the_way_to_a_worker(pair: tuple[Any, Any]) -> None:
    value, default = pair
    texts = params.texts((("x", params.stored(value)),))
    content = json.loads(json.dumps(params.stored(value)))
    assert params.stored(value) == content, "JSON can hold it"
    with params.giving(texts, "some_module"):
        found = Job("j").param("x", default=default)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (int, "1.0"),
        (int, str(2**63)),
        (bool, "1"),
        (bool, ""),
        (float, "inf"),
        (Decimal, "NaN"),
        (timedelta, "-5s"),
        (timedelta, "1e300h"),
        (Duration, "soon"),
    ],
)
def test_other_texts_are_refused(kind: Any, text: str) -> None:
    with pytest.raises(WrongUse, match="--param x=") as refused:
        params.read("x", text, kind)
    assert refused.value.code == "SW-PARAM-VALUE"


@pytest.mark.parametrize("default", [None, [1], b"x", float("nan"), 2**63, timedelta(-1)])
def test_a_default_has_a_type_that_can_be_given(default: Any) -> None:
    with pytest.raises(WrongUse) as refused:
        Job("j").param("x", default=default)
    assert refused.value.code == "SW-JOB-PARAM"


def test_a_name_is_declared_once() -> None:
    job = Job("j")
    assert job.param("x", default=1) == 1
    with pytest.raises(WrongUse, match="declared twice"):
        job.param("x", default=2)
    with pytest.raises(WrongUse, match="not a usable name"):
        job.param("a b", default=2)
