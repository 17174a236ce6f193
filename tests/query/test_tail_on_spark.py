"""`consistency="latest"` of a job in live mode on Spark, whose driver is killed with -9."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from commands import call_in
from hosts.test_live_on_spark import JOB, Load, Runs, running
from streamwork import JobFailed, query
from waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.spark]


class Asked(NamedTuple):
    shop: str
    count: int
    epoch: int
    possibly_undone: bool
    regressed: bool


class Asking:
    """Asks for one shop after the other, in a thread."""

    def __init__(self, folder: Path) -> None:
        self.answers: list[Asked] = []
        self._folder = folder / "root" / "moving"
        self._cache = folder / "cache"
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        with query.open(self._folder, cache=self._cache) as state:
            while not self._over.wait(0.005):
                shop = f"shop-{len(self.answers) % 7}"
                one = state["counting"].get(shop, consistency="latest")
                count = 0 if one.record is None else one.record.count
                self.answers.append(Asked(shop, count, one.epoch, one.possibly_undone, one.regressed))

    def __enter__(self) -> Asking:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def sees(self, runs: Runs, what: Any) -> None:
        begun = len(self.answers)
        wait_for(lambda: any(what(one) for one in self.answers[begun:]), runs.process)

    def went_back(self) -> list[Asked]:
        """Answers that are before an earlier one, and not marked as regressed."""
        found, most = [], dict.fromkeys((f"shop-{n}" for n in range(7)), 0)
        for one in self.answers:
            if one.regressed:
                most = dict.fromkeys(most, 0)
            elif one.count < most[one.shop]:
                found.append(one)
            else:
                most[one.shop] = one.count
        return found


def is_readable(folder: Path) -> bool:
    try:
        with query.open(folder / "root" / "moving", cache=folder / "cache") as state:
            return state["counting"].count().epoch > 0
    except JobFailed:
        return False
    except Exception as error:  # the job's folder is being made
        return bool(getattr(error, "code", "") == "")


@pytest.mark.timeout(600)
def test_answers_fall_back_when_the_driver_is_killed(tmp_path: Path) -> None:
    """Counts of a key only grow, but where an answer is marked; what it had published is gone with its fence."""
    (tmp_path / "job.py").write_text(JOB.replace("200ms", "1500ms"))
    with Load(tmp_path) as load, running(tmp_path, load) as runs:
        runs.start("live", "--queryable-latest")
        wait_for(lambda: is_readable(tmp_path), runs.process)
        with Asking(tmp_path) as asking:
            asking.sees(runs, lambda one: one.possibly_undone)
            code, out, errors = call_in(
                tmp_path, "query", "job.py", "--root", "root", "counting", "shop-3", "--consistency", "latest", "--json"
            )
            assert code == 0 and json.loads(out)["possibly_undone"] in (True, False), errors
            runs.is_killed()
            lost = max(one.epoch for one in asking.answers)
            runs.start("live", "--queryable-latest")
            asking.sees(runs, lambda one: one.regressed)
            asking.sees(runs, lambda one: one.possibly_undone and not one.regressed and one.epoch > lost)
            runs.loses_a_worker()
            asking.sees(runs, lambda one: one.regressed)
            asking.sees(runs, lambda one: one.possibly_undone and not one.regressed)
        assert not asking.went_back()
        assert len(asking.answers) > 200
        sent = load.sent
        assert all(one.count <= sent // 7 + 1 for one in asking.answers)
