"""Sinks that can remove what was committed after a checkpoint: exactly that, or nothing."""

from __future__ import annotations

import random
from typing import Any

import pytest

from connectors.kits import Died, Gate, Kit, entry, seen, staged
from streamwork import Refused
from streamwork.components import LedgerRow, Position
from streamwork.connectors import sql_commits

appending = pytest.mark.parametrize("kit", ["sqlite", "postgres"], indirect=True)
others = pytest.mark.parametrize("kit", ["sqlite-upsert", "postgres-upsert", "log", "redis"], indirect=True)


def target(epoch: int, at: int, fence: int = 1) -> LedgerRow:
    return LedgerRow(fence, Position({"a/0": at}), f"m{epoch}")


@appending
@pytest.mark.parametrize("seed", range(4))
def test_what_came_after_a_checkpoint_goes_and_the_rest_stays(kit: Kit, seed: int) -> None:
    rng = random.Random(seed)
    sizes, back, again = [rng.randrange(6) for _ in range(rng.randrange(1, 7))], rng.randrange(6), rng.randrange(5)
    sink = kit.driver()
    at, starts = 0, [0]
    for epoch, size in enumerate(sizes, 1):
        sink.commit(entry(epoch, at, at + size, first=epoch == 1), staged(seen(*range(at, at + size))))
        at += size
        starts.append(at)
    epoch = max(1, len(sizes) - back)
    kept = starts[epoch]
    assert sink.cannot_rewind("u", "s", target(epoch, kept)) == ""
    assert sink.rewind("u", "s", target(epoch, kept)) == at - kept
    assert kit.rows() == kit.expected(seen(*range(kept)))
    row = kit.make().ledger("u", "s")
    assert (row.position, row.manifest_sha256) == ({"a/0": kept}, f"m{epoch}")
    sink.commit(
        entry(epoch + 1, kept, kept + again, manifest_sha256="other", deterministic=False, first=False),
        staged(seen(*range(100, 100 + again))),
    )
    assert kit.rows() == kit.expected([*seen(*range(kept)), *seen(*range(100, 100 + again))])
    sink.rewind("u", "s", target(epoch, kept))
    assert kit.rows() == kit.expected(seen(*range(kept)))


def three(kit: Kit) -> Any:
    """A sink after three checkpoints of two rows."""
    sink = kit.driver()
    for epoch in (1, 2, 3):
        sink.commit(entry(epoch, 2 * epoch - 2, 2 * epoch), staged(seen(2 * epoch - 1, 2 * epoch)))
    return sink


def is_postgres(kit: Kit) -> bool:
    return kit.server == "postgres"


@appending
@pytest.mark.parametrize("change", ["DELETE FROM seen WHERE number = 6", "INSERT INTO seen SELECT * FROM seen"])
def test_a_table_that_others_changed_is_refused(kit: Kit, change: str) -> None:
    sink = three(kit)
    kit.execute(change)  # type: ignore[attr-defined]
    before = kit.rows()
    if "INSERT" in change and is_postgres(kit):
        sink.rewind("u", "s", target(1, 2))  # rows of other transactions are told apart, and stay
        assert len(kit.rows()) == len(before) - 4
        return
    assert "others have changed the table" in sink.cannot_rewind("u", "s", target(1, 2))
    with pytest.raises(Refused) as refused:
        sink.rewind("u", "s", target(1, 2))
    assert refused.value.code == "SW-SINK-AHEAD"
    assert kit.rows() == before and kit.make().ledger("u", "s").manifest_sha256 == "m3"


@pytest.mark.parametrize("kit", ["sqlite"], indirect=True)
def test_control_without_the_count_rows_of_a_checkpoint_that_stays_would_go(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite gives the numbers of removed rows again: they would be taken for old ones."""
    sink = three(kit)
    kit.execute("DELETE FROM seen WHERE number > 2")  # type: ignore[attr-defined]
    sink.commit(entry(4, 6, 8), staged(seen(7, 8)))
    found = sql_commits.split_at
    monkeypatch.setattr(
        "streamwork.connectors.sql_sink.split_at",
        lambda commits, sha: (found(commits, sha)[0], [sql_commits.Commit(9, "x", 0, 0)]),  # type: ignore[index]
    )
    assert sink.cannot_rewind("u", "s", target(3, 6)) == "", "the check counts nothing, and notices nothing"
    sink.rewind("u", "s", target(3, 6))
    assert kit.rows() != kit.expected(seen(1, 2)), "rows 7 and 8 stay"


@appending
def test_a_checkpoint_that_is_not_recorded_is_refused(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamwork.connectors.sql_sink.KEPT", 2)
    sink = three(kit)
    assert "no record" in sink.cannot_rewind("u", "s", target(1, 2))
    assert sink.cannot_rewind("u", "s", target(2, 4)) == ""


@appending
def test_an_older_driver_does_not_rewind(kit: Kit) -> None:
    sink = three(kit)
    kit.driver(fence=2)
    with pytest.raises(Refused) as refused:
        sink.rewind("u", "s", target(1, 2, fence=1))
    assert refused.value.code == "SW-SINK-FENCED"
    assert len(kit.rows()) == 6


@appending
@pytest.mark.parametrize("steps", [*range(12), 40])
def test_a_death_at_any_operation_leaves_all_or_nothing(kit: Kit, steps: int) -> None:
    sink = three(kit)
    kit.gate(sink, Gate(steps))
    try:
        sink.rewind("u", "s", target(1, 2))
        done = True
    except BaseException as error:
        assert isinstance(error, Died) or isinstance(error.__cause__, Died) or isinstance(error.__context__, Died)
        done = False
    kit.bury(sink)
    row = kit.make().ledger("u", "s")
    assert (len(kit.rows()), row.manifest_sha256) == ((2, "m1") if done else (6, "m3"))
    assert done or steps < 40, "40 operations are more than it has"


@others
def test_other_sinks_say_why_not(kit: Kit) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert sink.cannot_rewind("u", "s", target(1, 2))
