"""Watching over HTTP: the changes of each checkpoint, applied one after the other, give the state."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

from query.query_jobs import by_shop, fold, sales, sales_job, values
from query.serving_world import serving, wait_for
from sample import run_job
from streamwork import query
from streamwork.serving.limits import Limits

EVENTS = sales(range(0, 40_000, 97))


def test_changes_add_up_to_the_state(tmp_path: Path) -> None:
    root = tmp_path / "root"
    epoch = run_job(sales_job(EVENTS[:50], tmp_path), root).checkpoint or 0
    with serving(root) as served, served.connect() as state:
        served.follow(epoch)
        component = state["by-shop"]
        found = dict(component.scan())
        one: dict[Any, Any] = {}
        threads = [
            threading.Thread(target=collect, args=(component, None, found, epoch + 10), daemon=True),
            threading.Thread(target=collect, args=(component, "shop-02", one, epoch + 10), daemon=True),
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: served_streams(served) == 2)
        last = run_job(sales_job(EVENTS[:150], tmp_path), root).checkpoint or 0
        assert last == epoch + 10
        run_job(sales_job(EVENTS[:200], tmp_path), root)
        wait_for(lambda: (found.get("last") or 0) >= last and (one.get("last") or 0) > epoch)
        final = dict(found["state"])
        events = EVENTS[: 50 + 10 * (found["last"] - epoch)]
        assert {key: values(record) for key, record in final.items()} == fold(events, by_shop)
        assert set(one["state"]) == {"shop-02"}


def collect(component: query.Component[Any], key: Any, found: dict[Any, Any], last: int) -> None:
    state = {k: v for k, v in found.items() if k not in ("state", "last")}
    for change in component.watch(key):
        assert not change.regressed
        for one, record in change.records.items():
            if record is None and key is None:
                state.pop(one, None)  # it may have come and gone within one checkpoint
            else:
                state[one] = record
        found["state"], found["last"] = dict(state), change.epoch
        if change.epoch >= last:
            return


def served_streams(served: Any) -> int:
    return len(served.jobs.get("sales")._waiting)


def test_watchers_are_bounded_and_errors_are_answers(tmp_path: Path) -> None:
    root = tmp_path / "root"
    epoch = run_job(sales_job(EVENTS[:50], tmp_path), root).checkpoint or 0
    with serving(root, limits=Limits(streams=1)) as served:
        served.follow(epoch)
        assert served.refused("/watch/none") == (404, "SW-QUERY-COMPONENT")
        assert served.refused("/watch/by-order/a") == (400, "SW-QUERY-KEY")
        assert served.refused("/watch") == (404, "SW-SERVE-ROUTE")
        with served.connect()._http.stream("/watch/by-shop", "") as first:
            assert first.readline() == b"event: began\n"
            assert served.refused("/watch/by-shop") == (429, "SW-SERVE-BUSY")
        wait_for(lambda: served_streams(served) == 0)
        with served.connect()._http.stream("/watch/by-shop", "") as second:
            assert second.readline() == b"event: began\n"
