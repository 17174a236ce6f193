"""What commands print: numbers with their nouns, moments, durations, and the states of checkpoints."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from commands import call
from sample import payments, run_job, summing_job
from streamwork.components import Position
from streamwork.components.duration import seconds
from streamwork.epoch import Phase
from streamwork.observe.checkpoints import read_checkpoints
from streamwork.wording import plural
from streamwork.world import RealClock

SOURCES = Path(__file__).parents[2] / "src" / "streamwork"


def test_one_thing_is_one() -> None:
    assert [plural(count, "event") for count in (0, 1, 2, 1000)] == ["0 events", "1 event", "2 events", "1,000 events"]
    assert plural(2, "entry", "entries") == "2 entries"


def test_messages_do_not_put_a_number_before_a_plural() -> None:
    """A computed number and a noun in the plural: one of them reads "1 events"."""
    bare = re.compile(r"\{[^}]*:,(\.0f)?\} (events|keys|dead letters|restarts|transactions|cards)\b")
    found = [
        f"{path.name}: {line.strip()}"
        for path in SOURCES.rglob("*.py")
        if "bench" not in path.parts
        for line in path.read_text().splitlines()
        if bare.search(line)
    ]
    assert not found


def test_a_position_shows_its_clock_as_a_moment() -> None:
    position = Position({"lines/0": 1200, "clock": 1_767_268_800_123_456})
    assert str(position) == "clock at 2026-01-01 12:00:00 UTC, lines/0 at 1,200"


@pytest.mark.parametrize(("text", "value"), [("5", 5.0), ("0.5", 0.5), ("5s", 5.0), ("2min", 120.0)])
def test_a_duration_without_a_unit_is_in_seconds(text: str, value: float) -> None:
    assert seconds(text) == value


def test_stop_takes_a_timeout_without_a_unit(tmp_path: Path) -> None:
    run_job(summing_job(payments(10), tmp_path / "out.db"), tmp_path / "root")
    code, _, errors = call("stop", "--root", tmp_path / "root", "summing", "--timeout", "5")
    assert "is not a duration" not in errors and code != 2, errors


class Killed(BaseException):
    """As the kernel does it: nothing is recorded."""


class Killing:
    def __init__(self, epoch: int) -> None:
        self._epoch = epoch

    def on_phase(self, step: Phase, epoch: int, manifest: Any) -> None:
        if step is Phase.COMPUTE and epoch == self._epoch:
            raise Killed

    def on_starting(self, *_: Any) -> None: ...
    def on_started(self, *_: Any) -> None: ...
    def on_note(self, line: str) -> None: ...
    def on_end(self, outcome: Any) -> None: ...
    def close(self) -> None: ...


def test_an_epoch_whose_driver_was_killed_is_interrupted_for_as_long_as_it_is_listed(tmp_path: Path) -> None:
    root = tmp_path / "root"

    def state(epoch: int) -> str | None:
        rows = {one.checkpoint: one.state.value for one in read_checkpoints(root, "summing", RealClock()).checkpoints}
        return rows.get(epoch)

    with pytest.raises(Killed):
        run_job(summing_job(payments(50), tmp_path / "out.db"), root, watcher=Killing(3))
    assert (state(2), state(3)) == ("completed", "interrupted")
    seen = []
    for count in range(60, 200, 10):
        run_job(summing_job(payments(count), tmp_path / "out.db"), root, retain=2)
        seen.append(state(3))
    listed = [one for one in seen if one is not None]
    assert listed and set(listed) == {"interrupted"}
    assert "unknown" not in {one.state.value for one in read_checkpoints(root, "summing", RealClock()).checkpoints}
