"""What every sink promises (`components.sink`), asked of each of them on its real target."""

from __future__ import annotations

import multiprocessing
import pickle
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from connectors import checks
from connectors.kits import DURABLE, KITS, SQL, Inner, Kit, Wide, as_rows, batch, cases, entry, seen, staged
from sample import Seen
from streamwork import Refused
from streamwork.components import PreviewLabel, RowsRejected

every = pytest.mark.parametrize("kit", cases(KITS), indirect=True)
durable = pytest.mark.parametrize("kit", cases(DURABLE), indirect=True)
owned = pytest.mark.parametrize("kit", cases(name for name, kind in KITS.items() if kind.has_owner), indirect=True)
sql = pytest.mark.parametrize("kit", SQL, indirect=True)


@every
def test_rows_and_ledger_advance_together(kit: Kit) -> None:
    sink = kit.driver()
    first = sink.ledger("u", "s")
    assert (first.fence, first.position) == (1, None)
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink.commit(entry(2, 2, 5), staged(seen(3, 4, 5)))
    assert kit.rows() == kit.expected(seen(1, 2, 3, 4, 5))
    row = kit.make().ledger("u", "s")
    assert (row.position, row.manifest_sha256, row.fence, row.mark) == ({"a/0": 5}, "m2", 1, "")


@every
def test_an_epoch_that_is_there_is_not_applied_again(kit: Kit) -> None:
    checks.idempotent(kit)


@every
def test_an_epoch_without_rows_advances_the_ledger(kit: Kit) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), iter(()))
    assert (kit.rows(), sink.ledger("u", "s").position) == ([], {"a/0": 2})
    sink.commit(entry(2, 2, 3), staged(seen(3)))
    sink.commit(entry(3, 3, 3), iter(()))
    assert (kit.rows(), sink.ledger("u", "s").manifest_sha256) == (kit.expected(seen(3)), "m3")


@every
def test_the_same_rows_under_another_manifest_are_adopted(kit: Kit) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink.commit(entry(2, 0, 2, manifest_sha256="other", first=False), staged(seen(1, 2)))
    assert (kit.rows(), sink.ledger("u", "s").manifest_sha256) == (kit.expected(seen(1, 2)), "other")
    sink.commit(entry(3, 2, 3, deterministic=False, parent_sha256="other"), staged(seen(3)))
    assert kit.rows() == kit.expected(seen(1, 2, 3))


@every
def test_a_ledger_that_does_not_fit_is_refused_and_nothing_changes(kit: Kit) -> None:
    sink = kit.driver()
    with pytest.raises(Refused, match="SW-SINK-LEDGER"):
        sink.commit(entry(2, 2, 3), staged(seen(3)))  # there is no first yet
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    for wrong in (entry(3, 5, 6), entry(2, 2, 3, deterministic=False, parent_sha256="x"), entry(2, 1, 4)):
        with pytest.raises(Refused, match="SW-SINK-LEDGER"):
            sink.commit(wrong, staged(seen(7)))
    assert (kit.rows(), sink.ledger("u", "s").manifest_sha256) == (kit.expected(seen(1, 2)), "m1")


@every
def test_what_lies_behind_the_ledger_is_skipped(kit: Kit) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 5), staged(seen(1, 2)))
    sink.commit(entry(2, 0, 3, first=False), staged(seen(8, 9)))
    assert (kit.rows(), sink.ledger("u", "s").manifest_sha256) == (kit.expected(seen(1, 2)), "m1")


@every
def test_a_failure_while_rows_are_read_changes_nothing(kit: Kit) -> None:
    sink = kit.driver()

    def breaks() -> Any:
        yield batch(seen(1, 2))
        raise RuntimeError("the staged file is gone")

    with pytest.raises(RuntimeError):
        sink.commit(entry(1, 0, 2), breaks())
    assert sink.ledger("u", "s").position is None
    assert kit.rows() == []
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert kit.rows() == kit.expected(seen(1, 2))


@every
def test_a_lower_fence_is_turned_away(kit: Kit) -> None:
    old, new = kit.driver(1), kit.driver(2)
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        old.commit(entry(1, 0, 2), staged(seen(1, 2)))
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        kit.driver(1)
    new.commit(entry(1, 0, 2, fence=2), staged(seen(1, 2)))
    with pytest.raises(Refused, match="SW-SINK-FENCED"):
        old.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert (kit.rows(), new.ledger("u", "s").fence) == (kit.expected(seen(1, 2)), 2)


@every
def test_the_same_fence_may_register_again(kit: Kit) -> None:
    kit.driver(1)
    sink = kit.driver(1)
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert kit.rows() == kit.expected(seen(1, 2))


@owned
def test_a_target_has_one_owner(kit: Kit) -> None:
    kit.driver()
    with pytest.raises(Refused, match="SW-SINK-OWNED"):
        kit.driver(uid="another-life")


@durable
@pytest.mark.slow(done=False)
@pytest.mark.parametrize("done", [False, True], ids=["before it", "after it, unanswered"])
def test_a_death_at_any_operation_of_a_commit(kit: Kit, done: bool) -> None:
    assert checks.death_at_every_step(type(kit), kit, done) >= 3


@durable
@pytest.mark.slow(only_registers=True)
@pytest.mark.parametrize("only_registers", [True, False], ids=["registers", "goes on"])
def test_a_newer_driver_registers_at_any_operation_of_a_commit(
    kit: Kit, monkeypatch: pytest.MonkeyPatch, only_registers: bool
) -> None:
    assert checks.zombie_at_every_step(type(kit), kit, monkeypatch, only_registers) >= 3


@every
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(steps=checks.STEPS)
def test_any_sequence_of_offers_ends_as_in_the_model(
    kit: Kit, steps: list[tuple[str, int]], tmp_path_factory: Any
) -> None:
    checks.as_in_the_model(checks.fresh(type(kit), kit, tmp_path_factory.mktemp("walk")), steps)


WIDE = [
    Wide(
        "", True, 2**63 - 1, 0.1, b"\x00\xff", datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=UTC), date(2026, 1, 2),
        Decimal("-12345678.90"), ["a", "", 'b"c,\n\\.'], {"k:1": 1, "": 2}, Inner(3, datetime(1, 1, 1, tzinfo=UTC)), None,
    ),
    Wide(
        "ü:%\n\"',\\N\t\r", False, -(2**63), -1e300, b"", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        date(1, 1, 1), Decimal("0.00"), [], {}, Inner(0, datetime(1970, 1, 1, tzinfo=UTC)), 7,
    ),
]  # fmt: skip


@every
@pytest.mark.parametrize("how", ["commit", "write"])
def test_every_type_comes_back_as_it_was(kit: Kit, how: str) -> None:
    sink = kit.driver(event=Wide)
    if how == "commit":
        sink.commit(entry(1, 0, 2), staged(WIDE))
    else:
        sink.write(batch(WIDE))
    assert sorted(kit.wide(), key=lambda w: w.name) == WIDE


@durable
def test_a_sink_travels_to_another_process(kit: Kit) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 1), staged(seen(1)))
    copy = pickle.loads(pickle.dumps(sink))
    kit._made.append(copy)
    copy.open(Seen)
    copy.write(batch(seen(2)))
    sink.commit(entry(2, 1, 3), staged(seen(3)))
    assert kit.rows() == kit.expected(seen(1, 2, 3))


def _write_many(sink: Any, start: int, count: int) -> None:
    sink.open(Seen)
    for number in range(start, start + count):
        sink.write(batch([Seen(f"c{number}", number, 0), Seen(f"d{number}", number, 1)]))
    sink.close()


@pytest.mark.slow(kit=["sqlite-upsert", "postgres", "postgres-upsert", "redis", "parquet", "log", "memory"])
@durable
def test_two_processes_write_at_once(kit: Kit) -> None:
    sink = kit._new()
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=_write_many, args=(sink, start, 20)) for start in (0, 20)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join(240)
        assert writer.exitcode == 0
    assert kit.rows() == as_rows([Seen(f"{c}{n}", n, t) for n in range(40) for t, c in enumerate("cd")])


REFUSING = [name for name in DURABLE if name not in ("parquet", "log", "kafka")]


@pytest.mark.parametrize("kit", REFUSING, indirect=True)
def test_rows_that_are_refused_leave_nothing_behind(kit: Kit) -> None:
    checks.make_refusing(kit)
    sink = kit.driver()
    bad = Seen("c9", -1, 0)
    with pytest.raises(RowsRejected):
        sink.write(batch([*seen(1, 2), bad]))
    assert kit.rows() == []
    with pytest.raises(RowsRejected):
        sink.commit(entry(1, 0, 3), staged([*seen(1, 2), bad]))
    assert sink.ledger("u", "s").position is None
    assert sink.rejects([batch(seen(1, 2))]) == ""
    assert sink.rejects([batch(seen(1, 2)), batch([bad])]) != ""
    sink.commit(entry(1, 0, 3), staged(seen(1, 2)))
    assert kit.rows() == kit.expected(seen(1, 2))


# ---- previews ------------------------------------------------------------------------------------------------------------


def dirty(kit: Any) -> list[tuple[Any, ...]]:
    return sorted(kit.query("SELECT card, number, __epoch FROM seen__dirty"), key=str)


@sql
def test_previews_stand_beside_the_target_until_their_commit(kit: Kit) -> None:
    sink, worker = kit.driver(), kit.make()
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    worker.preview(PreviewLabel("u", "s", 1, 2), batch(seen(4)))
    worker.preview(PreviewLabel("u", "s", 1, 3), batch(seen(5, 7)))
    assert kit.rows() == kit.expected(seen(1, 2)), "read-committed readers see none of them"
    if kit.keyed:
        assert dirty(kit) == [("c1", 7, 3), ("c2", 5, 3)]
    else:
        assert dirty(kit) == [("c1", 1, None), ("c1", 4, 2), ("c1", 7, 3), ("c2", 2, None), ("c2", 5, 3)]
    sink.commit(entry(2, 2, 3), staged(seen(4)))
    assert [row for row in dirty(kit) if row[2] == 2] == []
    assert [row for row in dirty(kit) if row[2] == 3] == [("c1", 7, 3), ("c2", 5, 3)]
    sink.withdraw("u", "s", 3)
    assert sorted(row[:2] for row in dirty(kit)) == [row[:2] for row in kit.rows()]


@sql
def test_only_previews_of_the_registered_fence_count(kit: Kit) -> None:
    checks.previews_of_older_fences(kit)


@sql
def test_registering_removes_every_preview(kit: Kit) -> None:
    sink = kit.driver(1)
    sink.preview(PreviewLabel("u", "s", 1, 1), batch(seen(1)))
    kit.driver(2)
    assert dirty(kit) == [] and kit.query("SELECT * FROM seen__preview") == []  # type: ignore[attr-defined]


def _preview(sink: Any, number: int) -> None:
    sink.open(Seen)
    sink.preview(PreviewLabel("u", "s", 1, 1), batch([Seen(f"p{number}", number, 0)]))
    sink.close()


@pytest.mark.slow
@sql
def test_several_processes_preview_for_the_first_time_at_once(kit: Kit) -> None:
    kit.driver()
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=_preview, args=(kit._new(), number)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(240)
        assert worker.exitcode == 0
    assert dirty(kit) == [(f"p{number}", number, 1) for number in range(4)]


@sql
def test_a_failed_commit_keeps_its_previews(kit: Kit) -> None:
    checks.make_refusing(kit)
    sink = kit.driver()
    sink.preview(PreviewLabel("u", "s", 1, 1), batch(seen(1)))
    with pytest.raises(RowsRejected):
        sink.commit(entry(1, 0, 2), staged([*seen(1), Seen("c9", -1, 0)]))
    assert dirty(kit) == [("c1", 1, 1)]


@sql
def test_without_previews_there_is_nothing_beside_the_target(kit: Kit) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    sink.withdraw("u", "s", 1)
    with pytest.raises(Exception, match="seen__preview"):
        kit.query("SELECT * FROM seen__preview")  # type: ignore[attr-defined]
