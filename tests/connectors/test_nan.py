"""NaN and infinity, in every target as docs/sinks.md has it."""

from __future__ import annotations

import json
import math
from typing import Any

import duckdb
import pytest

from connectors.kits import KITS, Kit, Real, batch, entry, slow_of, staged
from streamwork.components import PreviewLabel, RowsRejected
from streamwork.log import LogReader

INF = math.inf
FINITE = Real("a", INF, None, [1.5])
EVENTS = [Real("b", -INF, INF, [INF, -INF, math.nan])]
TEXTS = ["inf", "-inf", "nan"]


def found(kit: Any, name: str) -> list[tuple[Any, ...]]:
    """(value, maybe, many) as a reader of that target has them."""
    columns = "value, maybe, many"
    if "sqlite" in name:
        return [(*row[:2], json.loads(row[2])) for row in kit.query(f"SELECT {columns} FROM seen ORDER BY name")]
    if "postgres" in name:
        return list(kit.query(f"SELECT {columns} FROM seen ORDER BY name"))
    if name == "redis":
        rows = sorted(
            ({k: v.decode() for k, v in row.items() if k[0] != "_"} for row in kit.hashes()), key=lambda r: r["name"]
        )
        return [(r["value"], r.get("maybe"), json.loads(r["many"])) for r in rows]
    if name == "parquet":
        files = str(kit.folder / "out" / "epoch=*" / "*.parquet")
        return duckdb.sql(f"SELECT {columns} FROM '{files}' ORDER BY name").fetchall()
    if name == "kafka":
        rows = sorted(map(json.loads, kit.values()), key=lambda r: r["name"])
        return [(r["value"], r["maybe"], r["many"]) for r in rows]
    with LogReader(kit.folder / "out", Real) as log:
        return [(e.value, e.maybe, e.many) for e in sorted((one.event for one in log.last(9)), key=lambda e: e.name)]


@pytest.mark.parametrize(
    ("kit", "name"),
    [pytest.param(name, name, marks=slow_of(name), id=name) for name in KITS if name != "memory"],
    indirect=["kit"],
)
def test_what_a_reader_finds(kit: Kit, name: str) -> None:
    sink = kit.driver(event=Real)
    with_nan = Real("c", 0.0 if "sqlite" in name else math.nan, math.nan, [math.nan])
    sink.commit(entry(1, 0, 3), staged([FINITE, *EVENTS, with_nan]))
    first, second, third = found(kit, name)
    if name in ("redis", "kafka"):
        assert (first, second) == (("inf", None, [1.5]), ("-inf", "inf", TEXTS))
        assert third == ("nan", "nan", ["nan"])
        return
    nested = second[2]
    assert first == (INF, None, [1.5]) and second[:2] == (-INF, INF)
    if name in ("parquet", "log"):
        assert nested[:2] == [INF, -INF] and math.isnan(nested[2])
    else:
        assert nested == TEXTS
    if "sqlite" in name:
        assert third == (0.0, None, ["nan"])
    else:
        assert math.isnan(third[0]) and math.isnan(third[1])


@pytest.mark.parametrize("kit", ["sqlite", "sqlite-upsert"], indirect=True)
def test_sqlite_refuses_nan_where_none_may_not_be(kit: Any) -> None:
    sink, bad = kit.driver(event=Real), Real("c", math.nan, None, [])
    with pytest.raises(RowsRejected, match="value is NaN"):
        sink.commit(entry(1, 0, 2), staged([FINITE, bad]))
    with pytest.raises(RowsRejected, match="value is NaN"):
        sink.write(batch([bad]))
    assert "value is NaN" in sink.rejects([batch([bad])])
    assert kit.query("SELECT * FROM seen") == []
    sink.preview(PreviewLabel("u", "s", 1, 1), batch([FINITE, bad]))
    assert kit.query("SELECT name FROM seen__dirty") == [("a",)], "what would be refused is not shown"
