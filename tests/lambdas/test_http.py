"""The merged view over HTTP gives the answers of the view, and each says which part is exact."""

from __future__ import annotations

import contextlib
import http.client
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lambdas.world import Purchase, World, fold
from query.serving_world import SECRET, Served, wait_for
from streamwork.lambdas.http import MergedRoutes
from streamwork.query.server.followed import Jobs
from streamwork.query.server.routes import Questions
from streamwork.serving.access import Endpoint, Token
from streamwork.serving.http import ARROW
from streamwork.serving.limits import Limits
from streamwork.serving.server import Listening


@contextlib.contextmanager
def serving(world: World) -> Iterator[Served]:
    problems: list[str] = []
    jobs = Jobs(world.root, "card-spending", world.folder / "server-cache")
    merged = MergedRoutes(world.view)
    questions = Questions(jobs, Limits(), problems.append, further=merged.further())
    listening = Listening(questions.application, Endpoint.parse("0"), Token(SECRET, "a test"))
    with listening.in_thread() as url:
        try:
            yield Served(url, jobs, problems)
        finally:
            questions.close()
            merged.close()
            jobs.close()
    assert problems == []


def plain(record: Any) -> Any:
    return None if record is None else {name: getattr(record, name) for name in record.__struct_fields__}


def check(served: Served, world: World, seam: int | None) -> None:
    """The answers are those of a loop over all events, over those up to the seam, and over those behind it."""
    up_to = 0 if seam is None else seam
    both, exact, recent = (fold(part) for part in (world.events, world.events[:up_to], world.events[up_to:]))
    for card in both:
        status, answer = served.ask(f"/merged/{card}")
        assert status == 200
        assert answer["record"] == plain(both[card])
        assert answer["exact"] == plain(exact.get(card)) and answer["recent"] == plain(recent.get(card))
        assert answer["is_exact"] == (card not in recent and seam is not None)
    asked = [*both, "nobody"]
    status, answer = served.ask("/merged", "POST", json.dumps({"keys": asked}).encode())
    assert [row["key"] for row in answer["rows"]] == asked
    assert [row["record"] for row in answer["rows"]] == [*map(plain, both.values()), None]
    status, answer = served.ask("/merged")
    assert {row["card"]: row["total"] for row in answer["rows"]} == {card: one.total for card, one in both.items()}
    assert {row["card"] for row in answer["rows"] if row["is_exact"]} == (
        set() if seam is None else set(both) - set(recent)
    )


def test_answers_are_those_of_the_view_also_when_it_moves(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add([Purchase("a", 1), Purchase("b", 2), Purchase("a", 3)])
    world.stream()
    with serving(world) as served:
        check(served, world, None)
        assert served.ask("/merged-stand")[1]["run"] is None
        world.batch()
        check(served, world, 3)
        world.add([Purchase("a", 10), Purchase("c", 4)])
        before = served.ask("/merged-stand")[1]["checkpoint"]
        world.stream()
        wait_for(lambda: served.ask("/merged-stand")[1]["checkpoint"] > before)
        check(served, world, 3)
        stand = served.ask("/merged-stand")[1]
        assert stand["run"] == 1 and stand["seam"] < stand["checkpoint"]
        world.batch()
        check(served, world, 5)
        assert served.ask("/merged/a")[1]["stand"]["run"] == 2
        assert served.ask("/merged?key_json=%22a%22")[1]["record"]["total"] == 14
        assert served.ask("/state")[1]["components"], "the state of the streaming job is served as before"


def test_a_part_too_many_would_be_noticed(tmp_path: Path) -> None:
    """The negative control: an answer of one part alone is not the fold."""
    world = World(tmp_path)
    world.add([Purchase("a", 1)])
    world.stream()
    world.batch()
    world.add([Purchase("a", 2)])
    world.stream()
    with serving(world) as served, pytest.raises(AssertionError):
        check(served, world, 2)


def test_all_keys_in_arrow(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add([Purchase("a", 1), Purchase("b", 2)])
    world.stream()
    with serving(world) as served:
        connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
        headers = {"Authorization": f"Bearer {SECRET}", "Accept": ARROW}
        connection.request("GET", "/merged", headers=headers)
        table = pa.ipc.open_stream(connection.getresponse().read()).read_all()
        connection.close()
    with world.view() as view:
        assert table.select(["card", "total"]).to_pylist() == view.table().select(["card", "total"]).to_pylist()


def test_what_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.add([Purchase("a", 1)])
    world.stream()
    with serving(world) as served:
        assert served.refused("/merged/a", token=None) == (401, "SW-SERVE-TOKEN")
        assert served.refused("/merged/a/b") == (400, "SW-QUERY-KEY")
        assert served.refused("/merged?key_json=7") == (400, "SW-QUERY-KEY")
        assert served.refused("/merged?key=7") == (400, "SW-SERVE-REQUEST")
        assert served.refused("/merged", "POST", b"[]") == (400, "SW-SERVE-REQUEST")
        assert served.refused("/merged/a", "POST", b'{"keys": []}')[1] == "SW-SERVE-ROUTE"
        assert served.refused("/merged-stand/a") == (404, "SW-SERVE-ROUTE")
        paths = served.ask("/openapi.json")[1]["paths"]
        assert {"/merged", "/merged/{key}", "/merged-stand", "/state"} <= set(paths)
