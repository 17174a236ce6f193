"""`consistency="latest"`: what tasks of live mode have changed behind the newest checkpoint.

The oracle: each answer is the fold of a prefix of the key's events, at or after the one before, unless it is marked as regressed.
"""

from __future__ import annotations

import bisect
import json
import random
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commands import call_in
from gangs import GangRun
from query.live_sales import live_sales, sales_log
from query.query_jobs import Sale, sales, values
from query.serving_world import Served, serving
from streamwork import WrongUse, query
from streamwork.engine import publishing
from streamwork.query.local import LocalState
from streamwork.query.reader import Reader
from streamwork.query.tail import TailedVersion
from streamwork.state.tail import TailName
from waiting import wait_for

SHOPS = 5


class Sales(GangRun):
    """A live job whose state can be asked behind its checkpoints. Checkpoints are taken when a test asks for them."""

    publishes = True

    def __init__(self, folder: Path, parallelism: int = 1) -> None:
        super().__init__(folder, live_sales(folder, parallelism))
        sales_log(folder).close()
        self.sent: dict[str, list[Sale]] = defaultdict(list)

    def send(self, numbers: Any) -> None:
        events = sales([number * 37 + 40 for number in numbers], SHOPS)
        for event in events:
            self.sent[event.shop].append(event)
        with closing(sales_log(self.folder)) as log:
            log.append(events)

    def open(self) -> LocalState:
        return LocalState(Reader(self.folder / "root" / "sales", cache=self.folder / "cache", follow_every=0))

    def first_checkpoint(self) -> None:
        self.send(range(20))
        self.until(lambda: self.driver.at.epoch > 0, "the first checkpoint")
        with self.open() as state:
            self.until(lambda: sum(counted(state, "committed").values()) == 20, "all events")

    def final(self) -> dict[str, Any]:
        return {shop: last for shop, events in self.sent.items() if (last := prefixes(events)[-1]) is not None}

    @property
    def tails(self) -> list[Path]:
        return [path for path in self.folder.glob("root/sales/exchange/*/latest/*/*") if path.is_file()]


def prefixes(events: list[Sale]) -> list[tuple[int, int, tuple[int, ...]] | None]:
    """The values of a key after none of its events, after the first, and so on."""
    found: list[Any] = [None]
    for event in events:
        count, total, last = found[-1] or (0, 0, ())
        found.append((count + 1, total + event.amount, (*last, event.amount)[-3:]) if event.amount else None)
    return found


def folds(state: query.State, consistency: str) -> Iterator[tuple[str, Any]]:
    for shop, record in state["by-shop"].scan(consistency=consistency):
        yield shop, values(record)


@contextmanager
def started(run: Sales) -> Iterator[Sales]:
    run.start()
    try:
        yield run
    finally:
        run.end()


@pytest.mark.parametrize("parallelism", [1, 2])
def test_what_lies_behind_the_checkpoint_is_answered(tmp_path: Path, parallelism: int) -> None:
    with started(Sales(tmp_path, parallelism)) as run, run.open() as state:
        run.first_checkpoint()
        committed = state["by-shop"].count()
        assert committed.committed and not committed.possibly_undone
        run.send(range(20, 70))
        wait_for(lambda: dict(folds(state, "latest")) == run.final())
        answer = state["by-shop"].get("shop-01", consistency="latest")
        assert not answer.committed and answer.possibly_undone and not answer.regressed
        assert answer.epoch > committed.epoch and answer.age < 200
        for asked in ("committed", "prepared"):
            before = state["by-shop"].get("shop-01", consistency=asked)
            assert before.committed and before.epoch == committed.epoch
        many = state["by-shop"].get_many(["shop-00", "unknown", "shop-01"], consistency="latest")
        assert many.possibly_undone and many.records[1] is None and many.records[2] == answer.record
        in_order = state["by-shop"].range("shop-01", "shop-03", consistency="latest")
        assert in_order.found_keys == [shop for shop in ("shop-01", "shop-02") if shop in run.final()]
        wait_for(lambda: counted(state) == {shop: len(events) for shop, events in run.sent.items()})
        wait_for(lambda: [one.events for _, one in state["watching"].scan(consistency="latest")] == [70])
        assert [one.events for _, one in state["watching"].scan()] == [20]
        with pytest.raises(WrongUse, match="SW-QUERY-OPTION: changes are watched"):
            next(iter(state["by-shop"].watch(consistency="latest")))
        run.until(lambda: dict(folds(state, "committed")) == run.final(), "the checkpoint")
        settled = state["by-shop"].get("shop-01", consistency="latest")
        assert settled.committed and not settled.possibly_undone and settled.record == answer.record


def counted(state: query.State, consistency: str = "latest") -> dict[str, int]:
    return {shop: record.count for shop, record in state["numbers"].scan(consistency=consistency)}


def test_sql_sees_what_lies_behind_the_checkpoint(tmp_path: Path) -> None:
    with started(Sales(tmp_path)) as run, run.open() as state:
        run.first_checkpoint()
        run.send(range(20, 40))
        wait_for(lambda: sum(counted(state).values()) == 40)
        for consistency, count in (("latest", 40), ("committed", 20)):
            found = state.sql("SELECT sum(count) AS n FROM numbers", consistency=consistency)
            assert found.to_arrow().to_pylist() == [{"n": count}]
            assert found.possibly_undone == (consistency == "latest")


def test_a_job_that_does_not_publish_answers_from_its_checkpoints(tmp_path: Path) -> None:
    run = Sales(tmp_path)
    run.publishes = False
    with started(run), run.open() as state:
        run.first_checkpoint()
        run.send(range(20, 70))
        wait_for(lambda: run.host.moved())
        answer = state["by-shop"].count(consistency="latest")
        assert answer.committed and not answer.possibly_undone
        assert not list((tmp_path / "root/sales/exchange").rglob("latest"))


def test_nothing_is_left_at_a_stop(tmp_path: Path) -> None:
    run = Sales(tmp_path)
    run.start()
    with run.open() as state:
        run.first_checkpoint()
        run.send(range(20, 70))
        wait_for(lambda: dict(folds(state, "latest")) == run.final())
        assert run.tails
        run.stop()
        assert not list((tmp_path / "root/sales/exchange").rglob("latest"))
        answer = state["by-shop"].count(consistency="latest")
        assert answer.committed and not answer.regressed
        assert dict(folds(state, "latest")) == run.final()


def test_a_lost_gang_takes_its_tail_with_it(tmp_path: Path) -> None:
    """Answers fall back to the checkpoint, marked as regressed, until a later one is there."""
    run = Sales(tmp_path)
    run.start()
    with run.open() as state:
        run.first_checkpoint()
        before = dict(folds(state, "committed"))
        run.send(range(20, 70))
        wait_for(lambda: dict(folds(state, "latest")) == run.final())
        lost = state["by-shop"].count(consistency="latest")
        run.launcher.lose()
        still = state["by-shop"].count(consistency="latest")
        assert still.possibly_undone and not still.regressed, "no other driver has the job"
        run.driver.close()  # as if its process was killed: its host removes nothing
        run.start()
        answer = state["by-shop"].count(consistency="latest")
        assert answer.regressed and answer.committed and not answer.possibly_undone and answer.epoch < lost.epoch
        assert dict(folds(state, "latest")) == before
        assert not state["by-shop"].count().regressed
        run.until(lambda: dict(folds(state, "committed")) == run.final(), "a later checkpoint")
        again = state["by-shop"].count(consistency="latest")
        assert not again.regressed and again.epoch > lost.epoch
        assert all(f"/exchange/{run.driver.fence}/" in str(path) for path in run.tails)
        run.end()


def test_files_are_cut_and_removed_behind_checkpoints(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "LARGE", 4_000)
    monkeypatch.setattr(publishing, "EVERY", 0.0)
    monkeypatch.setattr(publishing, "SHARE", 1.0)
    monkeypatch.setattr(publishing, "CLEAN_EVERY", 0.0)
    with started(Sales(tmp_path)) as run, run.open() as state:
        run.first_checkpoint()
        parts, most = set(), 0
        for begin in range(20, 220, 5):  # many additions without a checkpoint
            run.send(range(begin, begin + 5))
            wait_for(lambda: sum(counted(state).values()) == begin + 5)  # noqa: B023
            parts |= {name.part for path in run.tails if (name := TailName.parse(path.name))}
            most = max([most, *(path.stat().st_size for path in run.tails if path.exists())])
        assert len(parts) > 2 and most < 40_000, (parts, most)
        assert dict(folds(state, "latest")) == run.final()
        run.until(lambda: dict(folds(state, "committed")) == run.final(), "the checkpoint")
        wait_for(lambda: all(TailName.parse(path.name).epoch > run.driver.at.epoch for path in run.tails))  # type: ignore[union-attr]


class Asked(NamedTuple):
    shop: str
    found: Any
    regressed: bool
    committed: bool
    possibly_undone: bool


def asked_while_lost(folder: Path, rounds: int, losses: int, seed: int) -> tuple[list[Asked], dict[str, list[Sale]]]:
    """Answers to one thread, in their order, while another sends and gangs are lost."""
    rng = random.Random(seed)
    run = Sales(folder, parallelism=2)
    run.start()
    run.first_checkpoint()
    ended, answers = threading.Event(), []

    def ask() -> None:
        asking = random.Random(seed)
        with run.open() as state:
            while not ended.is_set():
                shop = f"shop-{asking.randrange(SHOPS):02d}"
                one = state["by-shop"].get(shop, consistency="latest")
                found = None if one.record is None else values(one.record)
                ended.wait(0.001)
                answers.append(Asked(shop, found, one.regressed, one.committed, one.possibly_undone))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        left = losses
        for number in range(rounds):
            run.send([rng.randrange(10_000) for _ in range(rng.randrange(1, 60))])
            if rng.random() < 0.6:
                time.sleep(rng.random() * 0.1)
            if left and rng.random() < losses / rounds + (rounds - number <= left):
                left -= 1
                run.lose()
                run.start()
                run.checkpoint()  # launches a gang
            elif rng.random() < 0.5:
                run.checkpoint()
        with run.open() as state:
            run.until(lambda: dict(folds(state, "committed")) == run.final(), "the end")
    finally:
        ended.set()
        thread.join()
        run.end()
    return answers, run.sent


def wrong(answers: list[Asked], sent: dict[str, list[Sale]]) -> list[str]:
    """Answers that are no fold of a prefix, or of a shorter one than an answer before that was not undone."""
    bad, least = [], dict.fromkeys(sent, 0)
    places: dict[tuple[str, Any], list[int]] = defaultdict(list)
    for shop, events in sent.items():
        for number, value in enumerate(prefixes(events)):
            places[shop, value].append(number)
    for number, one in enumerate(answers):
        if one.regressed:
            least = dict.fromkeys(sent, 0)  # results may go back
        possible = places.get((one.shop, one.found), [])
        first = bisect.bisect_left(possible, least[one.shop])
        if first == len(possible):
            bad.append(f"{number}: {one} is no prefix at or after {least[one.shop]}: {possible}")
        elif not one.regressed:
            least[one.shop] = possible[first]
    return bad


@pytest.mark.parametrize(("rounds", "losses"), [(25, 1), pytest.param(250, 8, marks=pytest.mark.slow)])
def test_every_answer_is_a_prefix_of_its_keys_events(tmp_path: Path, rounds: int, losses: int) -> None:
    seed = random.randrange(10**6)
    answers, sent = asked_while_lost(tmp_path, rounds, losses, seed)
    assert not (bad := wrong(answers, sent)), f"seed {seed}: {bad[:3]}"
    assert any(one.possibly_undone for one in answers) and len(answers) > 50


@pytest.mark.slow
def test_overlays_in_the_wrong_order_are_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control: of the rows of a key, the older one wins."""
    right = TailedVersion._read

    def reversed_(self: TailedVersion, name: str) -> Any:
        state = right(self, name)
        lowest, *above = state.pile.blocks
        return type(state)(**{**vars(state), "pile": type(state.pile)(state.shape, (lowest, *above[::-1]))})

    monkeypatch.setattr(TailedVersion, "_read", reversed_)
    for seed in range(20):
        if wrong(*asked_while_lost(tmp_path / str(seed), 25, 0, seed)):
            return
    raise AssertionError("not found out")


def test_over_http_and_on_the_command_line(tmp_path: Path) -> None:
    with started(Sales(tmp_path)) as run:
        run.first_checkpoint()
        with serving(tmp_path / "root", "sales") as served, served.connect() as state:
            served.follow(run.driver.at.epoch)
            run.send(range(20, 70))
            wait_for(lambda: dict(folds(state, "latest")) == run.final())
            check_http(served, run)
        code, out, errors = call_in(
            tmp_path, "query", "sales", "--root", "root", "by-shop", "shop-01", "--consistency", "latest", "--json"
        )
        assert code == 0, errors
        answer = json.loads(out)
        assert answer["possibly_undone"] and not answer["committed"]
        assert answer["rows"][0]["record"]["count"] == run.final()["shop-01"][0]
        _, out, _ = call_in(
            tmp_path, "query", "sales", "--root", "root", "by-shop", "shop-01", "--consistency", "latest"
        )
        assert "not committed" in out and "may be undone" in out


def check_http(served: Served, run: Sales) -> None:
    status, answer = served.ask("/state/by-shop/shop-01?consistency=latest")
    assert status == 200 and answer["record"]["count"] == run.final()["shop-01"][0]
    assert answer["possibly_undone"] and not answer["committed"] and not answer["regressed"]
    assert answer["epoch"] > run.driver.at.epoch
    status, answer = served.ask("/state/by-shop/shop-01")
    assert status == 200 and answer["committed"] and not answer["possibly_undone"]
    assert served.refused("/watch/by-shop?consistency=latest") == (400, "SW-QUERY-OPTION")
    epoch = run.driver.at.epoch
    status, answer = served.ask(f"/count/by-shop?consistency=latest&at_least={epoch + 1}&timeout=0")
    assert (status, answer["error"]["code"]) == (412, "SW-QUERY-BEHIND"), "the epoch in progress is no checkpoint"
