"""Every route answers with the read model that its command line (`cli`) prints with --json."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from console.console_world import Served, showing
from query.query_jobs import sales, sales_job
from sample import run_job
from streamwork.cli.main import cli

EVENTS = sales(range(0, 8_000, 97))


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path = tmp_path_factory.mktemp("console")
    run_job(sales_job(EVENTS, path, 2), path / "root")
    with showing(path / "root") as found:
        yield found


def printed(line: str) -> Any:
    """What a command line prints."""
    words = shlex.split(line)
    assert words[0] == "streamwork" and words[-1] == "--json"
    result = CliRunner().invoke(cli, words[1:], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def without_ages(found: Any) -> Any:
    """Two readings differ in the ages that they show."""
    if isinstance(found, dict):
        return {name: without_ages(value) for name, value in found.items() if name != "age_seconds"}
    return [without_ages(one) for one in found] if isinstance(found, list) else found


@pytest.mark.parametrize(
    "path",
    [
        "overview",
        "jobs/sales",
        "jobs/sales/history",
        "jobs/sales/history?points=3",
        "jobs/sales/epochs",
        "jobs/sales/epochs?limit=3",
        "jobs/sales/epochs?limit=2&before=5",
        "jobs/sales/epochs?outcome=completed",
        "jobs/sales/epochs/3",
    ],
)
def test_a_route_answers_what_its_command_prints(served: Served, path: str) -> None:
    answer = served.get(f"/api/{path}")
    cli = answer.pop("cli")
    assert without_ages(answer) == without_ages(printed(cli))


def test_the_status_of_a_job_is_that_of_the_command(served: Served) -> None:
    status = served.get("/api/jobs/sales")["status"]
    line = shlex.join(["streamwork", "status", "--root", str(served.root), "sales", "--json"])
    assert without_ages(status) == without_ages(printed(line))


def test_the_overview_agrees_with_the_status(served: Served) -> None:
    (summary,) = served.get("/api/overview")["jobs"]
    job = served.get("/api/jobs/sales")
    status = job["status"]
    assert (summary["job"], summary["running"], summary["checkpoint"]) == ("sales", False, status["checkpoint"])
    assert summary["verdict"] == status["verdicts"][0] and summary["verdicts"] == len(status["verdicts"])
    assert summary["completed_at"] == status["completed_at"] and summary["abandoned"] == status["abandoned"]
    assert summary["lag"]["total"] == sum(one["total"] for one in status["lag"].values())
    assert (summary["semantics"], summary["mode"]) == (job["semantics"], job["run"]["mode"])


def test_the_graph_is_that_of_the_job(served: Served) -> None:
    graph = served.get("/api/jobs/sales")["graph"]
    assert [node["id"] for node in graph["nodes"]] == ["sales", "watching", "by-shop", "a", "by-order", "b"]
    nodes = {node["id"]: node for node in graph["nodes"]}
    assert nodes["sales"]["processed"] == len(EVENTS) and nodes["by-shop"]["key"] == ["shop"]
    by_shop = nodes["by-shop"]
    assert [one["instance"] for one in by_shop["instances"]] == [0, 1]
    assert sum(one["processed"] for one in by_shop["instances"]) == len(EVENTS)
    assert by_shop["state"]["keys"] > 0 and by_shop["state"]["bytes"] > 0 and nodes["a"]["state"] is None
    edges = [(edge["from"], edge["to"]) for edge in graph["edges"]]
    assert sorted(edges) == [
        ("by-order", "b"),
        ("by-shop", "a"),
        ("sales", "watching"),
        ("watching", "by-order"),
        ("watching", "by-shop"),
    ]


def test_pages_of_epochs_are_the_whole_history(served: Served) -> None:
    whole = served.get("/api/jobs/sales/epochs?limit=1000")
    assert whole["next"] is None and whole["kept"] == len(whole["epochs"]) > 4
    found: list[Any] = []
    path = "/api/jobs/sales/epochs?limit=2"
    while True:
        page = served.get(path)
        found += page["epochs"]
        if page["next"] is None:
            break
        path = f"/api/jobs/sales/epochs?limit=2&before={page['next']}"
    assert found == whole["epochs"]


def test_an_epoch_names_its_files(served: Served) -> None:
    newest = served.get("/api/jobs/sales")["status"]["checkpoint"]
    epoch = served.get(f"/api/jobs/sales/epochs/{newest}")
    assert epoch["state"] == "completed" and epoch["manifest"]["positions"] == {"sales/0": len(EVENTS)}
    assert {file["kind"] for file in epoch["files"]} == {"state", "output"} and epoch["plan"]["parent"] == newest - 1
    for file in epoch["files"]:
        path: Path = served.root / "sales" / file["path"]
        assert file["present"] and path.stat().st_size == file["bytes"]
    assert served.ask("/api/jobs/sales/epochs/999").code == "SW-EPOCH-UNKNOWN"
    assert served.ask("/api/jobs/sales/epochs/999").status == 404
