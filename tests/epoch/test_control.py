"""Requests to a driver: asked, answered, tidied; and whatever else may lie in the folder."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import pytest

from streamwork.epoch.control import GONE, STALE_SECONDS, Control, Kind
from streamwork.testing import DiskCrashed, SimulatedDisk
from streamwork.testing.clock import VirtualClock

JOB = Path("/jobs/job")
FOLDER = JOB / "control"


class Desk:
    def __init__(self) -> None:
        self.disk = SimulatedDisk()
        self.clock = VirtualClock()
        ids = count(1)
        self.client = Control(self.disk, JOB, self.clock, lambda: f"id{next(ids)}")
        self.driver = Control(self.disk, JOB, self.clock)

    def put(self, name: str, data: bytes) -> None:
        self.disk.make_folder(FOLDER)
        self.disk.replace(FOLDER / name, data)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_request_is_answered_once_and_nothing_is_left(desk: Desk) -> None:
    assert desk.driver.requests(5) == []
    asked = desk.client.ask(Kind.STOP, 5)
    assert desk.client.answer(asked) is None
    (request,) = desk.driver.requests(5)
    assert (request.id, request.kind, request.fence) == (asked, Kind.STOP, 5)
    assert desk.driver.requests(5) == [request], "until it is answered"
    desk.driver.reply(request, True, "stopped", checkpoint=42)
    assert desk.driver.requests(5) == []
    answer = desk.client.answer(asked)
    assert answer is not None and (answer.ok, answer.text, answer.checkpoint) == (True, "stopped", 42)
    assert desk.disk.names(FOLDER) == []
    assert desk.client.answer(asked) is None


def test_the_oldest_comes_first(desk: Desk) -> None:
    first = desk.client.ask(Kind.STOP, 1, {"why": "first"})
    desk.clock.sleep(1)
    second = desk.client.ask(Kind.STOP, 1)
    assert [request.id for request in desk.driver.requests(1)] == [first, second]
    assert desk.driver.requests(1)[0].arguments == {"why": "first"}


def test_a_driver_that_is_gone_is_answered_for_by_the_next(desk: Desk) -> None:
    asked = desk.client.ask(Kind.STOP, 4)
    assert desk.driver.requests(5) == [], "a request to an old driver must not stop a new one"
    answer = desk.client.answer(asked)
    assert answer is not None and (answer.ok, answer.text) == (False, GONE)


def test_a_request_to_a_driver_that_came_after_me_is_not_mine(desk: Desk) -> None:
    asked = desk.client.ask(Kind.STOP, 6)
    assert desk.driver.requests(5) == []
    assert desk.client.answer(asked) is None
    assert [request.id for request in desk.driver.requests(6)] == [asked]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "cannot be read"),
        (b"\xff\x00", "cannot be read"),
        (b"[]", "cannot be read"),
        (b'{"kind": "stop"}', "cannot be read"),
        (b'{"kind": "explode", "fence": 5, "asked_at": 0}', "does not know how to 'explode'"),
    ],
)
def test_nonsense_is_answered_and_does_not_stop_the_driver(desk: Desk, data: bytes, words: str) -> None:
    desk.put("x.request.json", data)
    good = desk.client.ask(Kind.STOP, 5)
    assert [request.id for request in desk.driver.requests(5)] == [good]
    answer = desk.client.answer("x")
    assert answer is not None and not answer.ok and words in answer.text
    aside = [name for name in desk.disk.names(FOLDER) if name.startswith("x")]
    assert aside == (["x.malformed"] if words == "cannot be read" else [])


def test_an_answer_that_cannot_be_read_is_one(desk: Desk) -> None:
    desk.put("x.answer.json", b"{")
    answer = desk.client.answer("x")
    assert answer is not None and not answer.ok


def test_answers_that_nobody_fetched_go_after_an_hour(desk: Desk) -> None:
    desk.client.ask(Kind.STOP, 5)
    (request,) = desk.driver.requests(5)
    desk.driver.reply(request, True, "stopped")
    desk.clock.sleep(STALE_SECONDS - 1)
    desk.driver.requests(6)
    assert desk.disk.names(FOLDER) == ["id1.answer.json"]
    desk.clock.sleep(2)
    desk.driver.requests(6)
    assert desk.disk.names(FOLDER) == []


def test_a_folder_that_cannot_be_read_is_one_without_requests(desk: Desk, tmp_path: Path) -> None:
    from streamwork.world import RealDisk

    (tmp_path / "control").write_text("a file")
    assert Control(RealDisk(), tmp_path, desk.clock).requests(1) == []


def test_what_is_withdrawn_is_not_done(desk: Desk) -> None:
    desk.client.withdraw(desk.client.ask(Kind.STOP, 5))
    assert desk.driver.requests(5) == []


def test_a_crash_while_answering_leaves_either_the_request_or_the_answer() -> None:
    def answer(desk: Desk, crash_at: int | None) -> int:
        desk.client.ask(Kind.STOP, 5)
        (request,) = desk.driver.requests(5)
        before = desk.disk.steps
        desk.disk.crash_at(None if crash_at is None else before + crash_at)
        desk.driver.reply(request, True, "stopped", 42)
        return desk.disk.steps - before

    steps = answer(Desk(), None)
    assert steps > 3
    for step in range(1, steps + 1):
        desk = Desk()
        with pytest.raises(DiskCrashed):
            answer(desk, step)
        desk.disk.crash()
        pending = desk.driver.requests(6)  # the next driver
        assert pending == []
        got = desk.client.answer("id1")
        assert got is not None and got.text in ("stopped", GONE)
        assert desk.disk.names(FOLDER) == []
