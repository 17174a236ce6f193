"""Sinks that can remove what was committed after a checkpoint: exactly that, or nothing."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from connectors.kits import Died, Gate, Kit, entry, seen, staged
from sample import Seen
from streamwork import ParquetSink, Refused
from streamwork.components import LedgerRow, Position
from streamwork.connectors import parquet_commits, sql_commits

appending = pytest.mark.parametrize("kit", ["sqlite", "postgres", "parquet"], indirect=True)
tables = pytest.mark.parametrize("kit", ["sqlite", "postgres"], indirect=True)
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


@tables
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
    monkeypatch.setattr("streamwork.connectors.parquet_commits.KEPT", 2)
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
@pytest.mark.parametrize("steps", [*range(14), 40])
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
    found = len(kit.rows()), kit.make().ledger("u", "s").manifest_sha256
    assert found == (2, "m1") or (found == (6, "m3") and not done)
    assert done or steps < 40, "40 operations are more than it has"


@others
def test_other_sinks_say_why_not(kit: Kit) -> None:
    sink = kit.driver()
    sink.commit(entry(1, 0, 2), staged(seen(1, 2)))
    assert sink.cannot_rewind("u", "s", target(1, 2))


# ---- folders of Parquet files -------------------------------------------------------------------------------------------


def parquet(kit: Kit, folder_bytes: int, fence: int = 1) -> Any:
    sink = ParquetSink[Any](kit.folder / "out", folder_bytes=folder_bytes)
    sink.open(Seen)
    sink.register("u", "s", fence)
    return sink


parquets = pytest.mark.parametrize("kit", ["parquet"], indirect=True)


@parquets
@pytest.mark.parametrize("folder_bytes", [0, 1 << 11, 1 << 27])
@pytest.mark.parametrize("back", [0, 1, 7, 30, 38, 39])
def test_folders_that_were_filled_and_files_that_were_merged(kit: Kit, folder_bytes: int, back: int) -> None:
    """Forty checkpoints: several folders, or one with files that were merged."""
    sink = parquet(kit, folder_bytes)
    for epoch in range(1, 41):
        sink.commit(entry(epoch, 3 * epoch - 3, 3 * epoch), staged(seen(*range(3 * epoch - 3, 3 * epoch))))
    epoch = 40 - back
    folders = len([*(kit.folder / "out").glob("epoch=*")])
    assert (folders == 40) if folder_bytes == 0 else (folders == 1) if folder_bytes > 1 << 20 else (1 < folders < 40)
    assert sink.rewind("u", "s", target(epoch, 3 * epoch)) == 3 * back
    assert kit.rows() == kit.expected(seen(*range(3 * epoch)))
    sink = parquet(kit, folder_bytes, fence=2)
    for more in range(epoch + 1, epoch + 20):
        sink.commit(
            entry(more, 3 * more - 3, 3 * more, fence=2, manifest_sha256=f"n{more}"),
            staged(seen(*range(3 * more - 3, 3 * more))),
        )
    assert kit.rows() == kit.expected(seen(*range(3 * epoch + 57)))
    assert sink.rewind("u", "s", target(epoch, 3 * epoch, fence=2)) == 57
    assert kit.rows() == kit.expected(seen(*range(3 * epoch)))


@parquets
@pytest.mark.parametrize("steps", range(0, 16, 2))
def test_a_death_between_two_folders_leaves_what_the_ledger_says(kit: Kit, steps: int) -> None:
    sink = parquet(kit, 0)
    for epoch in (1, 2, 3, 4):
        sink.commit(entry(epoch, 2 * epoch - 2, 2 * epoch), staged(seen(2 * epoch - 1, 2 * epoch)))
    kit.gate(sink, Gate(steps))
    with suppress(Died):
        sink.rewind("u", "s", target(1, 2))
    kit.bury(sink)
    at = kit.make().ledger("u", "s").position["a/0"]
    assert kit.rows() == kit.expected(seen(*range(1, at + 1)))
    again = parquet(kit, 0, fence=2)
    again.rewind("u", "s", target(1, 2, fence=2))
    assert kit.rows() == kit.expected(seen(1, 2))


@parquets
@pytest.mark.parametrize("change", ["remove", "add"])
def test_a_folder_that_others_changed_is_refused(kit: Kit, change: str) -> None:
    sink = three(kit)
    folder = next((kit.folder / "out").glob("epoch=*"))
    part = max(folder.glob("part-*.parquet"))
    if change == "remove":
        part.unlink()
    else:
        (folder / "notes.txt").write_text("mine")
    before = kit.rows()
    assert "others have" in sink.cannot_rewind("u", "s", target(1, 2))
    with pytest.raises(Refused) as refused:
        sink.rewind("u", "s", target(1, 2))
    assert refused.value.code == "SW-SINK-AHEAD" and kit.rows() == before


@parquets
def test_control_without_the_rows_in_the_ledger_a_cut_would_be_in_the_wrong_place(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = parquet_commits.noted
    monkeypatch.setattr(parquet_commits, "noted", lambda before, sha, rows: counted(before, sha, rows + 1))
    sink = three(kit)
    sink.rewind("u", "s", target(1, 2))
    assert kit.rows() != kit.expected(seen(1, 2))


@parquets
def test_a_folder_of_an_older_version_goes_on_and_is_not_rewound(kit: Kit) -> None:
    sink = three(kit)
    ledger = next((kit.folder / "out").glob("epoch=*/_ledger.json"))
    written = msgspec.json.decode(ledger.read_bytes())
    ledger.write_bytes(msgspec.json.encode({n: v for n, v in written.items() if n not in ("rows", "commits")}))
    sink.commit(entry(4, 6, 8), staged(seen(7, 8)))
    assert kit.rows() == kit.expected(seen(*range(1, 9)))
    assert "did not record" in sink.cannot_rewind("u", "s", target(3, 6))
