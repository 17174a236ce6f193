"""Snapshots that a child process puts into the cache, and blocks that are laid over each other."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streamwork.components import parquet_file
from streamwork.query import cache as cache_module
from streamwork.query.block import Block
from streamwork.query.cache import Cache
from streamwork.query.making import Maker
from streamwork.query.pile import Pile
from streamwork.query.shape import DELETED, Shape
from streamwork.world import FileRef, RealDisk
from tiers import quick_every

SHAPE = Shape("counts", ("card",), pa.schema([pa.field("card", pa.string()), pa.field("n", pa.int64())]), "Count")


@dataclass(frozen=True)
class Touch:
    path: Path
    kills: bool = False

    def __call__(self) -> None:
        if self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        self.path.write_text(str(os.getpriority(os.PRIO_PROCESS, 0)))


@pytest.fixture
def maker() -> Any:
    found = Maker()
    yield found
    found.close()


@pytest.mark.slow
def test_a_child_makes_one_thing_after_the_other_at_the_lowest_priority(tmp_path: Path, maker: Maker) -> None:
    assert maker.make(Touch(tmp_path / "a")) and (tmp_path / "a").read_text() == "19"
    assert not maker.make(Touch(tmp_path / "none" / "b")), "it fails"
    assert maker.make(Touch(tmp_path / "c")), "and goes on"
    assert not maker.make(Touch(tmp_path, kills=True)), "it ends"
    assert maker.make(Touch(tmp_path / "d")), "and is started again"


@pytest.mark.slow
def test_prepared_snapshots_are_only_mapped(tmp_path: Path, maker: Maker, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = cache_module.SMALL + 10
    table = pa.table(
        {"card": [f"card-{n}" for n in range(rows)], "n": range(rows), DELETED: [False] * rows}, SHAPE.rows_schema
    )
    ref = FileRef.write(RealDisk(), tmp_path, "a.snapshot.parquet", parquet_file.to_bytes(table), rows)
    cache = Cache(tmp_path / "cache", "uid", maker)
    cache.prepare(tmp_path, SHAPE, {}, [ref])
    monkeypatch.setattr(Cache, "_write", lambda *_: pytest.fail("it was made again"))
    pile = Pile(SHAPE, (cache.block(RealDisk(), tmp_path, SHAPE, {}, [ref]),))
    assert pile.count() == rows
    row = pile.get(("card-77",))
    assert row is not None and row.column("n").to_pylist() == [77]


@pytest.mark.parametrize("seed", quick_every(5, range(25)))
def test_a_block_over_another_is_both(seed: int) -> None:
    """As one made of the rows at once; also with marks of keys that are gone."""
    rng = random.Random(seed)
    plain: dict[str, Any] = {}
    block = None
    for _ in range(rng.randrange(2, 8)):
        rows = {
            f"card-{rng.randrange(60)}": (rng.randrange(1_000), rng.random() < 0.3) for _ in range(rng.randrange(1, 50))
        }
        plain.update(rows)
        made = Block(SHAPE, rows_of(rows))
        block = made if block is None else block.under(made)
    assert block is not None and len(block) == len(plain)
    once = Block(SHAPE, rows_of(plain))
    assert block._index.hashes.tolist() == once._index.hashes.tolist()
    lowest = Pile(SHAPE, (Block(SHAPE, SHAPE.rows_schema.empty_table()), block))
    for card in [*plain, "unknown"]:
        row = lowest.get((card,))
        number, gone = plain.get(card, (0, True))
        assert (None if row is None else row.column("n").to_pylist()) == (None if gone else [number])
    assert lowest.count() == sum(not gone for _, gone in plain.values())


def rows_of(rows: dict[str, Any]) -> pa.Table:
    return pa.table(
        {"card": list(rows), "n": [n for n, _ in rows.values()], DELETED: [gone for _, gone in rows.values()]},
        SHAPE.rows_schema,
    )
