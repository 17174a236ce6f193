"""``streamwork lambda``, and what a definition refuses."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from commands import call_in
from lambdas.world import Purchase, Spending, World
from streamwork import EventLog, Job, ListSource, LogSource, Source, WrongUse, count, sum_of
from streamwork.lambdas import Lambda, lambda_of

JOB = """
from streamwork import Event, LogSource, Record, count, sum_of, KeyedOperator
from streamwork.lambdas import Lambda

class Purchase(Event):
    card: str
    amount: int
    shop: str = ""

class Spending(Event):
    card: str
    purchases: int
    total: int

class Amounts(Record):
    amounts: list[int] = []

class Keep(KeyedOperator[Purchase, Amounts, Purchase]):
    def apply(self, event, state, collector):
        state.amounts.append(event.amount)

spending = Lambda(
    "card-spending",
    events=lambda job: job.source(LogSource("purchases.log", Purchase), id="purchases"),
    key="card", to=Spending, purchases=count(), total=sum_of("amount"),
    batch=lambda events: events.apply(Keep(), key="card", id="amounts"),
)
job = spending.stream()
"""


def purchases(*amounts: int) -> list[Purchase]:
    return [Purchase("a", amount) for amount in amounts]


@pytest.mark.parametrize("mode", ["local", pytest.param("batch", marks=[pytest.mark.slow, pytest.mark.spark])])
def test_the_commands(tmp_path: Path, mode: str) -> None:
    (tmp_path / "spend.py").write_text(JOB)
    with EventLog.create(tmp_path / "purchases.log", Purchase) as log:
        log.append(purchases(1, 2, 3))
    run = ("run", "spend.py", "--mode", "local", "--until-caught-up")
    assert call_in(tmp_path, *run)[0] == 0
    code, out, _ = call_in(tmp_path, "lambda", "status", "spend.py")
    assert code == 0
    assert "no batch run yet" in out
    command = ("lambda", "run", "spend.py", "--mode", mode, "--json")
    if mode == "local":
        code, out, errors = call_in(tmp_path, *command)
    else:  # Spark's workers find the job file from where their session was started
        answer = subprocess.run(
            [sys.executable, "-m", "streamwork", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        code, out, errors = answer.returncode, answer.stdout, answer.stderr
    assert code == 0, errors
    assert {"run": 1, "events": 3, "name": "card-spending"}.items() <= json.loads(out).items()
    with EventLog(tmp_path / "purchases.log") as log:
        log.append([*purchases(10), Purchase("b", 5)])
    assert call_in(tmp_path, *run)[0] == 0
    code, out, _ = call_in(tmp_path, "lambda", "get", "spend.py", "a", "--json")
    found = json.loads(out)
    assert [found[part]["total"] for part in ("record", "exact", "recent")] == [16, 6, 10]
    assert (found["is_exact"], found["stand"]["run"]) == (False, 1)
    code, out, _ = call_in(tmp_path, "lambda", "get", "spend.py", "a")
    assert all(word in out for word in ("batch run", "behind it", "exact up to checkpoint"))
    assert "no event of c" in call_in(tmp_path, "lambda", "get", "spend.py", "c")[1]
    code, out, _ = call_in(
        tmp_path,
        "lambda",
        "query",
        "spend.py",
        "SELECT card, total, is_exact FROM card_spending ORDER BY card",
        "--json",
    )
    assert json.loads(out)["rows"] == [
        {"card": "a", "total": 16, "is_exact": False},
        {"card": "b", "total": 5, "is_exact": False},
    ]
    code, out, _ = call_in(tmp_path, "lambda", "query", "spend.py", "SELECT nothing", "--json")
    assert json.loads(out)["error"]["code"] == "SW-STATE-SQL"


def test_what_only_a_batch_run_computes(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add(purchases(1, 2))
    world.stream()
    with world.view() as view, pytest.raises(Exception, match="SW-LAMBDA-NO-RUN"):
        view.batch  # noqa: B018
    world.batch()
    with world.view() as view:
        assert view.batch.components() == ["card-spending"]


def test_input_that_is_gone_is_not_left_out_silently(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    world.add(purchases(1, 2))
    world.stream()
    world.batch()
    monkeypatch.setattr(LogSource, "earliest", lambda self, partitions: dict.fromkeys(partitions, 1))
    with pytest.raises(Exception, match="SW-LAMBDA-GONE"):
        world.batch()


def definition(**changes: object) -> Lambda[Spending]:
    given = {
        "events": lambda job: job.source(ListSource([Purchase("a", 1)]), id="purchases"),
        "key": "card",
        "to": Spending,
        "purchases": count(),
        "total": sum_of("amount"),
    }
    return Lambda("card-spending", **{**given, **changes})  # type: ignore[arg-type]


class Ticks(Source[Purchase]):
    def get_events(self, collector: object) -> None: ...


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ({"key": "cart"}, "SW-WINDOW-FIELD", "no field 'cart'"),
        ({"key": ()}, "SW-WINDOW-FIELD", "needs a key"),
        ({"most": 3}, "SW-WINDOW-FIELD", "is not an aggregate"),
        ({"total": sum_of("shop")}, "SW-WINDOW-FIELD", "shop is a"),
        ({}, "SW-WINDOW-FIELD", "nothing fills"),
        ({"events": lambda job: None}, "SW-LAMBDA-EVENTS", "return the stream"),
        ({"events": lambda job: job.source(Ticks(), id="ticks")}, "SW-LAMBDA-EVENTS", "has no offsets"),
    ],
)
def test_a_definition_is_checked(changes: dict[str, object], code: str, why: str) -> None:
    with pytest.raises(WrongUse) as refused:
        definition(**changes).stream()
    assert refused.value.code == code
    assert why in str(refused.value)


def test_a_job_that_is_no_lambda_is_refused() -> None:
    with pytest.raises(WrongUse, match="SW-LAMBDA-NONE"):
        lambda_of(Job("other"))
