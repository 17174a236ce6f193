"""The sink that `examples/custom_sink.py` shows keeps the contract of every sink with a ledger."""

from __future__ import annotations

import fcntl
import json
import runpy
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from connectors import checks
from connectors.kits import Gate, Gated, Kit, Rows, entry, seen, staged
from streamwork import JobFailed, Refused

EXAMPLE = runpy.run_path(str(Path(__file__).parents[2] / "examples" / "custom_sink.py"), run_name="custom_sink")


class JsonFileKit(Kit):
    kind: Any = EXAMPLE["JsonFileSink"]

    @property
    def path(self) -> Path:
        return self.folder / "out.json"

    def _new(self) -> Any:
        return self.kind(self.path)

    def rows(self) -> Rows:
        found = json.loads(self.path.read_text())["rows"] if self.path.exists() else []
        return sorted((row["card"], row["number"], row["total"]) for row in found)

    def gate(self, sink: Any, gate: Gate) -> None:
        sink.path = GatedPath(sink.path, gate)


class GatedPath(Gated):
    """A path whose file is read and replaced through a gate."""

    def __init__(self, real: Path, gate: Gate) -> None:
        inside = {"with_suffix": lambda path: GatedPath(path, gate)}
        super().__init__(real, gate, "read_text", "replace", wrap=inside)

    def __fspath__(self) -> str:
        return str(self._real)


@pytest.fixture
def kit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> JsonFileKit:
    real = fcntl.flock

    def impatient(file: Any, how: int) -> None:
        try:
            real(file, how | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JobFailed("SW-SINK-FAILED", "locked", "wait") from None

    monkeypatch.setattr(fcntl, "flock", impatient)
    return JsonFileKit(tmp_path, None)


def test_rows_and_ledger_advance_together(kit: Kit) -> None:
    checks.idempotent(kit)


def test_a_target_has_one_owner(kit: Kit) -> None:
    kit.driver().commit(entry(1, 0, 1), staged(seen(1)))
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        kit.driver(uid="another-life")
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        kit.driver(fence=0)


@pytest.mark.parametrize("done", [False, True], ids=["before it", "after it, unanswered"])
def test_a_death_at_any_operation_of_a_commit(kit: Kit, done: bool) -> None:
    assert checks.death_at_every_step(type(kit), kit, done) >= 3


@pytest.mark.parametrize("only_registers", [True, False], ids=["registers", "goes on"])
def test_a_newer_driver_registers_at_any_operation_of_a_commit(
    kit: Kit, only_registers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert checks.zombie_at_every_step(type(kit), kit, monkeypatch, only_registers) >= 3


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=checks.STEPS)
def test_any_sequence_of_offers_ends_as_in_the_model(
    kit: Kit, steps: list[tuple[str, int]], tmp_path_factory: Any
) -> None:
    checks.as_in_the_model(checks.fresh(type(kit), kit, tmp_path_factory.mktemp("walk")), steps)


def test_without_its_lock_a_newer_driver_would_be_overwritten(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The control."""
    monkeypatch.setattr(fcntl, "flock", lambda file, how: nullcontext())
    with pytest.raises((AssertionError, FileNotFoundError)):
        checks.zombie_at_every_step(type(kit), kit, monkeypatch, True)
