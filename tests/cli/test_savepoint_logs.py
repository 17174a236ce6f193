"""Savepoints and the log that a job reads: what is behind a savepoint is kept until it is dropped; if it is gone, that is said."""

from __future__ import annotations

import shutil
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sample import Payment
from savepoint_jobs import ROOT, Place, expected
from streamwork import EventLog
from streamwork.log import LogReader, Policy

LOG = "payments.log"


class LogPlace(Place):
    """Its input is a log that keeps what is needed, and nothing else."""

    def write(self, name: str, factor: int = 1, sink: str = "SqliteSink('journal.db', 'journal')") -> None:
        super().write(name, factor, sink)
        text = (self.folder / name).read_text().replace("JsonLines", "LogSource")
        (self.folder / name).write_text(text.replace("payments.jsonl", LOG).replace("max_events=5", "max_events=4"))

    def give(self, count: int) -> None:
        new = [(f"card-{i % 7}", 1 + i % 5) for i in range(len(self.given), len(self.given) + count)]
        policy = Policy(segment_bytes=600, retain_bytes=1)
        with EventLog.create(self.folder / LOG, Payment, exist_ok=True, policy=policy) as log:
            for start in range(0, count, 20):
                log.append([Payment(card, amount) for card, amount in new[start : start + 20]])
            log.retain()
        self.given += new

    def first(self) -> int:
        """The lowest offset that the log has."""
        with LogReader(self.folder / LOG, Payment) as log:
            return log.start(0)

    def go_on(self) -> None:
        """Enough for the log to remove what no checkpoint needs."""
        for _ in range(2):
            self.give(120)
            self.catch_up()
        self.give(20)


@pytest.fixture
def place(tmp_path: Path, prompt_snapshots: None) -> LogPlace:
    place = LogPlace(tmp_path / "here", latest="")
    place.give(0)
    place.catch_up()  # from here on the log keeps what the job needs
    place.give(100)
    place.catch_up()
    return place


def test_a_log_keeps_what_is_behind_a_savepoint_until_it_is_dropped(place: LogPlace) -> None:
    place.save("one")
    place.go_on()
    assert place.first() <= 100
    consumers = place.ask("log", "info", LOG)["consumers"]
    assert "savepoint one" in str(consumers)
    place.ask("savepoint", "drop", "usage.py", "one")
    place.go_on()
    assert place.first() > 100
    assert "savepoint one" not in str(place.ask("log", "info", LOG)["consumers"])


@pytest.mark.slow
def test_control_without_a_savepoint_the_events_go(place: LogPlace) -> None:
    place.go_on()
    assert place.first() > 100


@pytest.mark.slow
def test_a_savepoint_whose_input_is_gone_says_so_and_is_refused(place: LogPlace, tmp_path: Path) -> None:
    place.save("one")
    folder = place.folder / ROOT / "usage" / "savepoints" / "one"
    shutil.copytree(folder, tmp_path / "copy")
    place.ask("savepoint", "drop", "usage.py", "one")
    place.go_on()
    shutil.copytree(tmp_path / "copy", folder)
    listed = place.ask("savepoint", "list", "usage.py")["savepoints"][0]
    assert [(gone["source"], gone["needed"]) for gone in listed["input_gone"]] == [("payments", 100)]
    before = place.journal()
    refused = place.refused("run", "usage.py", "--mode", "local", "--from", "savepoint:one", "--rewind-output")
    assert refused["code"] == "SW-LOG-GONE" and "earliest" in refused["action"]
    target = ("--target", "journal=journal_b.db")
    assert place.refused("savepoint", "fork", "usage.py", "one", "--as", "b", *target)["code"] == "SW-LOG-GONE"
    assert place.journal() == before and not (place.folder / "journal_b.db").exists()


@pytest.mark.slow
def test_what_is_gone_can_be_skipped_by_choice(place: LogPlace, tmp_path: Path) -> None:
    place.save("one")
    shutil.copytree(place.folder / ROOT / "usage" / "savepoints" / "one", tmp_path / "copy")
    place.ask("savepoint", "drop", "usage.py", "one")
    place.go_on()
    first = place.first()
    options = ("--from", tmp_path / "copy", "--rewind-output", "--input", "payments=earliest", "--accept-input")
    place.catch_up(*options)
    assert place.journal() == expected([*place.given[:100], *place.given[first:]])


def test_from_a_time_on(place: LogPlace) -> None:
    place.save("one")
    place.give(40)
    time.sleep(0.02)
    at = datetime.now(UTC).isoformat()
    time.sleep(0.02)
    place.give(20)
    options = ("--from", "savepoint:one", "--input", f"payments=time:{at}")
    refused = place.refused("run", "usage.py", "--mode", "local", "--until-caught-up", *options)
    assert refused["code"] == "SW-INPUT-CHANGED" and "goes on from 100 to 140" in refused["cause"]
    assert place.catch_up(*options, "--accept-input")["events"] == 20
    assert place.journal() == expected([*place.given[:100], *place.given[140:]])


def test_a_place_that_is_none_is_wrong_use(place: LogPlace) -> None:
    place.save("one")
    for text in ("payments=time:soon", "payments=first", "other=latest", "payments"):
        options = ("--from", "savepoint:one", "--input", text)
        assert place.refused("run", "usage.py", "--mode", "local", *options)["code"] == "SW-USAGE"
